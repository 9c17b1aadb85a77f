"""Producer ids, handed out from blocks that are reserved in the znode tree.

A block is written to /latest_producer_id_block before its first id is used, so that no id is given twice
whatever crashes: the rest of a block is then skipped. Layout and block size are Kafka's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from barnabas.coordination.tree import BadVersion
from barnabas.cores.znode_layout import (
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)

if TYPE_CHECKING:
    from barnabas.coordination.tree import ZnodeTree

BLOCK_IDS: Final = 1000


class ProducerIds:
    """The ids of one broker."""

    def __init__(self, tree: ZnodeTree, node_id: int) -> None:
        self._tree = tree
        self._node_id = node_id
        self._next = 0
        self._last = -1
        self._reserving = asyncio.Lock()

    async def next_id(self) -> int:
        """An id that nobody was given before."""
        async with self._reserving:
            if self._next > self._last:
                block = await self._reserve()
                self._next, self._last = block.first, block.last
        taken = self._next
        self._next += 1
        return taken

    async def _reserve(self) -> ProducerIdBlock:
        """A fresh block; brokers that compete for it are told apart by the znode's version."""
        while True:
            data, stat = await self._tree.get(PRODUCER_ID_BLOCK)
            newest = decode_producer_id_block(data)
            first = 0 if newest is None else newest.last + 1
            block = ProducerIdBlock(self._node_id, first, first + BLOCK_IDS - 1)
            try:
                await self._tree.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), stat.version)
            except BadVersion:
                continue
            return block
