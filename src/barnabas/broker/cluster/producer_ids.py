"""Producer ids, handed out from blocks that are reserved in the znode tree.

A block is written to /latest_producer_id_block before its first id is used, so that no id is handed out twice,
whatever crashes: the rest of a block is then skipped. Layout and block size are Kafka's.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from barnabas.coordination.tree import BadVersion, TreeError
from barnabas.cores.links import own_range
from barnabas.cores.znode_layout import (
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordination.tree import ZnodeTree

BLOCK_IDS: Final = 1000


class ProducerIds:
    """The ids of one broker."""

    def __init__(self, tree: Callable[[], ZnodeTree], node_id: int) -> None:
        """tree: returns the current session with the tree."""
        self._tree = tree
        self._node_id = node_id
        self._next = 0
        self._last = -1
        self._reserving = asyncio.Lock()

    async def next_id(self) -> int:
        """A new id. Raises ApiError COORDINATOR_NOT_AVAILABLE when no block can be reserved."""
        async with self._reserving:
            if self._next > self._last:
                try:
                    block = await self._reserve()
                except TreeError as error:
                    why = f"no producer ids can be reserved: {error}"
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why) from error
                self._next, self._last = block.first, block.last
        taken = self._next
        self._next += 1
        return taken

    async def keep_apart(self, cluster_id: str) -> None:
        """From now on this broker hands out ids of the cluster's own range only (see `own_range`), so that none is one that
        another cluster handed out, whose records are copied here. Raises ApiError.
        """
        own = own_range(cluster_id)
        async with self._reserving:
            try:
                while True:
                    tree = self._tree()
                    data, stat = await tree.get(PRODUCER_ID_BLOCK)
                    newest = decode_producer_id_block(data)
                    if newest is not None and newest.last >= own.start - 1:
                        break
                    before = ProducerIdBlock(self._node_id, own.start - BLOCK_IDS, own.start - 1)
                    with contextlib.suppress(BadVersion):  # another broker was quicker: look again
                        await tree.set(PRODUCER_ID_BLOCK, encode_producer_id_block(before), stat.version)
            except TreeError as error:
                why = f"producer ids cannot be kept apart: {error}"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why) from error
            if self._last < own.start:
                self._next, self._last = 0, -1  # the rest of the block is never used

    async def _reserve(self) -> ProducerIdBlock:
        """Reserve a new block; the znode's version ensures that only one of several brokers gets it. Raises TreeError."""
        while True:
            tree = self._tree()
            data, stat = await tree.get(PRODUCER_ID_BLOCK)
            newest = decode_producer_id_block(data)
            first = 0 if newest is None else newest.last + 1
            block = ProducerIdBlock(self._node_id, first, first + BLOCK_IDS - 1)
            try:
                await tree.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), stat.version)
            except BadVersion:
                continue
            return block
