"""Connectors by statements: a server of Kafka Connect's API runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from barnabas.http_client import Address, BadAddress, NoAnswer, ask, without_login
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.sql import answers

SECONDS: Final = 30.0
NOT_FOUND: Final = 404


class Connectors:
    """What the server asks a worker of Connect. Its methods raise SqlError."""

    def __init__(self, address: Callable[[], str | None]) -> None:
        """address: of the worker; None if there is none."""
        self._address = address

    def create(self, statement: s.CreateConnector) -> answers.Answer:
        """Makes a connector; of the same name there may be none."""
        if self._state(statement.name) is not None:
            message = f"Connector {statement.name} already exists"
            if statement.if_not_exists:
                return answers.warned(answers.done(statement.text, message), message)
            raise SqlError(f"{message}: DROP CONNECTOR `{statement.name}` first")
        config = {name: str(value) for name, value in statement.properties.items()}
        info = self._ask("PUT", f"/connectors/{quote(statement.name, safe='')}/config", config)
        return {"@type": "connector_info", "statementText": statement.text, "info": info, "warnings": []}

    def drop(self, statement: s.DropConnector) -> answers.Answer:
        """Ends and removes a connector."""
        if self._state(statement.name) is None:
            if statement.if_exists:
                return answers.done(statement.text, f"Connector '{statement.name}' does not exist.")
            raise SqlError(f"there is no connector {statement.name}; SHOW CONNECTORS lists them")
        self._ask("DELETE", f"/connectors/{quote(statement.name, safe='')}")
        return {
            "@type": "drop_connector",
            "statementText": statement.text,
            "connectorName": statement.name,
            "warnings": [],
        }

    def describe(self, statement: s.DescribeConnector) -> answers.Answer:
        """Class, state and tasks of a connector, and the topics that it has used."""
        state = self._state(statement.name)
        if state is None:
            raise SqlError(f"there is no connector {statement.name}; SHOW CONNECTORS lists them")
        path = f"/connectors/{quote(statement.name, safe='')}"
        info, used = self._ask("GET", path), self._ask("GET", f"{path}/topics")
        return {
            "@type": "connector_description",
            "statementText": statement.text,
            "connectorClass": info["config"].get("connector.class", ""),
            "status": state,
            "sources": [],
            "topics": used.get(statement.name, {}).get("topics", []),
            "warnings": [],
        }

    def listing(self, statement: s.Show) -> answers.Answer:
        """SHOW [SOURCE|SINK] CONNECTORS."""
        if not self._address():
            connectors: Mapping[str, Any] = {}
        else:
            connectors = self._ask("GET", "/connectors?expand=info&expand=status")
        rows = [
            {
                "name": name,
                "type": one["info"]["type"],
                "className": one["info"]["config"].get("connector.class", ""),
                "state": one["status"]["connector"]["state"],
            }
            for name, one in sorted(connectors.items())
            if statement.of in ("", str(one["info"]["type"]).upper())
        ]
        answer = {
            "@type": "connector_list",
            "statementText": statement.text,
            "connectors": rows,
            "warnings": [],
        }
        return answer if self._address() else answers.warned(answer, NONE)

    def plugins(self, statement: s.Show) -> answers.Answer:
        """SHOW CONNECTOR PLUGINS."""
        plugins = self._ask("GET", "/connector-plugins") if self._address() else []
        rows = [
            {"className": one["class"], "type": one["type"], "version": one.get("version")} for one in plugins
        ]
        answer = {
            "@type": "connector_plugins_list",
            "statementText": statement.text,
            "connectorPlugins": rows,
            "warnings": [],
        }
        return answer if self._address() else answers.warned(answer, NONE)

    def _state(self, name: str) -> Any:
        """What a connector and its tasks do; None if there is none of this name."""
        return self._ask("GET", f"/connectors/{quote(name, safe='')}/status", may_lack=True)

    def _ask(self, method: str, path: str, body: Any = None, *, may_lack: bool = False) -> Any:
        url = self._address()
        if not url:
            raise SqlError(NONE)
        url = url if "://" in url else f"http://{url}"
        raw = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if raw is not None else {}
        try:
            answer = ask(Address(url), method, path, raw, headers, timeout_s=SECONDS)
        except BadAddress:
            raise SqlError(
                "--connect is not the address of an HTTP service, like http://localhost:8083"
            ) from None
        except NoAnswer as error:
            raise SqlError(
                f"the worker of Connect at {without_login(url)} does not answer: {error}"
            ) from None
        if answer.status == NOT_FOUND and may_lack:
            return None
        try:
            document = json.loads(answer.body) if answer.body.strip() else None
        except ValueError:
            document = None
        if answer.status >= 400:
            reason = document.get("message") if isinstance(document, dict) else None
            raise SqlError(f"Connect refuses it: {reason or f'status {answer.status}'}")
        return document


NONE: Final = "connectors need a worker of Kafka Connect: start the server with --connect http://HOST:8083"
