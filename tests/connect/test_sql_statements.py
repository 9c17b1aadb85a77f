"""Connectors by statements of SQL, which a worker of Connect in a process of its own runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.sql.connectors import Connectors
from tests.support.process import BrokerProcess, free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


@pytest.fixture
def connectors(broker: BrokerProcess) -> Iterator[Connectors]:
    port = free_port()
    command = [sys.executable, "-m", "barnabas", "connect", "start", "-b", broker.bootstrap]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        yield Connectors(lambda: f"127.0.0.1:{port}")
        process.terminate()


def carried_out(connectors: Connectors, text: str) -> Any:
    (statement,) = read_statements(text)
    if isinstance(statement, s.CreateConnector):
        return connectors.create(statement)
    if isinstance(statement, s.DropConnector):
        return connectors.drop(statement)
    if isinstance(statement, s.DescribeConnector):
        return connectors.describe(statement)
    assert isinstance(statement, s.Show)
    return connectors.plugins(statement) if statement.what == "PLUGINS" else connectors.listing(statement)


def test_a_connector_is_made_shown_and_dropped(connectors: Connectors, tmp_path: Path) -> None:
    kind = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    plugins = carried_out(connectors, "SHOW CONNECTOR PLUGINS")["connectorPlugins"]
    assert kind in {plugin["className"] for plugin in plugins}
    options = f"'connector.class'='{kind}', \"file\"='{tmp_path}/a', topic='sql-lines'"
    make = f"CREATE SOURCE CONNECTOR `sql-files` WITH ({options});"
    info = carried_out(connectors, make)["info"]
    assert (info["name"], info["config"]["file"]) == ("sql-files", f"{tmp_path}/a")
    assert [one["name"] for one in carried_out(connectors, "SHOW SOURCE CONNECTORS;")["connectors"]] == [
        "sql-files"
    ]
    assert carried_out(connectors, "LIST SINK CONNECTORS;")["connectors"] == []
    assert carried_out(connectors, "DESCRIBE CONNECTOR `sql-files`;")["connectorClass"] == kind
    with pytest.raises(SqlError, match="already exists"):
        carried_out(connectors, make)
    again = carried_out(connectors, make.replace("CONNECTOR `", "CONNECTOR IF NOT EXISTS `"))
    assert again["warnings"]
    with pytest.raises(SqlError, match="Connect refuses it: Failed to find any class"):
        carried_out(connectors, "CREATE SINK CONNECTOR b WITH ('connector.class'='no.such', topics='a');")
    carried_out(connectors, "DROP CONNECTOR `sql-files`;")
    with pytest.raises(SqlError, match="there is no connector"):
        carried_out(connectors, "DROP CONNECTOR `sql-files`;")


def test_a_worker_that_is_away() -> None:
    with pytest.raises(SqlError, match="--connect"):
        carried_out(Connectors(lambda: None), "DROP CONNECTOR a;")
    with pytest.raises(SqlError, match="does not answer"):
        carried_out(Connectors(lambda: f"127.0.0.1:{free_port()}"), "DROP CONNECTOR a;")
    assert carried_out(Connectors(lambda: None), "SHOW CONNECTORS;")["warnings"]
