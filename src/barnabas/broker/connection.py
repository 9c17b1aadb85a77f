"""One client connection: bytes in, frames to the dispatcher, responses out in order, back-pressure.

The socket is raw and non-blocking, watched by the loop. All connections of a shard share one receive
buffer: a frame is handled to its end before the next read, so nothing may keep a view of it (see
docs/INVARIANTS.md, "the receive buffer is borrowed"). What is left of a frame is carried over to the next
read; a frame larger than the shared buffer is received straight into a buffer of its own size.

While a request waits for its answer (a long poll, a join), or while the peer does not take its
responses, no further request of this connection is begun: that keeps responses in order and bounds memory.
For the same reason, and so that others get their turn, at most `ANSWERS_QUEUED_MAX` parts of answers are queued
before they are written.
"""

from __future__ import annotations

import errno
import logging
import mmap
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.broker.produce_lane import ProduceLanes
from barnabas.broker.senders import Job
from barnabas.storage.files import FileSlice

if TYPE_CHECKING:
    from barnabas.broker.shard import Shard

log = logging.getLogger("barnabas.connection")

SHARED_BUFFER_BYTES: Final = 256 * 1024
# A slice below this is cheaper to read and send together with its header than to send with sendfile.
SENDFILE_BYTES_MIN: Final = 96 * 1024
# Small slices are joined with what is around them, but no more than this is read from files at a time.
SEND_BUFFER_BYTES: Final = 256 * 1024
# Below this the way to a sender thread and back takes longer than sending.
SENDER_BYTES_MIN: Final = 256 * 1024
ANSWERS_QUEUED_MAX: Final = 64
V4_IN_V6: Final = "::ffff:"
INT32: Final = struct.Struct(">i")

Part = bytes | bytearray | memoryview | FileSlice


class Connection:
    """State of one accepted socket. Owned by its shard's loop; never touched from another thread."""

    __slots__ = (
        "_carry", "_large", "_large_bytes", "_out", "_paused", "_slice_away", "_waiting", "_writer_armed", "api_versions",
        "client_id", "client_software", "closed", "connected_s", "fd", "lanes", "last_active_s", "listener",
        "local_host", "local_port", "parked", "peer", "principal", "sasl", "shard", "sock",
    )  # fmt: skip

    def __init__(self, shard: Shard, sock: socket.socket, listener: str) -> None:
        self.shard = shard
        self.sock = sock
        self.fd = sock.fileno()
        self.listener = listener
        peer, local = sock.getpeername(), sock.getsockname()
        self.peer = f"{peer[0]}:{peer[1]}"
        # On a socket for both families an IPv4 peer appears as ::ffff:a.b.c.d; it wants to be told a.b.c.d.
        self.local_host: str = local[0].removeprefix(V4_IN_V6)
        self.local_port: int = local[1]
        self.client_id: str | None = None
        self.client_software = ("", "")
        self.api_versions: dict[int, int] = {}
        """The version last used of each API key."""
        self.principal = "User:ANONYMOUS"
        self.sasl: object | None = None
        self.closed = False
        self.parked: Callable[[], None] | None = None
        """Gives up what waits for this connection; called when it closes."""
        self.lanes = ProduceLanes()
        self.connected_s = self.last_active_s = shard.loop.time()
        self._carry = b""
        self._large: memoryview | None = None
        self._large_bytes = 0
        self._out: deque[Part] = deque()
        self._paused = False
        self._waiting = False
        self._writer_armed = False
        self._slice_away = False

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]

    # --- reading -------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        self.last_active_s = self.shard.loop.time()
        try:
            if self._large is not None:
                self._read_large(self._large)
            else:
                self._read_shared()
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self.close(
                None if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT) else str(error)
            )

    def _read_shared(self) -> None:
        buffer = self.shard.receive_buffer
        carry = self._carry
        kept = len(carry)
        if self._waiting or self._slice_away:
            self._read_while_waiting()
            return
        if kept:
            buffer[:kept] = carry
            received = self.sock.recv_into(buffer[kept:])
        else:
            received = self.sock.recv_into(buffer)
        if received == 0:
            self.close(None)
            return
        self._carry = b""
        self._take_frames(buffer, kept + received)

    def _read_while_waiting(self) -> None:
        """A peer that pipelines behind a parked request is read up to one buffer, then left to TCP."""
        received = self.sock.recv(SHARED_BUFFER_BYTES - len(self._carry))
        if not received:
            self.close(None)
            return
        self._carry = bytes(self._carry) + received
        if len(self._carry) >= SHARED_BUFFER_BYTES:
            self.shard.loop.remove_reader(self.fd)

    def _read_large(self, large: memoryview) -> None:
        received = self.sock.recv_into(large[self._large_bytes :])
        if received == 0:
            self.close(None)
            return
        self._large_bytes += received
        if self._large_bytes == len(large):
            self._large = None
            self._large_bytes = 0
            self.shard.dispatcher.on_frame(self, large[4:])
            self.shard.large_buffers.give_back(large)

    def _take_frames(self, buffer: memoryview, end: int) -> None:
        """Handle every whole frame in buffer[:end]; keep the rest for the next read."""
        position = 0
        out = self._out
        on_frame = self.shard.dispatcher.on_frame
        while end - position >= 4 and not self._waiting and not self.closed:
            (size_bytes,) = INT32.unpack_from(buffer, position)
            after = position + 4 + size_bytes
            if after > end or size_bytes < 0:
                if not 0 <= size_bytes <= self.shard.request_bytes_max:
                    self._refuse_size(size_bytes)
                    return
                if size_bytes + 4 > SHARED_BUFFER_BYTES:
                    self._begin_large(buffer[position:end], size_bytes + 4)
                    return
                break
            on_frame(self, buffer[position + 4 : after])
            position = after
            if len(out) >= ANSWERS_QUEUED_MAX:
                self._paused = True  # `flush` goes on when they are written
                break
        if position < end and not self.closed:
            self._carry = bytes(buffer[position:end])

    def _refuse_size(self, size_bytes: int) -> None:
        self.close(
            f"a frame says it has {size_bytes} bytes; socket.request.max.bytes allows 0 to "
            f"{self.shard.request_bytes_max}"
        )

    def _begin_large(self, begun: memoryview, size_bytes: int) -> None:
        large = self.shard.large_buffers.take(size_bytes)
        large[: len(begun)] = begun
        self._large = large
        self._large_bytes = len(begun)

    # --- waiting for an answer --------------------------------------------------------------------------

    def wait(self) -> None:
        """The request just handed out is answered later; begin no other."""
        self._waiting = True

    @property
    def is_waiting(self) -> bool:
        return self._waiting

    def resume(self) -> None:
        """The parked request was answered: go on with what the peer sent behind it."""
        self._waiting = False
        self.parked = None
        self._go_on()

    def _go_on(self) -> None:
        """Handle the requests that were left in the carry, unless something holds this connection up."""
        carry = self._carry
        if not carry or self.closed or self._waiting or self._writer_armed or self._slice_away:
            return
        self._carry = b""
        if len(carry) >= SHARED_BUFFER_BYTES:
            self.shard.loop.add_reader(self.fd, self.on_readable)
        # A bytearray, because appends patch base offsets in place.
        self._take_frames(memoryview(bytearray(carry)), len(carry))

    # --- writing ---------------------------------------------------------------------------------------

    def respond(self, parts: list[Part]) -> None:
        """Queue one response; the shard writes it at the end of this tick, after the appends it confirms."""
        if self.closed:
            return
        if not self._out:
            self.shard.to_flush(self)
        self._out.extend(parts)

    def flush(self) -> None:
        """Write what is queued, as far as the socket takes it."""
        if self.closed or self._writer_armed or self._slice_away:
            return
        try:
            self._write_queued()
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
            self._arm_writer()
        except OSError as error:
            self._close_lost(error)
            return
        if self._paused and not self._slice_away:
            self._paused = False
            self.shard.loop.call_soon(self._go_on)

    def _write_queued(self) -> None:
        out = self._out
        while out:
            item = out[0]
            if isinstance(item, FileSlice):
                if self._is_for_sender(item):
                    self._slice_away = True
                    self.shard.senders.send(Job(self.fd, item, self._on_slice_sent))
                    return
                self._write_slice(item)
                continue
            data: bytes | bytearray | memoryview
            more = False
            if len(out) == 1:
                data = out.popleft()  # type: ignore[assignment]
            else:
                data, more = self._gather()
            try:
                sent = self.sock.send(data, socket.MSG_MORE) if more else self.sock.send(data)
            except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
                out.appendleft(self._kept(data, 0))  # the socket took nothing of it
                raise
            if sent < len(data):
                out.appendleft(self._kept(data, sent))
                raise BlockingIOError

    def _kept(self, data: bytes | bytearray | memoryview, sent: int) -> bytes | memoryview:
        """What is left of `data` to send later: copied where it lies in the send buffer."""
        left = memoryview(data)[sent:]
        return bytes(left) if left.obj is self.shard.send_buffer.obj else left

    def _gather(self) -> tuple[bytes | bytearray | memoryview, bool]:
        """Put queued bytes and small file slices together, up to the next large one; (bytes, more follows).

        They lie in the shard's send buffer, which is borrowed until the next write.
        """
        out = self._out
        buffer = self.shard.send_buffer
        filled = 0
        while out:
            item = out[0]
            if isinstance(item, FileSlice):
                end = filled + item.size
                if item.size >= SENDFILE_BYTES_MIN or end > SEND_BUFFER_BYTES:
                    break
                item.read_into(buffer[filled:end])
            else:
                end = filled + len(item)
                if end > SEND_BUFFER_BYTES:
                    break
                buffer[filled:end] = item
            filled = end
            out.popleft()
        if not filled:
            data = out.popleft()
            assert not isinstance(data, FileSlice), "the caller sends a leading slice by itself"
            return data, bool(out)
        return buffer[:filled], bool(out)

    def _write_slice(self, item: FileSlice) -> None:
        out = self._out
        if item.size < SENDFILE_BYTES_MIN or not self.shard.sendfile_allowed(self):
            data = bytearray(item.size)
            item.read_into(memoryview(data))
            out[0] = data
            return
        self._note_sent(item, item.send_to(self.fd))

    def _note_sent(self, item: FileSlice, sent: int) -> None:
        """`sent` bytes of the slice at the head of the queue have left."""
        if sent == item.size:
            self._out.popleft()
        else:
            self._out[0] = item.after(sent)

    def _is_for_sender(self, item: FileSlice) -> bool:
        """Whether a sender thread is to send it: it is large, and other connections take large ones too."""
        return (
            item.size >= SENDER_BYTES_MIN
            and self.shard.sendfile_allowed(self)
            and self.shard.senders.is_shared(self.fd)
        )

    def _on_slice_sent(self, sent: int, error: OSError | None) -> None:
        """A sender thread has sent `sent` bytes of the first slice, and gave up with `error` if it is not None."""
        self._slice_away = False
        if self.closed:
            self.sock.close()
            return
        item = self._out[0]
        assert isinstance(item, FileSlice)
        self._note_sent(item, sent)
        if isinstance(error, BlockingIOError):
            self._arm_writer()
        elif error is not None:
            self._close_lost(error)
        else:
            self.flush()
            self._go_on()

    def _arm_writer(self) -> None:
        self._writer_armed = True
        self.shard.loop.remove_reader(self.fd)
        self.shard.loop.add_writer(self.fd, self._on_writable)

    def _on_writable(self) -> None:
        try:
            self._write_queued()
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._close_lost(error)
            return
        self.shard.loop.remove_writer(self.fd)
        self._writer_armed = False
        self._paused = False
        self._go_on()
        if self.closed:
            return
        if len(self._carry) < SHARED_BUFFER_BYTES:  # else `resume` makes room and reads on
            self.shard.loop.add_reader(self.fd, self.on_readable)

    # --- the end ---------------------------------------------------------------------------------------

    def _close_lost(self, error: OSError) -> None:
        """Writing failed: a peer that is gone is an ordinary end."""
        self.close(None if error.errno in (errno.ECONNRESET, errno.EPIPE) else str(error))

    def close(self, reason: str | None) -> None:
        """Close at once. `reason` (None for an ordinary end) is logged with the peer's address."""
        if self.closed:
            return
        self.closed = True
        if reason is not None:
            log.warning("connection closed", extra={"peer": self.peer, "reason": reason})
        loop = self.shard.loop
        loop.remove_reader(self.fd)
        if self._writer_armed:
            loop.remove_writer(self.fd)
        self._out.clear()
        self._carry = b""
        if self.parked is not None:
            self.parked()
            self.parked = None
        if self._large is not None:
            self.shard.large_buffers.give_back(self._large)
            self._large = None
        if not self._slice_away:
            self.sock.close()
        self.shard.forget(self)


class LargeBuffers:
    """Receive buffers for large frames, kept for the next frame of the same size.

    A fresh megabyte costs a page fault for every 4 KB; a producer of large batches sends the same size again
    and again. At most `kept_bytes_max` are kept; the oldest go first. They are mapped, not allocated: what a peer
    announces takes no memory before it arrives.
    """

    def __init__(self, kept_bytes_max: int = 32 << 20) -> None:
        self._kept: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max

    def take(self, size_bytes: int) -> memoryview:
        free = self._kept.get(size_bytes)
        if free:
            self._kept_bytes -= size_bytes
            return free.pop()
        return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def give_back(self, buffer: memoryview) -> None:
        size_bytes = len(buffer)
        while self._kept and self._kept_bytes + size_bytes > self._kept_bytes_max:
            oldest = next(iter(self._kept))
            free = self._kept.pop(oldest)
            self._kept_bytes -= oldest * len(free)
        if size_bytes <= self._kept_bytes_max:
            self._kept.setdefault(size_bytes, []).append(buffer)
            self._kept_bytes += size_bytes
