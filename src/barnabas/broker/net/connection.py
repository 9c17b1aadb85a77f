"""One client connection: bytes in, frames to the frame handler, responses out in order, back-pressure.

The transport is a non-blocking socket, watched by the loop. All connections of a loop share one receive buffer: a
frame is fully handled before the next read, so nothing may keep a view of it (see docs/INVARIANTS.md, "the receive
buffer is borrowed"). An incomplete frame is carried over to the next read; a frame larger than the shared buffer is
received straight into a buffer of its own size.

While a request waits for its answer (a long poll, a join), or while the peer does not read its responses, no
further request of this connection is started: this keeps responses in order and bounds memory. Only requests that the
handler lets overlap (produce requests that wait for followers) are started meanwhile, and answered in order (owed.py). For
the same reason, and to be fair to other connections, at most `ANSWERS_QUEUED_MAX` parts of answers are queued before they
are written.

A peer that closes its connection, or no longer reads, has its whole requests handled that are here by then: a producer with
acks=0 closes as soon as its last records are on their way.

Every entry point from the loop (readable, writable, flush, go on, a sender's report) ends in `fail` when something raises:
the connection closes with one line in the log, and other connections are not affected.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import struct
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from barnabas.broker.net.buffers import SHARED_BUFFER_BYTES
from barnabas.broker.net.outgoing import Outgoing, Part
from barnabas.broker.net.owed import Owed, OwedAnswers
from barnabas.broker.net.shared import Shared
from barnabas.broker.net.transports import ANSWERS_QUEUED_MAX, Transport
from barnabas.runtime.timing import Timing, begin_sending, now_us, settle
from barnabas.storage.files import FileSlice
from barnabas.wire.frame import what_begins

log = logging.getLogger("barnabas.connection")

PEER_IS_GONE: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT})
INT32: Final = struct.Struct(">i")
KEY_BYTES: Final = 2


class FrameHandler(Protocol):
    """Receives a connection's frames: the dispatcher, or a gate."""

    def on_frames(self, connection: Connection, buffer: memoryview, end: int) -> int:
        """Handle frames at the beginning of buffer[:end], at most `ANSWERS_QUEUED_MAX`; returns where the first one begins
        that was left to `on_frame`: 0 for a handler that has no quicker way."""

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request, and call `respond` now or later. `frame` is overwritten after this call returns."""

    def may_overlap(self, frame: memoryview) -> bool:
        """Whether a request that begins so may be handled while answers to earlier ones are owed (`Connection.owe`)."""


class Gate(FrameHandler, Protocol):
    """A frame handler that lets no request pass without a login."""

    def welcome(self, connection: Connection) -> None:
        """Called once, before anything is read from the connection."""

    def awaits(self, connection: Connection) -> bool:
        """Whether nobody has logged in on it yet."""


_SERIALS: Final = itertools.count(1)


def _reason(error: OSError) -> str | None:
    """What to log about a connection that ended with this error: nothing, if its peer has gone."""
    return None if error.errno in PEER_IS_GONE else str(error)


class Connection(Outgoing):
    """State of one accepted socket. Owned by its loop; never touched from another thread."""

    __slots__ = (
        "_closing", "_ended", "_holds", "_keeps_room", "_large", "_large_bytes", "_loop", "_on_closed",
        "_owed", "_paused", "_reads_soon", "_recv_into", "_room_bytes", "_room_wanted", "_to_flush",
        "_waiting", "api_versions", "carry", "client_id", "client_software", "closed", "connected_s",
        "frame_bytes_max", "handler", "is_writer_armed", "kept", "last_active_s", "listener", "parked", "principal",
        "request_name", "rights", "sasl", "serial", "since_us", "timings",
    )  # fmt: skip

    def __init__(self, transport: Transport, listener: str, handler: FrameHandler, shared: Shared) -> None:
        super().__init__(transport, shared)
        self._recv_into = transport.recv_into
        self._loop = shared.turn.loop
        self._to_flush = shared.turn.to_flush
        self.handler = handler
        self.listener = listener
        self.serial = next(_SERIALS)
        """Sequence number: grows with each accepted connection."""
        self.client_id: str | None = None
        self.client_software = ("", "")
        self.api_versions: dict[int, int] = {}
        """The last version used of each API key."""
        self.principal = "User:ANONYMOUS"
        self.request_name = ""
        """The API of the current request, for the audit log; only set when there is an authorizer."""
        self.rights: dict[Any, bool] = {}
        """The authorizer's cached decisions for this peer."""
        self.parked: Any = None
        """The fetch that waits for records, if the current request is one (partitions/fetching.py)."""
        self.sasl: Any = None
        """The login state of the peer; None on listeners without a login."""
        self.frame_bytes_max = shared.request_bytes_max
        self.timings: list[Timing] = []
        """The requests whose answers are queued, as far as they are measured."""
        self.since_us = 0
        """Since when requests wait to be handled, because one before them waits for its answer; 0 while none does."""
        self.kept: Any = None
        """Belongs to the frame handler; not used here."""
        self.closed = False
        self.connected_s = self.last_active_s = self._loop.time()
        self._on_closed: dict[Hashable, Callable[[], None]] = {}
        self.carry = b""
        self._large: memoryview | None = None
        self._large_bytes = 0
        self._owed: OwedAnswers[Part] = OwedAnswers()
        self._holds = False
        self._closing: str | None = None
        self._ended: str | None = None
        self._paused = False
        self._reads_soon = False
        self._keeps_room = False
        self._room_bytes = 0
        self._room_wanted = 0
        self._waiting = False
        self.is_writer_armed = False

    # --- reading -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start reading."""
        self._watch()

    def _watch(self) -> None:
        """Read when the socket has bytes, and soon if the transport has buffered some already."""
        self._loop.add_reader(self._fd, self.on_readable)
        if self.transport.has_pending:
            self._read_soon()

    def _read_on(self) -> None:
        """Read again after nothing was read while answers were written, unless the carry is full: then `_go_on` makes room
        and continues reading."""
        has_room = not self._room_wanted and len(self.carry) < SHARED_BUFFER_BYTES
        if has_room and self._ended is None and not self.closed:
            self._watch()

    def _read_soon(self) -> None:
        """Read what the transport has buffered after other connections had their turn."""
        if not self._reads_soon:
            self._reads_soon = True
            self._loop.call_soon(self._on_pending)

    def _on_pending(self) -> None:
        self._reads_soon = False
        if self.closed or self.is_writer_armed or self._room_wanted:
            return
        if len(self.carry) < SHARED_BUFFER_BYTES:
            self.on_readable()

    def on_readable(self) -> None:
        """The socket has bytes, or the peer has closed it."""
        self.last_active_s = self._loop.time()
        try:
            if self._large is not None:
                self._read_large(self._large)
                return
            if self._waiting or self._slice_away:
                self._read_while_waiting()
                return
            buffer = self._shared.buffers.receive
            carry = self.carry
            kept = len(carry)
            if kept:
                buffer[:kept] = carry
                received = self._receive(buffer[kept:])
            else:
                received = self._receive(buffer)
            if received:
                self.carry = b""
                self.take_frames(buffer, kept + received)
        except Exception as error:
            self.fail(error)

    def _receive(self, buffer: memoryview) -> int:
        """Bytes received; 0 when there are none, or when the peer has closed the connection or is lost."""
        try:
            received = self._recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._end(_reason(error))
            return 0
        if not received:
            self._end(None)
        elif self.transport.has_pending:
            self._read_soon()
        return received

    def traffic(self) -> tuple[int, int]:
        """How many bytes have been received and sent so far, encryption included; -1: the kernel does not count them."""
        return self.transport.traffic()

    def _read_while_waiting(self) -> None:
        """Read up to one buffer of what a peer pipelines behind a waiting request; the rest stays in TCP's buffers."""
        buffer = self._shared.buffers.receive[: SHARED_BUFFER_BYTES - len(self.carry)]
        received = self._receive(buffer)
        if not received:
            return
        self.carry = bytes(self.carry) + bytes(buffer[:received])
        self.since_us = self.since_us or now_us()
        if len(self.carry) >= SHARED_BUFFER_BYTES:
            self._loop.remove_reader(self._fd)

    def _read_large(self, large: memoryview) -> None:
        received = self._receive(large[self._large_bytes :])
        if not received:
            return
        self._large_bytes += received
        if self._large_bytes == len(large):
            self._large = None
            self._large_bytes = 0
            self._shared.room.has_arrived(self)
            room_bytes, self._room_bytes = len(large), 0
            self.handler.on_frame(self, large[4:])
            self._shared.buffers.large.give_back(large)
            if self._keeps_room:
                self._keeps_room, self._room_bytes = False, room_bytes
            else:
                self._shared.room.give_back(self, room_bytes)

    def take_frames(self, buffer: memoryview, end: int) -> None:
        """Handle every whole frame in buffer[:end]; keep the rest for the next read."""
        if self._owed.is_full:
            self._hold(buffer[:end])
            return
        position = self.handler.on_frames(self, buffer, end)
        if position == end:
            return
        out = self.unsent
        on_frame = self.handler.on_frame
        while end - position >= 4 and not self._waiting and not self.closed:
            (size_bytes,) = INT32.unpack_from(buffer, position)
            after = position + 4 + size_bytes
            if not 0 <= size_bytes <= self.frame_bytes_max:
                self._refuse_size(size_bytes)
                return
            if self._owed and not self._may_overlap(buffer[position + 4 : after], size_bytes):
                self._hold(buffer[position:end])
                return
            if after > end:
                if size_bytes + 4 > SHARED_BUFFER_BYTES:
                    self._begin_large(buffer[position:end], size_bytes + 4)
                    return
                break
            on_frame(self, buffer[position + 4 : after])
            position = after
            if len(out) >= ANSWERS_QUEUED_MAX:
                self._paused = True  # `flush` continues when they are written
                break
        if position < end and not self.closed:
            self.carry = bytes(buffer[position:end])

    def _may_overlap(self, begun: memoryview, size_bytes: int) -> bool:
        """Whether the next request, which begins so, may be handled while answers are owed."""
        if self._owed.is_full:
            return False
        if len(begun) < KEY_BYTES:  # it is not here yet, unless it is an impossible one
            return size_bytes + 4 <= SHARED_BUFFER_BYTES
        return self.handler.may_overlap(begun)

    def _hold(self, left: memoryview) -> None:
        """Handle nothing more until answers that are owed are known."""
        self._holds = self._waiting = True
        self.carry = bytes(left)
        self.since_us = self.since_us or now_us()
        if len(left) >= SHARED_BUFFER_BYTES:
            self._loop.remove_reader(self._fd)

    def _refuse_size(self, size_bytes: int) -> None:
        self.close(
            f"{what_begins(size_bytes)}a frame says it has {size_bytes} bytes; {self._size_option()} allows 0 to "
            f"{self.frame_bytes_max}"
        )

    def _size_option(self) -> str:
        whole = self.frame_bytes_max == self._shared.request_bytes_max
        return "socket.request.max.bytes" if whole else "sasl.server.max.receive.size (before the login)"

    def _begin_large(self, begun: memoryview, size_bytes: int) -> None:
        if not self._shared.room.take(self, size_bytes):
            self._room_wanted = size_bytes
            self.carry = bytes(begun)
            self._loop.remove_reader(self._fd)
            return
        self._room_bytes = size_bytes
        large = self._shared.buffers.large.take(size_bytes)
        large[: len(begun)] = begun
        self._large = large
        self._large_bytes = len(begun)

    # --- room for large frames (room.py) -----------------------------------------------------------------

    @property
    def received_bytes(self) -> int | None:
        """How much of a large frame has arrived; None if none is on its way."""
        return None if self._large is None else self._large_bytes

    def on_room(self) -> None:
        """There is room for the large frame that this connection has waited for."""
        size_bytes, self._room_wanted, self._room_bytes = self._room_wanted, 0, self._room_wanted
        begun, self.carry = self.carry, b""
        large = self._shared.buffers.large.take(size_bytes)
        large[: len(begun)] = begun
        self._large = large
        self._large_bytes = len(begun)
        if not self.is_writer_armed:
            self._watch()

    def keep_room(self) -> None:
        """For a handler that has copied what it needs of the present request and works on later: if the frame was a large
        one, its room stays taken until `release_room`."""
        self._keeps_room = True

    def release_room(self) -> None:
        """The handler has let go of what it had copied."""
        self._keeps_room = False
        if self._room_bytes and self._large is None:
            room_bytes, self._room_bytes = self._room_bytes, 0
            self._shared.room.give_back(self, room_bytes)

    # --- waiting for an answer --------------------------------------------------------------------------

    def wait(self) -> None:
        """The request just handled will be answered later; start no other."""
        self._waiting = True

    def owe(self) -> Owed[Part]:
        """The request just handled is answered later, by `pay`; requests that may overlap with it are handled meanwhile."""
        return self._owed.owe()

    def pay(self, owed: Owed[Part], parts: list[Part]) -> None:
        """The answer that was owed. It is sent when those before it have been."""
        due = self._owed.pay(owed, parts)
        if due:
            self._queue(due)
        if self._holds and due:
            self._holds = False
            self.resume()

    def handle_now(self) -> None:
        """The request that waited is about to be handled; the caller calls `resume`, unless the handler makes it wait."""
        self._waiting = False

    @property
    def is_waiting(self) -> bool:
        """Whether a request is still unanswered."""
        return self._waiting

    def resume(self) -> None:
        """The waiting request was answered: continue with what the peer sent after it."""
        self._waiting = False
        self._go_on()

    def _go_on(self) -> None:
        """Handle the requests left in the carry, unless something holds this connection up."""
        carry = self.carry
        if self.closed or self._waiting or self.is_writer_armed or self._slice_away:
            return
        if self._room_wanted or self._closing is not None:
            return
        if not carry:
            self._close_if_ended()
            return
        self.carry = b""
        try:
            if len(carry) >= SHARED_BUFFER_BYTES and self._ended is None:
                self._watch()
            # A bytearray, because appends patch base offsets in place.
            self.take_frames(memoryview(bytearray(carry)), len(carry))
            if not self._waiting:
                self.since_us = 0
            self._close_if_ended()
        except Exception as error:
            self.fail(error)

    # --- writing ---------------------------------------------------------------------------------------

    def respond(self, parts: list[Part]) -> None:
        """Queue one response; it is written at the end of this turn, after the appends that it acknowledges."""
        if self.closed:
            return
        if self._owed:
            self._owed.append(Owed(parts))
        else:
            self._queue(parts)

    def _queue(self, parts: list[Part]) -> None:
        if not self.unsent:
            self._to_flush(self)
        self.unsent.extend(parts)

    def flush(self) -> None:
        """Write what is queued, as far as the socket accepts it."""
        if self.closed or self.is_writer_armed or self._slice_away:
            return
        if self.timings:
            begin_sending(self.timings)
        try:
            self._write_queued()
        except BlockingIOError:
            self._arm_writer()
        except OSError as error:
            self._lose(error)
        except Exception as error:
            self._fail_writing(error)
        else:
            if self.timings and not self._slice_away:
                settle(self.timings, self)
            if self._paused and not self._slice_away:
                self._paused = False
                if self._closing is not None:
                    self.close(self._closing or None)
                    return
                self._loop.call_soon(self._go_on)

    def _on_slice_sent(self, sent: int, error: Exception | None) -> None:
        """A sender thread has sent `sent` bytes of the first slice, and stopped because of `error` unless that is None."""
        self._slice_away = False
        if self.closed:
            self.transport.close()
            return
        try:
            item = self.unsent[0]
            assert isinstance(item, FileSlice)
            self._note_sent(item, sent)
            if error is None:
                self.flush()
                self._go_on()
            elif isinstance(error, BlockingIOError):
                self._arm_writer()
            elif isinstance(error, OSError):
                self._lose(error)
            else:
                self._fail_writing(error)
        except Exception as bug:
            self._fail_writing(bug)

    def _arm_writer(self) -> None:
        self.is_writer_armed = True
        self._loop.remove_reader(self._fd)
        self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        try:
            self._write_queued()
            if self.timings and not self._slice_away:
                settle(self.timings, self)
            self._loop.remove_writer(self._fd)
            self.is_writer_armed = False
            self._paused = False
            if self._closing is not None:
                self.close(self._closing or None)
                return
            self._go_on()
            self._read_on()
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
        except Exception as error:
            self.fail(error)

    # --- the end ---------------------------------------------------------------------------------------

    def call_when_closed(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call `callback` when this connection closes, or now if it is closed; replaces an earlier one with the same key."""
        if self.closed:
            callback()
        else:
            self._on_closed[key] = callback

    def call_off(self, key: Hashable) -> None:
        """Remove the callback with this key."""
        self._on_closed.pop(key, None)

    def _end(self, reason: str | None) -> None:
        """The peer sends nothing more: close, once the whole requests that are here already have been handled."""
        if not self.carry:
            self.close(reason)
            return
        self._ended = reason or ""
        self._loop.remove_reader(self._fd)
        self._loop.call_soon(self._go_on)

    def _close_if_ended(self) -> None:
        if self._ended is None or self.closed:
            return
        if self.carry and (self._waiting or self._paused or self.is_writer_armed or self._slice_away):
            return
        self.close(self._ended or None)

    def _lose(self, error: OSError) -> None:
        """Writing failed. When the peer is gone, what it sent before is still read, to the end that the socket reports."""
        self.unsent.clear()
        self.timings.clear()
        if error.errno not in PEER_IS_GONE or self._closing is not None:
            self.close(_reason(error))
            return
        self._paused = False
        if self.is_writer_armed:
            self._loop.remove_writer(self._fd)
            self.is_writer_armed = False
            self._read_on()
        self._loop.call_soon(self._go_on)

    def fail(self, error: BaseException) -> None:
        """Work for this connection met a bug in the broker: close it, with one line in the log."""
        if not self.closed:
            log.error(
                "a connection closes because of a bug in the broker",
                extra={"peer": self.peer},
                exc_info=error,
            )
            self.close(None)

    def _fail_writing(self, error: BaseException) -> None:
        """`fail`, without writing what is queued: nobody knows how much of it has been written."""
        self.unsent.clear()
        self.fail(error)

    def close_after_answer(self, reason: str | None) -> None:
        """Start no other request, and close once the answer that is about to be queued has been written."""
        self._closing = reason or ""
        self._paused = True

    def close(self, reason: str | None) -> None:
        """Close at once. `reason` (None for an ordinary end) is logged with the peer's address."""
        if self.closed:
            return
        self.closed = True
        if reason is not None:
            log.warning("connection closed", extra={"peer": self.peer, "reason": reason})
        self._loop.remove_reader(self._fd)
        if self.is_writer_armed:
            self._loop.remove_writer(self._fd)
        elif self.unsent and not self._slice_away:
            # The answers to requests that were served before the one that ends the connection: without them a producer
            # would send again what was appended.
            with contextlib.suppress(Exception):
                self._write_queued()
        self.unsent.clear()
        self._owed.clear()
        self.timings.clear()
        self.carry = b""
        if self._room_wanted:
            self._room_wanted = 0
            self._shared.room.forget(self)
        if self._large is not None:
            self._shared.buffers.large.give_back(self._large)
            self._large = None
            room_bytes, self._room_bytes = self._room_bytes, 0
            self._shared.room.give_back(self, room_bytes)
        if not self._slice_away:
            self.transport.close()
        callbacks, self._on_closed = self._on_closed, {}
        for key, callback in callbacks.items():
            try:
                callback()
            except Exception:
                log.exception(
                    "a callback for a closed connection met a bug", extra={"peer": self.peer, "of": str(key)}
                )
