"""What only the tree that another process serves must do: live with a process that stops, stands still, or is killed."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest

from barnabas.coordination.local import LocalStore
from barnabas.coordination.served import ServedTree, TreeServer
from barnabas.coordination.tree import ConnectionLost, Event, EventKind, SessionExpired


def test_a_session_ends_with_its_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LocalStore(None)
        server = TreeServer(store, tmp_path / "sock")
        await server.start()
        one, two = await ServedTree.open(tmp_path / "sock"), await ServedTree.open(tmp_path / "sock")
        await one.create("/me", ephemeral=True)
        gone = asyncio.Event()
        await two.watch("/", lambda event: gone.set() if event == Event(EventKind.DELETED, "/me") else None)
        one._writer.transport.abort()  # as when the process is killed
        async with asyncio.timeout(30):
            await gone.wait()
        for task in one._tasks:
            task.cancel()
        await two.close()
        await server.close()
        store.close()

    asyncio.run(scenario())


def test_a_process_that_stands_still_loses_its_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LocalStore(None)
        server = TreeServer(store, tmp_path / "sock", session_timeout_s=0.5)
        await server.start()
        still, other = await ServedTree.open(tmp_path / "sock"), await ServedTree.open(tmp_path / "sock")
        await still.create("/me", ephemeral=True)
        still._tasks[1].cancel()  # no beat comes any more
        safe_until_s = still.safe_until_s
        gone, ended = asyncio.Event(), asyncio.Event()
        await other.watch("/", lambda event: gone.set() if event == Event(EventKind.DELETED, "/me") else None)
        await still.watch("/", lambda event: ended.set() if event.kind is EventKind.EXPIRED else None)
        async with asyncio.timeout(30):
            await gone.wait()
        assert time.monotonic() > safe_until_s  # its holder knew before others could see it
        async with asyncio.timeout(30):
            await ended.wait()
        with pytest.raises(SessionExpired):
            await still.get("/me")
        await other.close()
        await server.close()
        store.close()

    asyncio.run(scenario())


def test_sessions_end_with_the_server_and_a_new_one_takes_its_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        path, store = tmp_path / "sock", LocalStore(None)
        server = TreeServer(store, path)
        await server.start()
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        tree = await ServedTree.open(path)
        heard: asyncio.Queue[EventKind] = asyncio.Queue()
        await tree.watch("/", lambda event: heard.put_nowait(event.kind))
        await server.close()
        assert await heard.get() == EventKind.EXPIRED
        with pytest.raises(SessionExpired):
            await tree.get("/")
        with pytest.raises(ConnectionLost, match=r"did not answer within 0\.2 s"):
            await ServedTree.open(path, connect_timeout_s=0.2)
        path.write_bytes(b"")  # as a killed process leaves its socket behind
        opening = asyncio.ensure_future(ServedTree.open(path))
        again = TreeServer(store, path)
        await again.start()
        tree = await opening
        assert await tree.exists("/") is not None
        await tree.close()
        await again.close()
        store.close()

    asyncio.run(scenario())


def test_nonsense_costs_one_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LocalStore(None)
        server = TreeServer(store, tmp_path / "sock")
        await server.start()
        tree = await ServedTree.open(tmp_path / "sock")
        for nonsense in (
            b"\xff" * 8,
            b"\0\0\0\2{}",
            b"\0\0\0\1x",
            b"\0\0\0\4null",
            b'\0\0\0\x1b{"id":1,"call":"x","arg":[]}',
        ):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "sock")
            writer.write(nonsense)
            writer.write_eof()
            async with asyncio.timeout(30):
                await reader.read()
            writer.close()
        assert await tree.exists("/") is not None
        await tree.close()
        await server.close()
        store.close()

    asyncio.run(scenario())
