"""Connections with TLS: the handshake before there is a connection, and the transport under it afterwards.

A handshake is worked on by the loop as its bytes arrive, so that a peer that stalls holds nothing but its socket, and
that for a bounded time. What a peer sends is looked at before OpenSSL sees it: a plain client on a TLS port is named
as what it is.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from barnabas.broker.net.transports import V4_IN_V6, Buffer
from barnabas.storage.files import FileSlice
from barnabas.wire.frame import HTTP_METHODS

log = logging.getLogger("barnabas.listeners")

HANDSHAKE_S_MAX: Final = 15.0
SEND_STEP_BYTES: Final = 256 * 1024
HANDSHAKE_RECORD: Final = 0x16
UNTRUSTED: Final = "the client does not trust this broker's certificate (its truststore, ssl.ca.location)"
REASONS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": UNTRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that this broker's certificate has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and ssl.client.auth=required asks for one",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is refused",
    "UNEXPECTED_EOF_WHILE_READING": "the client closed the connection in the middle of the TLS handshake",
    "NO_SHARED_CIPHER": "client and broker have no cipher suite in common (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "client and broker have no TLS version in common (ssl.enabled.protocols)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "client and broker have no TLS version in common (ssl.enabled.protocols)",
}


class TlsTransport:
    """A TCP socket with TLS on it; a `Transport` of net/transports.py."""

    __slots__ = ("_sock", "fd", "local_host", "local_port", "peer", "sends_files")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        """Takes over a socket whose handshake is done. Raises OSError when the peer is gone already."""
        peer, local = sock.getpeername(), sock.getsockname()
        self._sock = sock
        self.fd = sock.fileno()
        self.peer = f"{peer[0]}:{peer[1]}"
        self.local_host: str = local[0].removeprefix(V4_IN_V6)
        self.local_port: int = local[1]
        self.sends_files = False

    @property
    def has_pending(self) -> bool:
        """Whether bytes are decrypted already and wait here: the socket does not become readable for them."""
        return self._sock.pending() > 0

    def recv_into(self, buffer: memoryview) -> int:
        """As much as there is, up to the whole buffer; 0 at the peer's end."""
        filled, size = 0, len(buffer)
        while filled < size:
            try:
                received = self._sock.recv_into(buffer[filled:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                if filled:  # what came before is handled first; the error comes again
                    return filled
                raise
            if not received:
                return filled
            filled += received
        if not filled:
            raise BlockingIOError
        return filled

    def send(self, data: Buffer, flags: int) -> int:
        """Encrypt and send; the count of bytes of `data` that have left.

        What OpenSSL has begun to send must come again the same: the connection keeps the rest in its order.
        """
        view, sent = memoryview(data), 0
        while sent < len(view):
            try:
                sent += self._sock.send(view[sent : sent + SEND_STEP_BYTES])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
        if not sent and len(view):
            raise BlockingIOError
        return sent

    def send_file(self, part: FileSlice) -> int:
        raise AssertionError("records pass through this process to be encrypted: sends_files is False")

    def close(self) -> None:
        """Tell the peer that this is the end, as far as the socket takes it, and close."""
        try:
            self._sock.unwrap()
        except (OSError, ValueError):
            pass  # the peer's own farewell is not waited for
        try:
            self._sock.close()
        except OSError:
            pass


class Handshake:
    """One accepted socket that has not finished its handshake. `done(socket, None)` or `done(None, why it failed)`.

    why: empty for a peer that went away without a word, as port scans and health checks do.
    """

    __slots__ = ("_context", "_done", "_loop", "_sock", "_timer", "_tls", "_writes", "begun_s", "host")

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Handshake, ssl.SSLSocket | None, str], None],
    ) -> None:
        """Takes the (non-blocking) socket over. Raises OSError when its peer is gone already."""
        self.host: str = sock.getpeername()[0]
        self._sock = sock
        self.begun_s = loop.time()
        self._context = context
        self._loop = loop
        self._done = done
        self._tls: ssl.SSLSocket | None = None
        self._writes = False
        loop.add_reader(sock.fileno(), self._step)
        self._timer = loop.call_later(
            HANDSHAKE_S_MAX, self.cut, f"the TLS handshake took over {HANDSHAKE_S_MAX:.0f} s"
        )

    def _step(self) -> None:
        """The socket is readable or writable: go on as far as that leads."""
        try:
            if self._tls is None and not self._begin():
                return
            assert self._tls is not None
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(writes=False)
        except ssl.SSLWantWriteError:
            self._watch(writes=True)
        except ssl.SSLCertVerificationError as error:
            self.cut(f"{REASONS['CERTIFICATE_VERIFY_FAILED']}: {error.verify_message}")
        except ssl.SSLError as error:
            reason = error.reason or ""
            self.cut(REASONS.get(reason, f"the TLS handshake failed: {reason or 'the peer went away'}"))
        except OSError:
            self.cut("")
        except Exception:
            log.exception("a TLS handshake met a bug", extra={"peer": self.host})
            self.cut("")
        else:
            tls = self._tls
            self._end()
            self._done(self, tls, "")

    def _begin(self) -> bool:
        """Look at the first byte; whether it begins a handshake, which the TLS socket takes over then."""
        try:
            head = self._sock.recv(4, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if not head:
            self.cut("")
            return False
        if head[0] != HANDSHAKE_RECORD:
            self.cut(f"{what_came(head)}, and the listener speaks TLS (the client's security.protocol)")
            return False
        self._loop.remove_reader(self._sock.fileno())
        self._tls = self._context.wrap_socket(
            self._sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )
        self._loop.add_reader(self._tls.fileno(), self._step)
        return True

    def _watch(self, *, writes: bool) -> None:
        if writes == self._writes:
            return
        self._writes = writes
        assert self._tls is not None
        fd = self._tls.fileno()
        if writes:
            self._loop.add_writer(fd, self._step)
        else:
            self._loop.remove_writer(fd)

    def _end(self) -> None:
        self._timer.cancel()
        fd = (self._tls or self._sock).fileno()
        if fd >= 0:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)

    def cut(self, why: str) -> None:
        """Close; `done` learns why."""
        self._end()
        (self._tls or self._sock).close()
        self._done(self, None, why)


def what_came(head: bytes) -> str:
    """What the first bytes on a TLS port look like, as the beginning of a sentence."""
    if head in HTTP_METHODS:
        return "this is a plain HTTP request"
    if head[0] == 0:  # the high byte of a request's length
        return "this is a plain Kafka client"
    return "this is no TLS handshake"
