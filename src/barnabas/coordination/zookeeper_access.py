"""How a session logs in to ZooKeeper, how its connection is encrypted, and who may do what with its nodes.

ACLs are those of Kafka's zookeeper.set.acl: the session that made a node may do everything with it, everybody may
read it, except nodes that hold secrets.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

SECRET_PATHS: Final = ("/config/users", "/config/brokers", "/delegation_token", "/cluster/secret")


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A login by SASL. principal: for GSSAPI, whose tickets are in the process's cache; else a user and password."""

    mechanism: str
    service: str = "zookeeper"
    username: str | None = None
    password: str | None = None
    principal: str | None = None

    def options(self) -> dict[str, str]:
        """As kazoo takes them."""
        known = {"username": self.username, "password": self.password, "principal": self.principal}
        given = {name: value for name, value in known.items() if value is not None}
        return {"mechanism": self.mechanism, "service": self.service, **given}


@dataclass(frozen=True, slots=True)
class Access:
    """digest: USER:PASSWORD of ZooKeeper's digest scheme. protect: give nodes ACLs, as zookeeper.set.acl asks for."""

    digest: str | None = None
    sasl: SaslLogin | None = None
    tls: ssl.SSLContext | None = None
    protect: bool = False

    def auth_data(self) -> list[tuple[str, str]]:
        """What kazoo sends on each new connection."""
        return [] if self.digest is None else [("digest", self.digest)]

    def sasl_options(self) -> dict[str, str] | None:
        """What kazoo begins each new connection with."""
        return None if self.sasl is None else self.sasl.options()

    def acl(self, path: str) -> Sequence[Any]:
        """The ACL of a node that is made at this path, below the chroot."""
        if not self.protect:
            acl: list[Any] = OPEN_ACL_UNSAFE
        elif any(path == secret or path.startswith(secret + "/") for secret in SECRET_PATHS):
            acl = CREATOR_ALL_ACL
        else:
            acl = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
        return acl


OPEN: Final = Access()
"""No login, no encryption, nodes that everybody may change: ZooKeeper's own default."""


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's own handler, except that connections use our TLS context. `failure`: why the last one was not made."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.failure: str | None = None

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """Called by kazoo's thread for each attempt. Raises OSError."""
        if self._tls is None:
            return super().create_connection(*args, **options)
        address, timeout_s = options["address"], options["timeout"]
        plain = socket.create_connection(address, timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap_socket(plain, server_hostname=options["hostname"])
        except OSError as error:
            self.failure = getattr(error, "verify_message", None) or str(error)
            plain.close()
            raise
