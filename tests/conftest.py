"""Fixtures that every part of the tests may use."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import leftovers
from tests.support.process import BrokerProcess
from tests.support.spread import Spread, arrange, groups_file
from tests.support.zookeeper import ZooKeeperServer, zookeeper_jars

# A busy machine makes no test fail: hypothesis must not judge how long an example takes.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Looking for garbage among a hundred thousand things that stay takes a quarter of the collection of the tests, and later
# minutes of a whole run: see pytest_collection_finish.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="rewrite scenarios and sessions of documents with what is said now",
    )
    parser.addoption(
        "--cluster-seeds", type=int, default=50, help="how many histories tests/sim/cluster runs"
    )
    parser.addoption("--link-seeds", type=int, default=3, help="how many histories tests/sim/links runs")
    parser.addoption("--seeds", type=int, default=75, help="how many histories tests/sim/broker runs")
    parser.addoption(
        "--fault-rounds", type=int, default=50, help="how many faults tests/soak/test_cluster.py brings"
    )
    parser.addoption(
        "--soak-minutes",
        type=float,
        default=20,
        help="how long the faults of tests/soak/test_pipelines.py and tests/connect/test_changes_killed.py go on",
    )
    parser.addoption(
        "--seed", type=int, default=None, help="the one history that tests/sim/broker runs and tells"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Every Java of Spark lives for seconds here: what the optimizing compiler costs is never repaid.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    config.pluginmanager.register(leftovers.SharedProcesses())


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Ends what a test started and left running, and says so among the warnings."""
    before = leftovers.children()
    yield
    for command in leftovers.kill_left_over(before):
        warnings.warn(f"left running by the test, and killed: {command}", stacklevel=1)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called where tests are handed out, for each process of pytest-xdist before it starts."""
    node.workerinput["groups_file"] = str(groups_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return Spread(config, log) if config.getoption("dist") == "load" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        arrange(items, groups_file(config))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker that all tests of the session share; use topics and groups of your own."""
    # Retention looks at nothing meanwhile: many tests write records of times long ago, also through pipelines.
    options = {"log.retention.check.interval.ms": "86400000"}
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", options=options).start()
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


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server that tests share; skips where there is no Java or PySpark."""
    jars = zookeeper_jars()
    if jars is None:
        pytest.skip("needs java, pyspark and kazoo")
    server = ZooKeeperServer(jars, tmp_path_factory.mktemp("zookeeper"))
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture(scope="session")
def zookeeper_address(zookeeper_server: ZooKeeperServer) -> str:
    """host:port of a ZooKeeper server."""
    return zookeeper_server.address


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server that a test may stop, kill and start again."""
    jars = zookeeper_jars()
    if jars is None:
        pytest.skip("needs java, pyspark and kazoo")
    folder = tmp_path / "own-zookeeper"
    folder.mkdir()
    server = ZooKeeperServer(jars, folder)
    try:
        yield server.start()
    finally:
        server.kill()
