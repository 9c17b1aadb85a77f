"""Real servers, one per process of the tests and only when a test asks for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.databases import (
    MARIADB,
    MOSQUITTO,
    NO_MARIADB,
    NO_MOSQUITTO,
    NO_POSTGRES,
    POSTGRES,
    MariaDb,
    Mosquitto,
    Postgres,
    new_folder,
)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """With logical replication."""
    if not POSTGRES:
        pytest.skip(NO_POSTGRES)
    folder = new_folder("pg")
    server = Postgres(folder, "wal_level=logical", "max_replication_slots=50", "max_wal_senders=50")
    yield server
    server.stop("immediate")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """With a binary log of rows."""
    if MARIADB is None:
        pytest.skip(NO_MARIADB)
    pytest.importorskip("pymysql")
    folder = new_folder("my")
    server = MariaDb(folder)
    yield server
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Mosquitto]:
    """An MQTT broker."""
    if MOSQUITTO is None:
        pytest.skip(NO_MOSQUITTO)
    folder = new_folder("mq")
    server = Mosquitto(folder)
    yield server
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)
