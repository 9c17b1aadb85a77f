"""What only the embedded tree promises: its file."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from barnabas.coordination.local import LocalStore, LocalTree
from barnabas.coordination.tree import EventKind, TreeError, TreeInUse

WRITER = """
import asyncio, sys
from pathlib import Path
from barnabas.coordination.local import LocalStore, LocalTree

async def main():
    tree = LocalTree.open(Path(sys.argv[1]))
    await tree.create("/n")
    await tree.create("/alive", ephemeral=True)
    for number in range(100_000):
        await tree.create(f"/n/{number}", b"x" * 100)
        print(number, flush=True)

asyncio.run(main())
"""


def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    async def write() -> None:
        tree = LocalTree.open(path)
        await tree.create("/a", b"1")
        await tree.set("/a", b"2")
        await tree.create("/e", ephemeral=True)
        await tree.close()

    async def read() -> tuple[bytes, int, bool]:
        tree = LocalTree.open(path)
        data, stat = await tree.get("/a")
        gone = await tree.exists("/e") is None
        await tree.close()
        return data, stat.version, gone

    asyncio.run(write())
    assert asyncio.run(read()) == (b"2", 1, True)


def test_a_second_broker_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    code = "import sys; from pathlib import Path; from barnabas.coordination.local import LocalTree\n"
    code += "LocalTree.open(Path(sys.argv[1]))"
    first = LocalTree.open(path)
    with pytest.raises(TreeInUse, match="in use by another broker"):
        LocalTree.open(path)
    command = [sys.executable, "-c", code, str(path)]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "TreeInUse" in other.stderr
    asyncio.run(first.close())
    asyncio.run(LocalTree.open(path).close())


def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = -1
    for line in writer.stdout:
        acknowledged = int(line)
        if acknowledged >= 50:
            break
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged = max([acknowledged, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    writer.wait()

    async def read() -> list[str]:
        tree = LocalTree.open(path)
        names = await tree.children("/n")
        assert await tree.exists("/alive") is None
        await tree.close()
        return names

    names = {int(name) for name in asyncio.run(read())}
    # One more than acknowledged may be there: it was written, and killed before it could say so.
    assert names in (set(range(acknowledged + 1)), set(range(acknowledged + 2)))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"this is not a database, but a text that is longer than a header" * 50)
    with pytest.raises(TreeError, match="is not a metadata file"):
        LocalTree.open(path)


def test_time_comes_from_outside() -> None:
    async def scenario() -> None:
        now = [1000]
        tree = LocalTree.open(None, now_ms=lambda: now[0])
        await tree.create("/a")
        now[0] = 5000
        stat = await tree.set("/a", b"")
        assert (stat.ctime_ms, stat.mtime_ms) == (1000, 5000)
        await tree.close()

    asyncio.run(scenario())


def test_watchers_are_called_by_the_loop_and_not_inside_the_change() -> None:
    async def scenario() -> None:
        tree = LocalTree.open(None)
        heard: asyncio.Queue[tuple[EventKind, int]] = asyncio.Queue()
        await tree.watch("/", lambda event: heard.put_nowait((event.kind, threading.get_ident())))
        created = tree.create("/a")
        assert heard.empty()
        await created
        assert await heard.get() == (EventKind.CREATED, threading.get_ident())
        await tree.close()

    asyncio.run(scenario())


def test_the_loop_goes_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    async def scenario() -> None:
        tree = LocalTree.open(tmp_path / "metadata.db")
        disk = threading.Event()
        tree._store._thread.submit(disk.wait)
        change, read = asyncio.ensure_future(tree.create("/a")), asyncio.ensure_future(tree.exists("/a"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not change.done()
        disk.set()
        assert await change == "/a"
        assert await read is not None  # asked for after the change, it sees the change
        await tree.close()

    asyncio.run(scenario())


def test_other_users_of_the_machine_cannot_read_the_file(tmp_path: Path) -> None:
    """It holds what passwords are checked against. Files of earlier versions are closed to them too."""
    path, copy = tmp_path / "znodes.sqlite", tmp_path / "copy.sqlite"

    def modes() -> set[int]:
        return {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in tmp_path.iterdir()}

    async def use() -> None:
        tree = LocalTree.open(path)
        await tree.create("/secret", b"x")
        await tree.copy_to([copy])
        assert modes() == {0}
        await tree.close()

    asyncio.run(use())
    path.chmod(0o644)
    asyncio.run(LocalTree.open(path).close())
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_is_replaced_is_overwritten(tmp_path: Path) -> None:
    """It may be a password that is encrypted from now on. Some builds of SQLite do not by themselves."""
    store = LocalStore(tmp_path / "metadata.db")
    try:
        assert store._thread.submit(store._db.execute, "PRAGMA secure_delete").result().fetchone() == (1,)
    finally:
        store.close()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "znodes.sqlite"
    path.mkdir()
    with pytest.raises(TreeError, match=r"znodes\.sqlite: cannot be opened"):
        LocalStore(path)
