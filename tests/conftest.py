"""Fixtures that every part of the tests may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.process import BrokerProcess

# A busy machine makes no test fail: hypothesis must not judge how long an example takes.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="rewrite scenario files with what the cores now say"
    )


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker that all tests of the session share; use topics and groups of your own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data").start()
    yield process
    process.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers that a test may kill, restart and configure: `own_broker(**options)`."""
    started: list[BrokerProcess] = []

    def make(data_dir: Path | None = None, **options: str) -> BrokerProcess:
        names = {name.replace("__", "."): value for name, value in options.items()}
        process = BrokerProcess(data_dir or tmp_path / f"data{len(started)}", options=names)
        started.append(process)
        return process.start()

    yield make
    for process in started:
        process.kill()
