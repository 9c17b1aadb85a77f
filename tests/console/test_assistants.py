"""Assistants: the tools of `/mcp` and of `barnabas mcp`, called with the protocol's own client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client

import requests
from barnabas.console.pages import PAGES
from tests.console.conftest import WAIT_S, ConsoleProcess, running

ROLES = "anna admin\nben read local *\ncarl read other\n"
USERS = ("anna", "ben", "carl")


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The file of users, and their passwords."""
    folder = tmp_path_factory.mktemp("assistants") / "made"
    command = [sys.executable, "-m", "barnabas", "security", "init", str(folder)]
    for user in USERS:
        command += ["--user", user]
    subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
    passwords_by_user = {}
    for user in USERS:
        text = "".join(p.read_text() for p in (folder / "clients" / user).glob("*") if p.suffix != ".pem")
        passwords_by_user[user] = text.split("sasl.password=", 1)[1].splitlines()[0]
    return folder / "users.properties", passwords_by_user


@pytest.fixture(scope="module")
def changing(
    bootstrap: str, passwords: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("changing")
    (folder / "roles").write_text(ROLES)
    (folder / "masks").write_text("told-* value.secret hide admin\n")
    options = ["--users", str(passwords[0]), "--roles", str(folder / "roles")]
    options += ["--masks", str(folder / "masks"), "--mcp", "change", "--audit-topic", "told-audit"]
    with running(bootstrap, folder / "log", *options) as console:
        yield console


class Told(Exception):
    """A tool has refused."""


class Assistant:
    """What an assistant's client does."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> dict[str, types.Tool]:
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}

    async def ask(self, tool: str, **arguments: Any) -> Any:
        """What a tool answers. Raises Told."""
        answer = await self.client.call_tool(tool, arguments)
        (content,) = answer.content
        assert isinstance(content, types.TextContent)
        if answer.is_error:
            raise Told(content.text)
        return json.loads(content.text)


@asynccontextmanager
async def over_http(console: ConsoleProcess, user: str, password: str) -> AsyncIterator[Assistant]:
    async with (
        httpx2.AsyncClient(auth=(user, password), timeout=WAIT_S) as http,
        Client(streamable_http_client(f"{console.url}/mcp", http_client=http)) as client,
    ):
        yield Assistant(client)


@asynccontextmanager
async def over_streams(bootstrap: str, *options: str) -> AsyncIterator[Assistant]:
    command = ["-m", "barnabas", "mcp", "-b", bootstrap, *options]
    async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
        yield Assistant(client)


def test_over_http_roles_masks_and_the_audit_are_those_of_the_user(
    changing: ConsoleProcess, passwords: tuple[Path, dict[str, str]]
) -> None:
    async def work() -> None:
        async with over_http(changing, "anna", passwords[1]["anna"]) as anna:
            tools = await anna.tools()
            assert len(tools) == 1 + len(PAGES) + sum(len(page.actions) for page in PAGES)
            assert tools["get_topics"].annotations.read_only_hint  # type: ignore[union-attr]
            assert tools["post_topics_topic_delete"].annotations.destructive_hint  # type: ignore[union-attr]
            created = await anna.ask("post_topics", fields={"name": "told-1", "partitions": 2})
            assert created["topic"] == "told-1"
            value = {"id": 1, "secret": "4711"}
            await anna.ask("post_topics_topic_produce", topic="told-1", fields={"value": value})
            shown = await anna.ask("get_topics_topic_records", topic="told-1", fields={"filter": "id = 1"})
            assert "4711" in json.dumps(shown)
            with pytest.raises(Told, match="type told-1 to confirm"):
                await anna.ask("post_topics_topic_delete", topic="told-1", fields={"confirm": "told"})
        async with over_http(changing, "ben", passwords[1]["ben"]) as ben:
            shown = await ben.ask("get_topics_topic_records", topic="told-1")
            assert (len(shown["records"]), "4711" in json.dumps(shown)) == (1, False)
            with pytest.raises(Told, match="ben may not do this: it needs the role operate"):
                await ben.ask("post_topics_topic_produce", topic="told-1", fields={"value": "x"})
        async with over_http(changing, "carl", passwords[1]["carl"]) as carl:
            assert await carl.ask("get_clusters") == {"clusters": []}
            with pytest.raises(Told, match="needs cluster"):
                await carl.ask("get_topics")
            with pytest.raises(Told, match="There is no cluster local here"):
                await carl.ask("get_topics", cluster="local")
        async with over_http(changing, "anna", passwords[1]["anna"]) as anna:
            audit = await anna.ask("get_topics_topic_records", topic="told-audit", fields={"limit": 50})
            assert "'ben'" not in json.dumps(audit)
            assert "told-1" in json.dumps(audit)

    asyncio.run(work())


def test_without_a_login_or_from_another_site_nothing_is_told(
    changing: ConsoleProcess, console: ConsoleProcess, passwords: tuple[Path, dict[str, str]]
) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"accept": "application/json, text/event-stream"}
    url = f"{changing.url}/mcp"
    login = ("anna", passwords[1]["anna"])

    def status(auth: tuple[str, str] | None, **more: str) -> int:
        sent = requests.post(url, json=body, headers={**headers, **more}, auth=auth, timeout=WAIT_S)
        return sent.status_code

    assert status(login) == 200
    assert status(None) == 401
    assert status(("anna", "wrong")) == 401
    assert status(login, origin="https://evil.example") == 403
    assert requests.get(url, auth=login, timeout=WAIT_S).status_code == 405
    form = requests.post(url, data="x", auth=login, headers={"content-type": "text/plain"}, timeout=WAIT_S)
    assert form.status_code == 415
    without = requests.post(f"{console.url}/mcp", json=body, headers=headers, timeout=WAIT_S)
    assert without.status_code == 404


def test_over_streams_nothing_can_be_changed_unless_that_was_asked_for(
    bootstrap: str, console: ConsoleProcess, tmp_path: Path
) -> None:
    console.post("/topics", {"name": "streamed", "partitions": 3})
    roles = tmp_path / "roles"
    roles.write_text(ROLES)

    async def work() -> None:
        async with over_streams(bootstrap) as reader:
            tools = await reader.tools()
            assert all(tool.annotations.read_only_hint for tool in tools.values())  # type: ignore[union-attr]
            assert "post_topics_topic_delete" not in tools
            assert "post_groups_group_reset" in tools, "a preview changes nothing"
            topic = await reader.ask("get_topics_topic", topic="streamed")
            assert len(topic["partitions"]) == 3
            with pytest.raises(Told, match="there is no tool"):
                await reader.ask("post_topics_topic_delete", topic="streamed")
            with pytest.raises(Told, match="needs topic"):
                await reader.ask("get_topics_topic")
            with pytest.raises(Told, match="given in `fields`"):
                await reader.ask("get_topics", search="x")
            with pytest.raises(Told, match="no topic"):
                await reader.ask("get_topics_topic", topic="../groups")
        async with over_streams(bootstrap, "--may", "change", "--roles", str(roles), "--as", "ben") as ben:
            with pytest.raises(Told, match="needs the role admin"):
                await ben.ask("post_topics_topic_delete", topic="streamed", fields={"confirm": "streamed"})

    asyncio.run(work())
