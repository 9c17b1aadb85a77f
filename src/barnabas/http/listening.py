"""The address and certificate with which a service listens. Does not import the server itself."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import uvicorn

LISTEN_BACKLOG: Final = 1024


class ServiceError(Exception):
    """A service cannot start; the message says what to do."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. client_ca_file: authorities of the certificates that clients must have; None if they need none.

    knows_itself: clients with the server's own certificate are accepted, too, whoever has signed it.
    """

    certificate_file: str
    key_file: str
    key_password: str | None = field(default=None, repr=False)
    client_ca_file: str | None = None
    knows_itself: bool = False

    def for_uvicorn(self) -> dict[str, Any]:
        """These files as keyword arguments of uvicorn.Config."""
        return {
            "ssl_certfile": self.certificate_file,
            "ssl_keyfile": self.key_file,
            "ssl_keyfile_password": self.key_password,
            "ssl_ca_certs": self.client_ca_file,
            "ssl_cert_reqs": ssl.CERT_REQUIRED if self.client_ca_file else ssl.CERT_NONE,
        }


def parse_listen(text: str) -> tuple[str, int]:
    """HOST:PORT; `:PORT` and `PORT` listen on 127.0.0.1. Raises ServiceError."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ServiceError(f"--listen {text!r} is not HOST:PORT, for example --listen localhost:8081")
    return host.strip("[]") or "127.0.0.1", int(port)


def listen(address: str) -> socket.socket:
    """A listening socket. Raises ServiceError."""
    host, port = parse_listen(address)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = addresses[0]
        return socket.create_server(where[:2], family=family, backlog=LISTEN_BACKLOG)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ServiceError(f"cannot listen on {address}: {reason}; choose another with --listen") from error


def load(config: uvicorn.Config, tls: TlsFiles | None) -> None:
    """Read the certificates of a server's settings. Raises ServiceError."""
    try:
        config.load()
        if tls is not None and tls.client_ca_file is not None and tls.knows_itself and config.ssl is not None:
            _let_itself_in(config.ssl, tls.certificate_file)
    except OSError as error:  # includes ssl.SSLError
        if tls is None:
            raise
        names = [name for name in (tls.certificate_file, tls.key_file, tls.client_ca_file) if name]
        files = ", ".join(dict.fromkeys(names))
        raise ServiceError(f"TLS files cannot be loaded ({files}): {error}") from error


def _let_itself_in(context: ssl.SSLContext, file: str) -> None:
    """Trust the first certificate of a file, but not its authorities, which also issue certificates to others."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    _, _, rest = Path(file).read_text(errors="replace").partition(begin)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=f"{begin}{rest.partition(end)[0]}{end}\n")
