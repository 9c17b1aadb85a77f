"""Histories of three brokers on one tree; see docs/simulation.md.

`pytest tests/sim/cluster --cluster-seeds 500` runs more of them, `--seed 17` one of them again, and prints what happened.
"""

from __future__ import annotations

import pytest

from tests.sim.cluster.world import Failed, run_seed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        count = metafunc.config.getoption("--cluster-seeds")
        metafunc.parametrize("seed", range(count) if one is None else [one])


def test_replication(seed: int, request: pytest.FixtureRequest) -> None:
    """Nothing acknowledged is lost, logs agree below their high watermarks, one broker leads in each epoch."""
    log: list[str] | None = None if request.config.getoption("--seed") is None else []
    try:
        run_seed(seed, log=log)
    except Failed as failed:
        pytest.fail(f"{failed}\nsee it again with: pytest tests/sim/cluster --seed {seed}")
    finally:
        if log is not None:
            print("\n".join(log))
