"""Which znode tree a broker uses: the ZooKeeper ensemble in `zookeeper.connect`, otherwise a file beside its logs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster.zookeeper_logins import access_from
from barnabas.config import broker_zookeeper
from barnabas.coordination.local import LocalTree
from barnabas.coordination.served import SESSION_TIMEOUT_S, ServedTree, TreeServer
from barnabas.coordination.tree import TreeError, TreeInUse, ZnodeTree
from barnabas.extras import how_to_install
from barnabas.security.folder import FIRST_USERS
from barnabas.storage.checkpoints import META_PROPERTIES, MetaProperties, read_meta
from barnabas.storage.dirs.log_dir import LOCK_FILE

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.machine import Machine

TREE_FILE: Final = "znodes.sqlite"
COPY_FILE: Final = "znodes.copy"
FORMAT_FILES: Final = frozenset((META_PROPERTIES, LOCK_FILE, FIRST_USERS))
"""What a log dir contains after `kafka-storage format`, or after a start that was interrupted early."""
WAIT_SHARE: Final = 1.25
SERVER_TICK_S: Final = 3.0


def patience_s(session_timeout_s: float) -> float:
    """How long to wait for the remains of a lost session. Servers may end sessions a tick (2 s by default) late."""
    return session_timeout_s * WAIT_SHARE + SERVER_TICK_S


OpenTree = Callable[[], Awaitable[ZnodeTree]]


def tree_opener(config: BrokerConfig, machine: Machine) -> tuple[OpenTree, float]:
    """(function that opens a session with the configured tree, session time-out in seconds).

    Opening raises TreeError. Raises OSError when ZooKeeper is configured and its client is not installed.
    """
    session_timeout_s = config.get(broker_zookeeper.ZOOKEEPER_SESSION_TIMEOUT_MS) / 1000
    if machine.open_tree is not None:
        return machine.open_tree, session_timeout_s
    hosts = config.get(broker_zookeeper.ZOOKEEPER_CONNECT)
    if hosts:
        return _zookeeper(config, hosts, session_timeout_s), session_timeout_s

    connect = config.get(broker_zookeeper.ZNODES_CONNECT)
    if connect:
        return lambda: ServedTree.open(Path(connect)), SESSION_TIMEOUT_S
    serve = config.get(broker_zookeeper.ZNODES_SERVE)

    async def local() -> ZnodeTree:
        # Nothing is served yet, so blocking the loop is acceptable here.
        path = Path(config.log_dirs[0]) / TREE_FILE
        _require_folder(path.parent)
        _require_not_lost(path, config)
        try:
            tree = LocalTree.open(path, machine.clock.now_ms, machine.new_pool)
        except TreeInUse:
            raise
        except TreeError as error:
            raise TreeError(error.path, f"{error.reason}; {_what_to_do(path, config)}") from error
        if serve:
            await _serve(tree, Path(serve))
        return tree

    return local, session_timeout_s


async def _serve(tree: LocalTree, path: Path) -> None:
    server = TreeServer(tree.store, path)
    try:
        await server.start()
    except OSError as error:
        await tree.close()
        raise TreeError(
            str(path), f"the metadata cannot be served there: {error.strerror or error}"
        ) from None
    tree.call_before_close(server.close)


def copies_of(log_dirs: Sequence[str | Path]) -> list[Path]:
    """Where the copies of the tree are: one in every log dir."""
    return [Path(log_dir) / COPY_FILE for log_dir in log_dirs]


def formatted_cluster_id(config: BrokerConfig) -> str | None:
    """The cluster id that `kafka-storage format` wrote to log dirs that are still unused; otherwise None."""
    if not all(_is_only_formatted(log_dir) for log_dir in config.log_dirs):
        return None
    metas = [_meta_of(log_dir) for log_dir in config.log_dirs]
    ids = {meta.cluster_id for meta in metas if meta is not None}
    return ids.pop() if len(ids) == 1 else None


def _is_only_formatted(log_dir: Path) -> bool:
    """False also for a dir that cannot be read; opening the logs will report it and take it offline."""
    try:
        return {entry.name for entry in log_dir.iterdir()} <= FORMAT_FILES
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _meta_of(log_dir: Path) -> MetaProperties | None:
    """None if the dir is new or cannot be read. Raises CorruptCheckpoint."""
    try:
        return read_meta(str(log_dir))
    except OSError:
        return None


def _require_folder(first: Path) -> None:
    """Raises TreeError when the first log dir cannot hold the tree's file."""
    if not first.is_dir() or not os.access(first, os.R_OK | os.W_OK | os.X_OK):
        reason = "no folder that the broker may read and write" if first.exists() else "cannot be created"
        raise TreeError(
            str(first),
            f"{reason}; the first folder of log.dirs holds the metadata: make it usable, or name another one first",
        )


def _require_not_lost(path: Path, config: BrokerConfig) -> None:
    """Raises TreeError when the log dirs have been used but the tree's file is gone: a new tree would have no topics."""
    if path.exists():
        return
    for log_dir in config.log_dirs:
        meta = _meta_of(log_dir)
        if meta is not None and meta.cluster_id is not None and not _is_only_formatted(log_dir):
            raise TreeError(
                str(path),
                f"is missing, though {log_dir} holds the records of cluster {meta.cluster_id}; {_how_to_restore(config)}",
            )


def _what_to_do(path: Path, config: BrokerConfig) -> str:
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return "let the broker read and write the file"
    return _how_to_restore(config)


def _how_to_restore(config: BrokerConfig) -> str:
    dirs = " ".join(str(log_dir) for log_dir in config.log_dirs)
    return f"restore it with `barnabas recover {dirs}`"


def _zookeeper(config: BrokerConfig, hosts: str, session_timeout_s: float) -> OpenTree:
    if find_spec("kazoo") is None:
        raise OSError(
            "zookeeper.connect is set, and the client for ZooKeeper is not installed; install it with "
            f"{how_to_install('cluster')}"
        )
    access = access_from(config)
    connect_timeout_ms = config.get(broker_zookeeper.ZOOKEEPER_CONNECTION_TIMEOUT_MS)
    connect_timeout_s = session_timeout_s if connect_timeout_ms is None else connect_timeout_ms / 1000

    async def zookeeper() -> ZnodeTree:
        from barnabas.coordination.zookeeper import ZooKeeperTree

        return await ZooKeeperTree.open(
            hosts, session_timeout_s=session_timeout_s, connect_timeout_s=connect_timeout_s, access=access
        )

    return zookeeper
