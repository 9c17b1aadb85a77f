"""The tree of a real ZooKeeper for zookeeper-shell, through kazoo."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from barnabas.extras import how_to_install
from barnabas.kafka_tools.failures import ToolError
from barnabas.kafka_tools.zookeeper.nodes import Facts, Refusal

CONNECT_SECONDS: Final = 15.0
PERMISSIONS: Final = (("c", 4), ("d", 8), ("r", 1), ("w", 2), ("a", 16))
"""The letters of ZooKeeper's ACLs in the order in which its shell prints them, and their bits."""


class ZooKeeper:
    """A session with a ZooKeeper."""

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self._address = address

    @classmethod
    def connect(cls, address: str, tls_file: str | None) -> ZooKeeper:
        """tls_file: a property file with zookeeper.ssl.* and zookeeper.digest.login. Raises ToolError, OSError."""
        try:
            from kazoo.client import KazooClient
        except ImportError:
            raise ToolError(f"zookeeper-shell needs kazoo: {how_to_install('cluster')}") from None
        from barnabas.broker.cluster.zookeeper_logins import access_from
        from barnabas.config.loader import load
        from barnabas.coordination.zookeeper_access import TlsHandler

        access = access_from(load(Path(tls_file) if tls_file else None))
        handler = TlsHandler(access.tls)
        silent = logging.getLogger("barnabas.zookeeper-shell")
        silent.setLevel(logging.CRITICAL)
        client = KazooClient(
            address, CONNECT_SECONDS, logger=silent, handler=handler, use_ssl=access.tls is not None,
            auth_data=access.auth_data(), sasl_options=access.sasl_options(),
        )  # fmt: skip
        try:
            client.start(CONNECT_SECONDS)
        except handler.timeout_exception:
            client.stop()
            client.close()
            why = f" ({handler.failure})" if handler.failure else ""
            raise ToolError(
                f"no ZooKeeper answers at {address}{why}; start one with `barnabas zookeeper start`. A single broker "
                "needs none: give its data dir instead, `zookeeper-shell DATADIR ls /`"
            ) from None
        return cls(client, address)

    def get(self, path: str) -> tuple[bytes | None, Facts]:
        with self._refusals(path):
            data, stat = self._client.get(path)
        return data, _facts(stat)

    def children(self, path: str) -> list[str]:
        with self._refusals(path):
            return sorted(self._client.get_children(path))

    def create(self, path: str, data: bytes | None, ephemeral: bool, sequence: bool, acl: str | None) -> str:
        entries = None if acl is None else _parse_acl(acl)
        with self._refusals(path):
            created_path = self._client.create_async(path, data, entries, ephemeral, sequence).get()
        return str(created_path)

    def set(self, path: str, data: bytes, version: int) -> Facts:
        with self._refusals(path):
            return _facts(self._client.set(path, data, version))

    def delete(self, path: str, version: int) -> None:
        with self._refusals(path):
            self._client.delete(path, version)

    def get_acl(self, path: str) -> list[tuple[str, str, str]]:
        with self._refusals(path):
            entries, _ = self._client.get_acls(path)
        return [
            (
                entry.id.scheme,
                entry.id.id,
                "".join(letter for letter, bit in PERMISSIONS if entry.perms & bit),
            )
            for entry in entries
        ]

    def set_acl(self, path: str, acl: str, version: int) -> Facts:
        with self._refusals(path):
            return _facts(self._client.set_acls(path, _parse_acl(acl), version))

    def add_auth(self, scheme: str, credential: str) -> None:
        with self._refusals("/"):
            self._client.add_auth(scheme, credential)

    def sync(self, path: str) -> None:
        with self._refusals(path):
            self._client.sync(path)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    @contextlib.contextmanager
    def _refusals(self, path: str) -> Iterator[None]:
        from kazoo import exceptions as errors

        sentences = {
            errors.NoNodeError: f"Node does not exist: {path}",
            errors.NodeExistsError: f"Node already exists: {path}",
            errors.NotEmptyError: f"Node not empty: {path}",
            errors.BadVersionError: f"version No is not valid : {path}",
            errors.NoAuthError: f"Insufficient permission : {path}",
            errors.InvalidACLError: f"Acl is not valid : {path}",
            errors.NoChildrenForEphemeralsError: f"Ephemerals cannot have children: {path}",
            errors.AuthFailedError: "Authentication failed",
        }
        try:
            yield
        except (errors.ConnectionLoss, errors.SessionExpiredError, errors.ConnectionClosedError):
            raise Refusal(f"The connection to ZooKeeper at {self._address} is lost; try again") from None
        except errors.KazooException as error:
            raise Refusal(sentences.get(type(error)) or f"{type(error).__name__}: {path}") from None


def _facts(stat: Any) -> Facts:
    return Facts(
        stat.czxid, stat.ctime, stat.mzxid, stat.mtime, stat.pzxid, stat.cversion, stat.version, stat.aversion,
        stat.ephemeralOwner, stat.dataLength, stat.numChildren,
    )  # fmt: skip


def _parse_acl(text: str) -> list[Any]:
    """`scheme:id:perms,...`; the id may contain colons. Raises Refusal."""
    from kazoo.security import ACL, Id

    bits = dict(PERMISSIONS)
    entries = []
    for item in text.split(","):
        scheme, colon, rest = item.partition(":")
        name, second, letters = rest.rpartition(":")
        if not colon or not second or not set(letters) <= set(bits):
            raise Refusal(f"{item} does not have the form scheme:id:perm, for example world:anyone:cdrwa")
        entries.append(ACL(sum(bits[letter] for letter in set(letters)), Id(scheme, name)))
    return entries
