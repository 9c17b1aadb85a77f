"""The trees that zookeeper-shell works on: a ZooKeeper's, and the one that a single broker keeps in an SQLite file.

While a broker runs, its file is read from a copy and cannot be changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from barnabas.cores.znode_ops import ANY_VERSION, Create, Delete, Op, Set
from barnabas.kafka_tools.failures import ToolError
from barnabas.kafka_tools.zookeeper.nodes import Facts, Refusal, Tree
from barnabas.kafka_tools.zookeeper.served import ZooKeeper

COPY_ATTEMPTS: Final = 20
WAL_HEADER_BYTES: Final = 32
IN_USE: Final = "a broker uses {}, so it can only be read here; stop the broker first, or use kafka-configs and kafka-topics"


T = TypeVar("T")


def open_tree(address: str, tls_file: str | None) -> Tree:
    """The tree at HOST:PORT[/chroot], in a data dir or file, or at a socket. Raises ToolError, OSError."""
    place = Path(address.removeprefix("sqlite:"))
    if address.startswith("sqlite:") or place.exists():
        return _embedded(place)
    return ZooKeeper.connect(address, tls_file)


def _embedded(place: Path) -> Tree:
    from barnabas.broker.cluster.trees import TREE_FILE

    file = place / TREE_FILE if place.is_dir() else place
    if not file.exists():
        raise ToolError(
            f"{file}: there is no such file; give the broker's first log dir, or its ZooKeeper as HOST:PORT"
        )
    return Embedded(file)


class Embedded:
    """The tree of a single broker. Each command opens the file anew, so that a broker may start between commands."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, path: str) -> tuple[bytes | None, Facts]:
        return self._with_store(path, lambda rows: _node(rows, path))

    def children(self, path: str) -> list[str]:
        return self._with_store(path, lambda rows: _children(rows, path))

    def create(self, path: str, data: bytes | None, ephemeral: bool, sequence: bool, acl: str | None) -> str:
        if ephemeral:
            raise Refusal(
                "Ephemeral nodes end with their session, and this file has sessions of brokers only"
            )
        if acl is not None:
            _no_acls()
        (created_path,) = self._change(path, Create(path, data or b"", sequence=sequence))
        return str(created_path)

    def set(self, path: str, data: bytes, version: int) -> Facts:
        self._change(path, Set(path, data, version))
        return self.get(path)[1]

    def delete(self, path: str, version: int) -> None:
        self._change(path, Delete(path, version))

    def get_acl(self, path: str) -> list[tuple[str, str, str]]:
        self.get(path)
        return [("world", "anyone", "cdrwa")]

    def set_acl(self, path: str, acl: str, version: int) -> Facts:
        _no_acls()
        raise AssertionError

    def add_auth(self, scheme: str, credential: str) -> None:
        _no_acls()

    def sync(self, path: str) -> None:
        pass

    def close(self) -> None:
        pass

    def _change(self, path: str, op: Op) -> Sequence[Any]:
        from barnabas.coordination import tree as trees
        from barnabas.coordination.local import LocalTree
        from barnabas.coordination.served import ServedTree

        async def run() -> Sequence[Any]:
            if self._file.is_socket():
                session: trees.ZnodeTree = await ServedTree.open(self._file)
            else:
                session = LocalTree.open(self._file)
            try:
                return await session.multi([op])
            finally:
                await session.close()

        with _refusals(path):
            try:
                return asyncio.run(run())
            except trees.TreeInUse:
                raise ToolError(IN_USE.format(self._file)) from None

    def _with_store(self, path: str, read: Callable[[dict[str, tuple[bytes, Any]]], T]) -> T:
        from barnabas.coordination.served import ServedTree

        async def served() -> dict[str, tuple[bytes, Any]]:
            session = await ServedTree.open(self._file)
            try:
                return await session.subtree("/")
            finally:
                await session.close()

        with _refusals(path):
            rows = asyncio.run(served()) if self._file.is_socket() else read_file(self._file)
        return read(rows)


def _no_acls() -> None:
    raise Refusal(
        "This file has no ACLs: who may read or change it is decided by the permissions of its folder"
    )


def _node(rows: dict[str, tuple[bytes, Any]], path: str) -> tuple[bytes, Facts]:
    if path not in rows:
        raise Refusal(f"Node does not exist: {path}")
    data, stat = rows[path]
    facts = Facts(
        stat.czxid, stat.ctime_ms, stat.mzxid, stat.mtime_ms, None, None, stat.version, None, stat.owner,
        len(data), len(_children(rows, path)),
    )  # fmt: skip
    return data, facts


def _children(rows: dict[str, tuple[bytes, Any]], path: str) -> list[str]:
    if path not in rows:
        raise Refusal(f"Node does not exist: {path}")
    prefix = path.rstrip("/") + "/"
    names = (name[len(prefix) :] for name in rows if name.startswith(prefix) and name != prefix)
    return sorted(name for name in names if "/" not in name)


@contextlib.contextmanager
def _refusals(path: str) -> Iterator[None]:
    from barnabas.coordination import tree as trees

    try:
        yield
    except trees.NoNode:
        raise Refusal(f"Node does not exist: {path}") from None
    except trees.NodeExists:
        raise Refusal(f"Node already exists: {path}") from None
    except trees.NotEmpty:
        raise Refusal(f"Node not empty: {path}") from None
    except trees.BadVersion:
        raise Refusal(f"version No is not valid : {path}") from None
    except trees.TreeInUse:
        raise
    except trees.TreeError as error:
        raise Refusal(str(error)) from None


def read_file(file: Path) -> dict[str, tuple[bytes, Any]]:
    """All nodes of the file, whether a broker has it open or not; the file is left as it is. Raises OSError, ToolError.

    The broker locks the file, so a copy is read: the file and what is written ahead of it. The copy is whole when the
    file and the beginning of the write-ahead log were the same before and after, since the log only grows meanwhile.
    """
    from barnabas.coordination.local import STAT_COLUMNS, require_whole
    from barnabas.coordination.tree import Stat

    ahead = file.with_name(file.name + "-wal")
    with tempfile.TemporaryDirectory(prefix="zookeeper-shell-") as folder:
        copy = Path(folder) / "znodes"
        for _ in range(COPY_ATTEMPTS):
            before = _state(file, ahead)
            shutil.copyfile(file, copy)
            copy.with_name("znodes-wal").unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(ahead, copy.with_name("znodes-wal"))
            if _state(file, ahead) == before:
                break
        else:
            raise ToolError(f"{file} changes all the time; try again")
        try:
            with contextlib.closing(sqlite3.connect(copy)) as db:
                require_whole(db)
                rows = db.execute(f"SELECT path, data, {STAT_COLUMNS} FROM znode ORDER BY path").fetchall()
        except sqlite3.Error as error:
            raise ToolError(f"{file} is not a metadata file of Barnabas: {error}") from None
    return {row[0]: (row[1], Stat._make(row[2:])) for row in rows}


def _state(file: Path, ahead: Path) -> tuple[int, int, bytes]:
    stat = file.stat()
    try:
        with ahead.open("rb") as log:
            header = log.read(WAL_HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return stat.st_size, stat.st_mtime_ns, header


NO_VERSION: Final = ANY_VERSION
