"""Producer ids of several brokers over one tree."""

from __future__ import annotations

import asyncio
from pathlib import Path

from barnabas.broker.cluster.producer_ids import ProducerIds
from barnabas.coordination.local import LocalTree
from barnabas.cores.links import RANGE_IDS, own_range
from barnabas.cores.znode_layout import PRODUCER_ID_BLOCK
from barnabas.cores.znode_ops import Create


def test_ids_are_kept_apart_from_those_of_other_clusters_whatever_blocks_are_reserved(tmp_path: Path) -> None:
    async def ids() -> tuple[list[int], list[int]]:
        tree = LocalTree.open(tmp_path / "tree")
        await tree.multi([Create(PRODUCER_ID_BLOCK, b"")])
        brokers = [ProducerIds(lambda: tree, node) for node in range(3)]
        before = [await broker.next_id() for broker in brokers]
        await asyncio.gather(*(broker.keep_apart("here") for broker in brokers))
        after = [await broker.next_id() for broker in brokers]
        await brokers[0].keep_apart("here")  # once more: nothing is skipped
        after += [await broker.next_id() for broker in (*brokers, ProducerIds(lambda: tree, 3))]
        await tree.close()
        return before, after

    before, after = asyncio.run(ids())
    assert before == [0, 1000, 2000]
    assert after == [own_range("here").start + at for at in (0, 1000, 2000, 1, 1001, 2001, 3000)]


def test_ranges_of_clusters_differ_and_fit_into_64_bits() -> None:
    ranges = [own_range(f"cluster-{number}") for number in range(1_000)]
    assert len({ids.start for ids in ranges}) > 990
    assert all(ids.start % RANGE_IDS == 0 and ids.start >= RANGE_IDS for ids in ranges)
    assert max(ids.stop for ids in ranges) < 1 << 63
