"""Histories of three brokers on one tree; see docs/simulation.md.

`pytest tests/sim/cluster --cluster-seeds 5000` runs more of them, `--seed 17` one of them again, and prints what happened.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.cluster.trouble import KINDS
from tests.sim.cluster.world import PARTITIONS, Failed, run_seed

CHUNK = 25
SEEDS_TO_COUNT = 250
"""With fewer histories, what is rare may not happen."""
EVERY = 15
"""Each kind of trouble happens at least once in so many histories."""
NEW_LEADER = "new leader"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        count = metafunc.config.getoption("--cluster-seeds")
        chunks = [range(begin, min(begin + CHUNK, count)) for begin in range(0, count, CHUNK)]
        if one is not None:
            chunks = [range(one, one + 1)]
        metafunc.parametrize("seeds", chunks, ids=[f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks])


def test_replication(
    seeds: range, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing acknowledged is lost, logs agree below their high watermarks, one broker leads in each epoch; and over all
    histories, each kind of trouble has happened often enough to be worth something.
    """
    failures = []
    happened: Counter[str] = Counter()
    for seed in seeds:
        log: list[str] | None = [] if len(seeds) == 1 else None
        try:
            world = run_seed(seed, log=log)
            happened += world.faults.happened
            happened[NEW_LEADER] += len(world.leaders) - PARTITIONS
        except Failed as failed:
            failures.append(str(failed))
        if log is not None:
            print("\n".join(log))
        if seed % 5 == 4:
            gc.collect()  # simulated processes leave files open, in objects that refer to one another
    print(f"{len(seeds)} histories: {dict(happened.most_common())}")
    assert not failures, "\n".join([*failures, "see one again with: pytest tests/sim/cluster --seed N -s"])
    count = request.config.getoption("--cluster-seeds")
    if count >= SEEDS_TO_COUNT and request.config.getoption("--seed") is None:
        base = tmp_path_factory.getbasetemp()
        shared = base.parent if hasattr(request.config, "workerinput") else base
        in_all = add_up(shared / "cluster-histories", seeds, count, happened)
        if in_all is not None:
            print(f"all {count} histories: {dict(in_all.most_common())}")
            rare = {kind: in_all[kind] for kind in (*KINDS, NEW_LEADER) if in_all[kind] * EVERY < count}
            assert not rare, f"too seldom in {count} histories: {rare}"


def add_up(folder: Path, seeds: range, count: int, happened: Counter[str]) -> Counter[str] | None:
    """What happened in all histories, for the chunk that ends last; the processes of pytest-xdist leave their sums here."""
    folder.mkdir(exist_ok=True)
    written = folder / f"{seeds.start}.new"
    written.write_text(json.dumps(happened))
    written.replace(written.with_suffix(".json"))
    sums = [Counter(json.loads(path.read_text())) for path in folder.glob("*.json")]
    if len(sums) < len(range(0, count, CHUNK)):
        return None
    return sum(sums, Counter())


TRACE = "from tests.sim.cluster.world import run_seed; print(run_seed({seed}).trace)"


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    """However Python hashes its strings and wherever its objects lie."""
    seed = 3
    path = ":".join([*filter(None, sys.path), "."])
    trace = subprocess.run(
        [sys.executable, "-c", TRACE.format(seed=seed)],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert trace == f"{run_seed(seed).trace}\n"
