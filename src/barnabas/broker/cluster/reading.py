"""Reads nodes of the metadata tree, and replays them onto an image."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.coordination.tree import NoNode, Stat
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import ClusterImage

if TYPE_CHECKING:
    from barnabas.coordination.tree import ZnodeTree

log = logging.getLogger("barnabas.controller")

Nodes = Mapping[str, tuple[bytes, Stat]]
"""Data and stat of nodes, by path."""
NODES_PER_TURN: Final = 500


async def read_node(tree: ZnodeTree, path: str) -> Nodes:
    """One node; empty if it does not exist. Raises TreeError."""
    try:
        return {path: await tree.get(path)}
    except NoNode:
        return {}


async def replayed(nodes: Nodes) -> ClusterImage:
    """A new image with the contents of these nodes; lets others run in between."""
    image = ClusterImage()
    for count, (path, (data, stat)) in enumerate(nodes.items(), 1):
        replay(image, path, data, stat)
        if count % NODES_PER_TURN == 0:
            await asyncio.sleep(0)
    return image


def replay(image: ClusterImage, path: str, data: bytes, stat: Stat) -> None:
    """Replay one node onto an image; a malformed one is logged and ignored."""
    try:
        image.put(path, data, stat.version, stat.czxid)
    except (layout.BadPayload, ValueError) as error:
        log.error("a malformed node of the metadata tree is ignored", extra={"reason": str(error)})
