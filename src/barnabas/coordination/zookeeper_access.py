"""How a session logs in to ZooKeeper, how its connection is encrypted, and the ACLs of its nodes.

ACLs are as with Kafka's zookeeper.set.acl: the session that created a node may do everything with it; everybody may
read it, unless it contains secrets.
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
    """A SASL login. principal: for GSSAPI, whose tickets are in the process's cache; otherwise user and password."""

    mechanism: str
    service: str = "zookeeper"
    username: str | None = None
    password: str | None = None
    principal: str | None = None

    def options(self) -> dict[str, str]:
        """The options in the form that kazoo takes."""
        known = {"username": self.username, "password": self.password, "principal": self.principal}
        present = {name: value for name, value in known.items() if value is not None}
        return {"mechanism": self.mechanism, "service": self.service, **present}


@dataclass(frozen=True, slots=True)
class Access:
    """digest: USER:PASSWORD of ZooKeeper's digest scheme. protect: set ACLs on nodes, as zookeeper.set.acl demands."""

    digest: str | None = None
    sasl: SaslLogin | None = None
    tls: ssl.SSLContext | None = None
    protect: bool = False

    def auth_data(self) -> list[tuple[str, str]]:
        """What kazoo sends on each new connection."""
        return [] if self.digest is None else [("digest", self.digest)]

    def sasl_options(self) -> dict[str, str] | None:
        """The SASL options with which kazoo starts each new connection."""
        return None if self.sasl is None else self.sasl.options()

    def why_refused(self) -> str:
        """What to say, and where to look, when a server does not accept the login."""
        if self.sasl is None:
            return "ZooKeeper refused the login; check zookeeper.digest.login"
        if self.sasl.mechanism == "GSSAPI":
            where = "the principal and its ticket (or keytab) in"
        else:
            where = "user and password in"
        return (
            f"ZooKeeper refused the login; check {where} the Client section of the JAAS file that KAFKA_OPTS names, and "
            "whether the server has logins (authProvider.sasl and a Server section)"
        )

    def acl(self, path: str) -> Sequence[Any]:
        """The ACL for a new node at this path, below the chroot."""
        if not self.protect:
            acl: list[Any] = OPEN_ACL_UNSAFE
        elif any(path == secret or path.startswith(secret + "/") for secret in SECRET_PATHS):
            acl = CREATOR_ALL_ACL
        else:
            acl = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
        return acl


OPEN: Final = Access()
"""No login, no encryption, and nodes that everybody may change: ZooKeeper's own default."""


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler, but with our TLS context. `failure`: why the last connection attempt failed."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.failure: str | None = None
        if tls is not None:
            tls.sslsocket_class = self._noting_socket()

    def _noting_socket(self) -> type[ssl.SSLSocket]:
        """Sockets that note why TLS failed after the handshake: a server may refuse our certificate as late as that."""
        handler = self

        class NotingSocket(ssl.SSLSocket):
            def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
                try:
                    return super().recv(buflen, flags)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    handler.failure = (
                        f"the server said: {(error.reason or str(error)).lower().replace('_', ' ')}"
                    )
                    raise

        return NotingSocket

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
