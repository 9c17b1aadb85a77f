"""Many histories of one broker and its clients; see docs/simulation.md.

`pytest tests/sim/broker --seeds 5000` runs more of them, `--seed 17` one of them again, and prints what happened.
"""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from tests.sim.broker.world import Failed, run_seed

CHUNK = 25


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        count = metafunc.config.getoption("--seeds")
        begins = range(0, count, CHUNK) if one is None else ()
        chunks = [range(begin, min(begin + CHUNK, count)) for begin in begins] or [
            range(one or 0, (one or 0) + 1)
        ]
        names = [f"{c.start}-{c.stop - 1}" if one is None else str(one) for c in chunks]
        metafunc.parametrize("seeds", chunks, ids=names)


def test_seeds(seeds: range, request: pytest.FixtureRequest) -> None:
    """Nothing that clients were promised is broken in any of these histories."""
    failures = []
    for seed in seeds:
        log: list[str] | None = [] if len(seeds) == 1 else None
        try:
            run_seed(seed, log=log)
        except Failed as failed:
            failures.append(str(failed))
        if log is not None:
            print("\n".join(log))
    gc.collect()  # a simulated process leaves files open, in objects that refer to one another
    again = "see one again with: pytest tests/sim/broker --seed N"
    assert not failures, "\n".join([*failures, again])


TRACE = "from tests.sim.broker.world import run_seed; print(run_seed({seed}).trace)"


@pytest.mark.parametrize("seed", [2, 4, 23])
def test_a_seed_gives_the_same_history_in_every_process(seed: int) -> None:
    """Byte for byte, however Python hashes its strings and wherever its objects lie."""
    traces = {
        subprocess.run(
            [sys.executable, "-c", TRACE.format(seed=seed)],
            env={
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": ":".join(path for path in sys.path if path) + ":.",
            },
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert traces == {f"{run_seed(seed).trace}\n"}
