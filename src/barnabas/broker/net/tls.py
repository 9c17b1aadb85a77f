"""TLS connections: the handshake before a connection exists, and the transport used by the connection.

OpenSSL never sees the socket. Data from the socket is received in large pieces into a memory buffer from which OpenSSL reads
records; encrypted data is sent from another such buffer. On its own OpenSSL would make two system calls for each record, and
librdkafka writes records of 300 bytes.

The loop advances a handshake as its bytes arrive, so that a stalled peer occupies nothing but its socket, and this only for
a limited time. The first bytes are inspected before OpenSSL sees them, so that a plaintext client on a TLS port can be
reported as such.

A peer that sends tiny records, or TLS messages without data, does not get longer turns than others: RECORDS_MAX and
STEPS_MAX limit each turn.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.broker.net.buffers import CIPHER_BUFFER_BYTES
from barnabas.broker.net.transports import V4_IN_V6, Buffer, traffic_of
from barnabas.security.purposes import NO_CLIENT_AUTH, NO_SERVER_AUTH, UNSUPPORTED, why_not_trusted
from barnabas.storage.files import FileSlice
from barnabas.wire.frame import HTTP_METHODS

log = logging.getLogger("barnabas.listeners")

HANDSHAKE_S_MAX: Final = 15.0
HANDSHAKE_STEP_BYTES: Final = 8 * 1024
# OpenSSL's buffers never shrink while the connection lives.
SEND_STEP_BYTES: Final = 64 * 1024
STEPS_MAX: Final = 4
"""How often one turn of a connection may receive, up to CIPHER_BUFFER_BYTES each time."""
RECORDS_MAX: Final = 1024
"""How many records one turn may decrypt; takes some 3 ms."""
UNSENT_BYTES_MAX: Final = 2 * SEND_STEP_BYTES
HANDSHAKE_RECORD: Final = 0x16
UNTRUSTED: Final = "the client does not trust this broker's certificate (its truststore, ssl.ca.location)"
REASONS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": UNTRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that this broker's certificate has expired",
    UNSUPPORTED: f"the client does not take this broker's certificate for a server's: {NO_SERVER_AUTH}",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and ssl.client.auth=required asks for one",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is refused",
    "UNEXPECTED_EOF_WHILE_READING": "the client closed the connection in the middle of the TLS handshake",
    "NO_SHARED_CIPHER": "client and broker have no cipher suite in common (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "client and broker have no TLS version in common (ssl.enabled.protocols)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "client and broker have no TLS version in common (ssl.enabled.protocols)",
}


class Secured(NamedTuple):
    """A socket that has completed its handshake. unsent: the last bytes of the handshake that it has not accepted yet."""

    sock: socket.socket
    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    unsent: memoryview


class TlsTransport:
    """A TCP socket with TLS; implements `Transport` of net/transports.py."""

    __slots__ = (
        "_cipher", "_ended", "_error", "_incoming", "_outgoing", "_sock", "_tls", "_unsent", "_unsent_plain_bytes", "fd",
        "has_pending", "local_host", "local_port", "peer", "sends_files",
    )  # fmt: skip

    def __init__(self, secured: Secured, cipher: memoryview) -> None:
        """Takes over the socket. cipher: the loop's buffer for receiving. Raises OSError when the peer is gone."""
        self._sock, self._tls, self._incoming, self._outgoing, self._unsent = secured
        peer, local = self._sock.getpeername(), self._sock.getsockname()
        self._cipher = cipher
        self._unsent_plain_bytes = 0
        """How many bytes of the connection's next data are already encrypted, in `_unsent`."""
        self._ended = False
        self._error: OSError | None = None
        self.fd = self._sock.fileno()
        self.peer = f"{peer[0]}:{peer[1]}"
        self.local_host: str = local[0].removeprefix(V4_IN_V6)
        self.local_port: int = local[1]
        self.sends_files = False
        self.has_pending = self._incoming.pending > 0

    # --- reading -------------------------------------------------------------------------------------

    def recv_into(self, buffer: memoryview) -> int:
        """Receive as much as there is, up to the whole buffer and the limits of a turn; 0 at the peer's end."""
        if self._error is not None:
            raise self._error
        filled, records_left, steps_left = 0, RECORDS_MAX, STEPS_MAX
        try:
            while True:
                if self.has_pending:
                    filled, records_left = self._decrypt(buffer, filled, records_left)
                    if self.has_pending:
                        break
                if not steps_left:
                    break
                steps_left -= 1
                received = self._sock.recv_into(self._cipher)
                if not received:
                    return filled  # return the data first: the end is seen again next time
                self._incoming.write(self._cipher[:received])
                self.has_pending = True
                if received < CIPHER_BUFFER_BYTES:
                    steps_left = 0  # the socket is empty, most likely
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._say_why()
            if not filled:
                raise
            self._error, self.has_pending = error, True  # what was received before is handled first
        if self._outgoing.pending:
            self._speak()
        if not filled and not self._ended:
            raise BlockingIOError
        return filled

    def _decrypt(self, buffer: memoryview, filled: int, records_left: int) -> tuple[int, int]:
        """Decrypt what was received into buffer[filled:]; (filled, records left).

        Afterwards has_pending says whether there may be more. Raises OSError for bytes that are not TLS.
        """
        size, received_bytes, before = len(buffer), self._incoming.pending, filled
        read, incoming = self._tls.read, self._incoming
        try:
            while filled < size and records_left:
                wanted = size - filled
                # With a buffer as argument, SSLObject.read returns a count; typeshed knows only the other form.
                got: int = read(wanted, buffer[filled:])  # type: ignore[assignment]
                if not got:
                    self._ended = True
                    return filled, records_left
                filled += got
                records_left -= 1
                if got < wanted and not incoming.pending:  # OpenSSL stops at the end of a record
                    self.has_pending = False
                    return filled, records_left
        except ssl.SSLWantReadError:
            if filled == before and received_bytes >= CIPHER_BUFFER_BYTES:
                raise ConnectionAbortedError(
                    f"the peer sent {received_bytes} bytes of TLS messages that carry no data"
                ) from None
        except OSError as error:
            if filled == before:
                raise
            self._error, self.has_pending = error, True  # what was received before is handled first
            return filled, 0
        self.has_pending = incoming.pending > 0 or self._tls.pending() > 0
        return filled, records_left

    def _speak(self) -> None:
        """Send messages of TLS itself (a key update, an alert), behind the bytes that the socket has not accepted yet.

        The part that the socket does not accept is sent with the connection's next data; nothing waits for it.
        """
        self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        if not self._push() and len(self._unsent) > UNSENT_BYTES_MAX:
            raise ConnectionAbortedError("the peer makes TLS answer, and reads no answers")

    def _say_why(self) -> None:
        """Send the alert that tells the peer why its connection ends, as far as the socket accepts it."""
        try:
            self._speak()
        except OSError:
            pass  # it is gone already

    # --- writing -------------------------------------------------------------------------------------

    def send(self, data: Buffer, flags: int) -> int:
        """Encrypt and send; returns how many bytes of `data` have been sent.

        Encrypted bytes that the socket has not fully accepted are not counted, and the caller must pass the same data again:
        the connection keeps it in order. They are not encrypted a second time.
        """
        view, sent = memoryview(data), 0
        if self._unsent or self._unsent_plain_bytes:
            if not self._push():
                raise BlockingIOError
            sent, self._unsent_plain_bytes = self._unsent_plain_bytes, 0
            assert sent <= len(view), "what was begun to be sent comes again"
        while sent < len(view):
            encrypted, end = sent, min(sent + SEND_STEP_BYTES, len(view))
            while encrypted < end:
                encrypted += self._tls.write(view[encrypted:end])  # one record
            cipher = self._outgoing.read()
            try:
                left = self._sock.send(cipher, flags)
            except (BlockingIOError, InterruptedError):
                left = 0
            if left < len(cipher):
                self._unsent, self._unsent_plain_bytes = memoryview(cipher)[left:], end - sent
                break
            sent = end
        if not sent and len(view):
            raise BlockingIOError
        return sent

    def _push(self) -> bool:
        """Send what is already encrypted; True when all of it was sent."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def send_file(self, part: FileSlice) -> int:
        """Never called, because sends_files is False."""
        raise AssertionError("records pass through this process to be encrypted: sends_files is False")

    def traffic(self) -> tuple[int, int]:
        """See Transport."""
        return traffic_of(self._sock)

    def close(self) -> None:
        """Tell the peer that the connection ends, as far as the socket accepts it, and close."""
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass  # the peer's own close_notify is not waited for
        self._say_why()
        try:
            self._sock.close()
        except OSError:
            pass


class Handshake:
    """An accepted socket that has not finished its handshake: calls `done(self, secured, "")` or `done(self, None, why)`.

    why: empty if the peer closed without sending anything, as port scans and health checks do.
    """

    __slots__ = (
        "_cipher", "_context", "_done", "_incoming", "_loop", "_outgoing", "_sock", "_timer", "_tls", "_unsent", "_writes",
        "begun_s", "host",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        cipher: memoryview,
        done: Callable[[Handshake, Secured | None, str], None],
    ) -> None:
        """Takes over the (non-blocking) socket. Raises OSError when its peer is already gone."""
        self.host: str = sock.getpeername()[0]
        self._sock = sock
        self.begun_s = loop.time()
        self._context = context
        self._loop = loop
        self._cipher = cipher[:HANDSHAKE_STEP_BYTES]
        self._done = done
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._unsent = memoryview(b"")
        self._writes = False
        loop.add_reader(sock.fileno(), self._step)
        self._timer = loop.call_later(
            HANDSHAKE_S_MAX, self.cut, f"the TLS handshake took over {HANDSHAKE_S_MAX:.0f} s"
        )

    def _step(self) -> None:
        """The socket is readable or writable: continue the handshake as far as possible."""
        try:
            if not self._send() or not self._receive():
                return
            assert self._tls is not None
            self._tls.do_handshake()
            self._send()
        except ssl.SSLWantReadError:
            self._go_on()
        except ssl.SSLCertVerificationError as error:
            self.cut(f"{REASONS['CERTIFICATE_VERIFY_FAILED']}: {why_not_trusted(error, NO_CLIENT_AUTH)}")
        except ssl.SSLError as error:
            reason = error.reason or ""
            self.cut(REASONS.get(reason, f"the TLS handshake failed: {reason or 'the peer went away'}"))
        except OSError:
            self.cut("")
        except Exception:
            log.exception("a TLS handshake met a bug", extra={"peer": self.host})
            self.cut("")
        else:
            self._end()
            secured = Secured(self._sock, self._tls, self._incoming, self._outgoing, self._unsent)
            self._done(self, secured, "")

    def _go_on(self) -> None:
        """OpenSSL waits for the peer, which may be waiting for OpenSSL's last message."""
        try:
            self._send()
        except OSError:
            self.cut("")

    def _receive(self) -> bool:
        """Receive a piece for OpenSSL; False if there is none, or none that OpenSSL may see."""
        try:
            received = self._sock.recv_into(self._cipher)
        except (BlockingIOError, InterruptedError):
            return False
        if not received:
            self.cut("" if self._tls is None else REASONS["UNEXPECTED_EOF_WHILE_READING"])
            return False
        if self._tls is None:
            if self._cipher[0] != HANDSHAKE_RECORD:
                came = what_came(bytes(self._cipher[: min(received, 4)]))
                self.cut(f"{came}, and the listener speaks TLS (the client's security.protocol)")
                return False
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(self._cipher[:received])
        return True

    def _send(self) -> bool:
        """Send OpenSSL's messages; True when the socket has accepted all. Raises OSError when the peer is gone."""
        if self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        writes = bool(self._unsent)
        if writes != self._writes:  # do not read from a peer that does not read
            self._writes = writes
            fd = self._sock.fileno()
            if writes:
                self._loop.remove_reader(fd)
                self._loop.add_writer(fd, self._step)
            else:
                self._loop.remove_writer(fd)
                self._loop.add_reader(fd, self._step)
        return not writes

    def _end(self) -> None:
        self._timer.cancel()
        fd = self._sock.fileno()
        if fd >= 0:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)

    def cut(self, why: str) -> None:
        """Close; `done` receives the reason, and the peer an alert if OpenSSL has one."""
        try:
            self._send()
        except OSError:
            pass  # the peer has gone
        self._end()
        self._sock.close()
        self._done(self, None, why)


def what_came(head: bytes) -> str:
    """What the first bytes on a TLS port look like, as the beginning of a sentence for the log."""
    if head in HTTP_METHODS:
        return "this is a plain HTTP request"
    if head[0] == 0:  # the high byte of a request's length
        return "this is a plain Kafka client"
    return "this is not a TLS handshake"
