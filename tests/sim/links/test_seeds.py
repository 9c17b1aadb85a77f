"""Histories of a link between two simulated clusters; see docs/simulation.md.

`pytest tests/sim/links --link-seeds 1000` runs more of them, `--seed 17` one of them again, and prints what happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.links import promoting
from barnabas.broker.partitions.acknowledgement import Acknowledgement
from barnabas.broker.partitions.partition import Partition, PartitionRead
from tests.sim.cluster.test_planted import find
from tests.sim.cluster.world import Failed, run_seed
from tests.sim.links.world import LinkWorld

CHUNK = 25
EVERY = 5
"""Each of these happens at least once in so many histories, where a chunk is complete."""
KINDS = ("kill", "cut network", "promotion", "failover", "records removed at the source")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        count = metafunc.config.getoption("--link-seeds")
        chunks = [range(begin, min(begin + CHUNK, count)) for begin in range(0, count, CHUNK)]
        if one is not None:
            chunks = [range(one, one + 1)]
        metafunc.parametrize("seeds", chunks, ids=[f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks])


def test_copies_have_the_sources_offsets_and_lose_nothing_whatever_happens(seeds: range) -> None:
    found = []
    happened: Counter[str] = Counter()
    for seed in seeds:
        log: list[str] | None = [] if len(seeds) == 1 else None
        try:
            world = run_seed(seed, log=log, world=LinkWorld)
            assert isinstance(world, LinkWorld)
            happened.update(world.happened)
        except Failed as failed:
            found.append(str(failed))
        if log is not None:
            print("\n".join(log))
    print(f"{len(seeds)} histories: {dict(happened.most_common())}")
    assert not found, "\n".join([*found, "see one again with: pytest tests/sim/links --seed N -s"])
    if len(seeds) >= CHUNK:
        rare = {kind: happened[kind] for kind in KINDS if happened[kind] * EVERY < len(seeds)}
        assert not rare, f"too seldom in {len(seeds)} histories: {rare}"


def _copy_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Consumers, and so links, get what the source's followers may not have yet."""
    real = Partition.read

    def read(self: Partition, *given: Any, **named: Any) -> PartitionRead:
        return real(self, *given, **{**named, "by_replica": True})

    patch.setattr(Partition, "read", read)


def _promote_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    """Both clusters write in the same leader epoch, so that nobody sees where their logs have parted."""
    patch.setattr(promoting, "promoted_epoch", lambda leader_epoch, source_epoch: leader_epoch)


def _let_anybody_write(patch: pytest.MonkeyPatch) -> None:
    """A copy takes records of clients."""
    real = Partition.append

    def append(self: Partition, *given: Any, **named: Any) -> Acknowledgement:
        config = self.log.config
        self.log.config = replace(config, barnabas_link="")
        try:
            return real(self, *given, **named)
        finally:
            self.log.config = config

    patch.setattr(Partition, "append", append)


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (_copy_what_is_not_committed, "changed"),
        pytest.param(_let_anybody_write, "changed", marks=pytest.mark.soak),
        pytest.param(_promote_without_a_new_epoch, "stuck", marks=pytest.mark.soak),
    ],
)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    find({rule}, 10, LinkWorld)
