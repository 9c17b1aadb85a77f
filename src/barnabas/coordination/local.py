"""The embedded znode tree: one SQLite file in this process.

Each change is one transaction with the write-ahead log forced to disk (synchronous=FULL), so what was
acknowledged survives a power cut and what was not leaves no trace. Every call runs in the store's own
thread, one after the other: the event loop never waits for SQLite or for the disk, and a read that was asked for
after a change sees that change.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from barnabas.coordination.tree import (
    BadVersion,
    EphemeralParent,
    Event,
    EventKind,
    NodeExists,
    NoNode,
    NotEmpty,
    Result,
    SessionExpired,
    Stat,
    TreeError,
    TreeInUse,
    Watcher,
    ZnodeTree,
    check_multi,
    check_path,
)
from barnabas.cores.znode_ops import ANY_VERSION, Check, Create, Delete, Op, Set, parent_of

SCHEMA_VERSION: Final = 1
SCHEMA: Final = """
CREATE TABLE znode (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    czxid INTEGER NOT NULL,
    mzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL,
    mtime_ms INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX znode_parent ON znode (parent);
CREATE INDEX znode_owner ON znode (owner) WHERE owner != 0;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('zxid', 0), ('session', 0);
INSERT INTO znode VALUES ('/', '', x'', 0, 0, 0, 0, 0, 0, 0);
"""
STAT_COLUMNS: Final = "version, czxid, mzxid, ctime_ms, mtime_ms, owner"


P = ParamSpec("P")
T = TypeVar("T")
Tree = TypeVar("Tree", bound="LocalTree")
NewPool = Callable[[int, str], Executor]


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def keep_private(path: Path) -> None:
    """Create an empty file unless there is one, which other users of the machine cannot read, nor the files beside it.

    It contains what passwords are checked against. SQLite gives its journal the permissions of the file.
    """
    # Never open an existing file: when this process closes it, all its locks on the file are gone, also SQLite's.
    with contextlib.suppress(OSError):  # it is there, or SQLite says what is wrong
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for file in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        with contextlib.suppress(OSError):
            mode = stat.S_IMODE(file.stat().st_mode)
            if mode & 0o007:
                file.chmod(mode & ~0o007)


class LocalStore:
    """The file, shared by the sessions of this process (a broker has one; tests and simulations more)."""

    def __init__(
        self,
        path: Path | None,
        now_ms: Callable[[], int] = wall_clock_ms,
        new_pool: NewPool = ThreadPoolExecutor,
    ) -> None:
        """path: the file, made when missing; None keeps the tree in memory. new_pool: makes the store's thread.

        Raises TreeInUse when another process, or another store in this one, has it open;
        TreeError when it is not such a file.
        """
        self._now_ms = now_ms
        self._name = str(path) if path is not None else ":memory:"
        self._sessions: dict[int, LocalTree] = {}
        self._thread = new_pool(1, "znodes")
        self._copied_zxid = -1
        if path is not None:
            keep_private(path)
        try:
            self._db = sqlite3.connect(self._name, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise TreeError(self._name, f"cannot be opened: {error}") from None
        try:
            self._open()
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" in str(error):
                raise TreeInUse(
                    self._name, "in use by another broker; stop it or choose another folder"
                ) from None
            raise TreeError(self._name, f"cannot be opened: {error}") from None
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise TreeError(self._name, f"is not a metadata file of Barnabas: {error}") from None

    def _open(self) -> None:
        # Exclusive locking keeps the lock from the first transaction to close: a second broker cannot
        # begin on the same file, and no shared-memory file is needed.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")  # what was replaced may be a password
        self._db.execute("BEGIN IMMEDIATE")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise sqlite3.DatabaseError(
                f"written by a newer version (schema {version}, known {SCHEMA_VERSION})"
            )
        if version > 0:
            require_whole(self._db)
        if version == 0:
            for statement in SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # Whoever owned these is dead: we hold the file now.
        self._db.execute("DELETE FROM znode WHERE owner != 0")
        self._db.execute("COMMIT")

    # --- called by any thread --------------------------------------------------------------------------

    def session(self) -> LocalTree:
        """A new session. Waits for the file."""
        return self.adopt(lambda session_id: LocalTree(self, session_id))

    def adopt(self, make: Callable[[int], Tree]) -> Tree:
        """A new session, whose tree `make` returns, given its number. Waits for the file."""
        tree = make(self._thread.submit(self._begin_session).result())
        self._sessions[tree.session_id] = tree
        return tree

    def expire(self, session_id: int) -> None:
        """End a session as if its holder had been silent for too long. Waits for the file."""
        tree = self._sessions[session_id]
        self._thread.submit(self.end, session_id).result()
        tree.deliver([Event(EventKind.EXPIRED)])

    def close(self) -> None:
        """End all sessions and release the file. Waits for it; harmless when it was closed before."""
        with contextlib.suppress(RuntimeError):  # the thread has ended
            self._thread.submit(self.end_all).result()
        self._thread.shutdown()

    async def call(self, session_id: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function`, called in the store's thread. Raises SessionExpired, TreeError."""
        self.require_session(session_id)
        try:
            called = self._thread.submit(lambda: self._checked(lambda: function(*args, **kwargs)))
        except RuntimeError:
            raise SessionExpired("session", "the file is closed") from None
        return await asyncio.wrap_future(called)

    def require_session(self, session_id: int) -> None:
        """Raises SessionExpired when the session has ended."""
        if session_id not in self._sessions:
            raise SessionExpired("session", f"session {session_id} has ended")

    # --- called by the store's thread ------------------------------------------------------------------

    def _checked(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except sqlite3.Error as error:
            raise TreeError(self._name, f"cannot be read: {error}") from error

    def copy_to(self, paths: Sequence[Path]) -> bool:
        """Put a copy of the tree to each path, unless nothing has changed since the last time; False when so.

        A copy is written beside, checked and synced, then renamed. Raises OSError, TreeError.
        """
        (zxid,) = self._db.execute("SELECT value FROM counter WHERE name = 'zxid'").fetchone()
        if zxid == self._copied_zxid:
            return False
        failed: list[OSError | sqlite3.Error] = []
        for path in paths:
            try:
                self._copy(path)
            except (OSError, sqlite3.Error) as error:  # a dir that is away keeps no other from its copy
                failed.append(error)
        self._copied_zxid = zxid
        if failed:
            raise failed[0]
        return True

    def _copy(self, path: Path) -> None:
        fresh = path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(str(fresh))
        keep_private(fresh)
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as copy:
            self._db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, whatever happens to it next
            require_whole(copy)
        sync_file(fresh)
        os.replace(str(fresh), str(path))
        sync_file(path.parent)

    def _begin_session(self) -> int:
        with self._transaction():
            return self._count("session")

    def end(self, session_id: int) -> None:
        """End a session: its ephemeral nodes go. Harmless when it has ended before."""
        if self._sessions.pop(session_id, None) is None:
            return
        rows = self._db.execute(
            "SELECT path FROM znode WHERE owner = ? ORDER BY path", (session_id,)
        ).fetchall()
        if rows:
            self.apply([Delete(path) for (path,) in rows], 0)

    def end_all(self) -> None:
        """End all sessions and close the file."""
        for session_id in list(self._sessions):
            # On a full disk nothing can be deleted; whoever opens the file next removes what is left.
            with contextlib.suppress(TreeError):
                self.end(session_id)
        self._db.close()

    def row(self, path: str) -> tuple[bytes, Stat] | None:
        """Data and stat of a node, or None."""
        row = self._db.execute(f"SELECT data, {STAT_COLUMNS} FROM znode WHERE path = ?", (path,)).fetchone()
        return None if row is None else (row[0], Stat._make(row[1:]))

    def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted. Raises NoNode."""
        if self.row(path) is None:
            raise NoNode(path, "no such node")
        rows = self._db.execute("SELECT path FROM znode WHERE parent = ? ORDER BY path", (path,))
        return [child.rpartition("/")[2] for (child,) in rows]

    def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        """A node and all below it, by path, parents first."""
        prefix = path.rstrip("/")
        # "0" is the character after "/": the range holds exactly the paths that begin with prefix + "/".
        rows = self._db.execute(
            f"SELECT path, data, {STAT_COLUMNS} FROM znode"
            " WHERE path = ? OR (path > ? AND path < ?) ORDER BY path",
            (path, prefix + "/", prefix + "0"),
        )
        return {row[0]: (row[1], Stat._make(row[2:])) for row in rows}

    def apply(self, ops: Sequence[Op], session_id: int) -> list[Result]:
        """Apply all changes or none, and notify the watchers. Raises TreeError."""
        events: list[Event] = []
        with self._transaction():
            zxid = self._count("zxid")
            results = [self._apply_one(op, session_id, zxid, events) for op in ops]
        if events:
            for tree in list(self._sessions.values()):
                tree.deliver(events)
        return results

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing. Raises TreeError when the file cannot be written."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise TreeError(self._name, f"cannot be written: {error}") from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # SQLite has ended it itself after some errors, a full disk for one
            self._db.execute("ROLLBACK")

    def _count(self, name: str) -> int:
        row = self._db.execute(
            "UPDATE counter SET value = value + 1 WHERE name = ? RETURNING value", (name,)
        ).fetchone()
        value: int = row[0]
        return value

    def _apply_one(self, op: Op, session_id: int, zxid: int, events: list[Event]) -> Result:
        if isinstance(op, Create):
            path = self._create(op, session_id, zxid)
            events.append(Event(EventKind.CREATED, path))
            return path
        stat = self._require(op.path, op.version)
        if isinstance(op, Check):
            return None
        if isinstance(op, Set):
            now_ms = self._now_ms()
            self._db.execute(
                "UPDATE znode SET data = ?, version = version + 1, mzxid = ?, mtime_ms = ? WHERE path = ?",
                (op.data, zxid, now_ms, op.path),
            )
            events.append(Event(EventKind.CHANGED, op.path))
            return stat._replace(version=stat.version + 1, mzxid=zxid, mtime_ms=now_ms)
        if self._db.execute("SELECT 1 FROM znode WHERE parent = ? LIMIT 1", (op.path,)).fetchone():
            raise NotEmpty(op.path, "has children")
        self._db.execute("DELETE FROM znode WHERE path = ?", (op.path,))
        events.append(Event(EventKind.DELETED, op.path))
        return None

    def _create(self, op: Create, session_id: int, zxid: int) -> str:
        check_path(op.path)
        parent = parent_of(op.path)
        row = self._db.execute("SELECT owner, next_sequence FROM znode WHERE path = ?", (parent,)).fetchone()
        if row is None:
            raise NoNode(op.path, f"its parent {parent} does not exist")
        if row[0]:
            raise EphemeralParent(op.path, f"its parent {parent} is ephemeral")
        path = op.path
        if op.sequence:
            path = f"{path}{row[1]:010d}"
            self._db.execute("UPDATE znode SET next_sequence = next_sequence + 1 WHERE path = ?", (parent,))
        owner = session_id if op.ephemeral else 0
        now_ms = self._now_ms()
        try:
            self._db.execute(
                "INSERT INTO znode VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, 0)",
                (path, parent, op.data, zxid, zxid, now_ms, now_ms, owner),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path, "exists already") from None
        return path

    def _require(self, path: str, version: int) -> Stat:
        row = self.row(path)
        if row is None:
            raise NoNode(path, "no such node")
        if version not in (ANY_VERSION, row[1].version):
            raise BadVersion(path, f"is in version {row[1].version}, not {version}")
        return row[1]


def require_whole(db: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError when pages of the file are damaged."""
    complaints = [row[0] for row in db.execute("PRAGMA quick_check(1)")]
    if complaints != ["ok"]:
        raise sqlite3.DatabaseError(f"damaged: {' '.join(complaints[0].split())}")


def sync_file(path: Path) -> None:
    """Force a file, or a folder's names, to disk. Raises OSError."""
    fd = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class LocalTree(ZnodeTree):
    """One session with a LocalStore."""

    def __init__(self, store: LocalStore, session_id: int) -> None:
        self._store = store
        self._session_id = session_id
        self._watchers: list[tuple[str, Watcher]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owns_store = False
        self._before_close: list[Callable[[], Awaitable[None]]] = []

    @classmethod
    def open(
        cls,
        path: Path | None,
        now_ms: Callable[[], int] = wall_clock_ms,
        new_pool: NewPool = ThreadPoolExecutor,
    ) -> LocalTree:
        """A session with a store of its own, closed with it. Raises TreeInUse, TreeError."""
        tree = LocalStore(path, now_ms, new_pool).session()
        tree._owns_store = True
        return tree

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str) -> tuple[bytes, Stat]:
        check_path(path)
        row = await self._store.call(self._session_id, self._store.row, path)
        if row is None:
            raise NoNode(path, "no such node")
        return row

    async def exists(self, path: str) -> Stat | None:
        check_path(path)
        row = await self._store.call(self._session_id, self._store.row, path)
        return None if row is None else row[1]

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return await self._store.call(self._session_id, self._store.children, path)

    async def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        check_path(path)
        return await self._store.call(self._session_id, self._store.subtree, path)

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        self._store.require_session(self._session_id)
        if not ops:
            return []
        check_multi(ops)
        return await self._store.call(self._session_id, self._store.apply, ops, self._session_id)

    async def copy_to(self, paths: Sequence[Path]) -> bool:
        """Put a copy of the whole tree to each path; False when nothing has changed since the last time.

        Raises OSError, TreeError.
        """
        return await self._store.call(self._session_id, self._store.copy_to, paths)

    async def watch(self, path: str, watcher: Watcher) -> Callable[[], None]:
        check_path(path)
        self._store.require_session(self._session_id)
        self._loop = asyncio.get_running_loop()
        entry = (path.rstrip("/"), watcher)
        self._watchers.append(entry)

        def end() -> None:
            if entry in self._watchers:
                self._watchers.remove(entry)

        return end

    def deliver(self, events: Sequence[Event]) -> None:
        """Hand events to the watchers that they concern, on their event loop. Any thread."""
        loop = self._loop
        if loop is not None and self._watchers and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop closes just now
                loop.call_soon_threadsafe(self._hand_over, events)

    def _hand_over(self, events: Sequence[Event]) -> None:
        for event in events:
            for entry in list(self._watchers):
                prefix = entry[0]
                if not event.path or event.path == prefix or event.path.startswith(prefix + "/"):
                    entry[1](event)

    @property
    def store(self) -> LocalStore:
        """The file that this is a session with."""
        return self._store

    def call_before_close(self, function: Callable[[], Awaitable[None]]) -> None:
        """What uses the same file ends before it is closed."""
        self._before_close.append(function)

    async def close(self) -> None:
        self._watchers.clear()
        while self._before_close:
            await self._before_close.pop()()
        loop = asyncio.get_running_loop()
        if self._owns_store:
            await loop.run_in_executor(None, self._store.close)
        else:
            with contextlib.suppress(SessionExpired):
                await self._store.call(self._session_id, self._store.end, self._session_id)
