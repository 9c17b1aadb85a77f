"""Histories of three brokers on one tree; see docs/simulation.md.

`pytest tests/sim/cluster --cluster-seeds 5000` runs more of them, `--seed 17` one of them again, and prints what happened.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.cluster.world import Failed, run_seed

CHUNK = 25


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        count = metafunc.config.getoption("--cluster-seeds")
        chunks = [range(begin, min(begin + CHUNK, count)) for begin in range(0, count, CHUNK)]
        if one is not None:
            chunks = [range(one, one + 1)]
        metafunc.parametrize("seeds", chunks, ids=[f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks])


def test_replication(seeds: range, request: pytest.FixtureRequest) -> None:
    """Nothing acknowledged is lost, logs agree below their high watermarks, one broker leads in each epoch."""
    found = []
    happened: Counter[str] = Counter()
    for seed in seeds:
        log: list[str] | None = [] if len(seeds) == 1 else None
        try:
            happened += run_seed(seed, log=log).faults.happened
        except Failed as failed:
            found.append(str(failed))
        if log is not None:
            print("\n".join(log))
    gc.collect()  # a simulated process leaves files open, in objects that refer to one another
    print(f"{len(seeds)} histories: {dict(happened.most_common())}")
    assert not found, "\n".join([*found, "see one again with: pytest tests/sim/cluster --seed N -s"])


TRACE = "from tests.sim.cluster.world import run_seed; print(run_seed({seed}).trace)"


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    """However Python hashes its strings and wherever its objects lie."""
    seed = 3
    path = ":".join([*filter(None, sys.path), "."])
    told = subprocess.run(
        [sys.executable, "-c", TRACE.format(seed=seed)],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert told == f"{run_seed(seed).trace}\n"
