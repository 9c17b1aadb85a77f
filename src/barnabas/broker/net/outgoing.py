"""The answers of one connection on their way to its socket: bytes, and slices of files.

Small answers and small slices are gathered in the send buffer that all connections share. A large slice goes from the file
to the socket, by a sender thread when several connections receive large slices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from barnabas.broker.net.buffers import SEND_BUFFER_BYTES
from barnabas.broker.net.ends import Ends
from barnabas.broker.net.senders import Job
from barnabas.broker.net.shared import Shared
from barnabas.broker.net.transports import MORE, Buffer, Transport
from barnabas.storage.files import FileSlice

# A smaller slice is cheaper to read and send together with its header than to send with sendfile.
SENDFILE_BYTES_MIN: Final = 96 * 1024
# Below this, handing the slice to a sender thread and back takes longer than sending it.
SENDER_BYTES_MIN: Final = 256 * 1024

Part = bytes | bytearray | memoryview | FileSlice


class Outgoing(Ends, ABC):
    """The queue of a connection's answers. When it is written is up to the connection (connection.py)."""

    __slots__ = ("_fd", "_shared", "_slice_away", "unsent")

    def __init__(self, transport: Transport, shared: Shared) -> None:
        super().__init__(transport)
        self._fd = transport.fd
        self._shared = shared
        self.unsent: deque[Part] = deque()
        self._slice_away = False
        """Whether the first part is a slice that a sender thread is sending."""

    @abstractmethod
    def _on_slice_sent(self, sent: int, error: Exception | None) -> None:
        """A sender thread has sent `sent` bytes of the first slice, and stopped because of `error` unless that is None."""

    def _write_queued(self) -> None:
        """Raises BlockingIOError when the socket is full, other OSErrors when the connection is lost."""
        out = self.unsent
        while out:
            item = out[0]
            if isinstance(item, FileSlice):
                if self._note_slice(item):
                    self._shared.senders.send(Job(self._fd, item, self._on_slice_sent))
                    self._slice_away = True  # its report comes in a later turn
                    return
                self._write_slice(item)
                continue
            data: Buffer
            flags = 0
            if len(out) == 1:
                data = out.popleft()  # type: ignore[assignment]
            else:
                data, more_follows = self._gather()
                flags = MORE if more_follows else 0
            try:
                sent = self.transport.send(data, flags)
            except (BlockingIOError, InterruptedError):
                out.appendleft(self._kept_to_send(data, 0))  # the socket took none of it
                raise BlockingIOError from None
            if sent < len(data):
                out.appendleft(self._kept_to_send(data, sent))
                raise BlockingIOError

    def _kept_to_send(self, data: Buffer, sent: int) -> bytes | memoryview:
        """The unsent rest of `data`, copied if it is in the send buffer."""
        left = memoryview(data)[sent:]
        return bytes(left) if left.obj is self._shared.buffers.send.obj else left

    def _gather(self) -> tuple[Buffer, bool]:
        """Join queued bytes and small file slices, up to the next large slice; (bytes, more follows).

        The result is in the shared send buffer, which is borrowed until the next write.
        """
        out = self.unsent
        buffer = self._shared.buffers.send
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
            assert not isinstance(data, FileSlice), "the caller sends a leading slice separately"
            return data, bool(out)
        return buffer[:filled], bool(out)

    def _write_slice(self, item: FileSlice) -> None:
        if item.size < SENDFILE_BYTES_MIN or not self.transport.sends_files:
            # Data that passes through this process is sent in steps: a fetch may ask for 50 MB.
            data = bytearray(min(item.size, SEND_BUFFER_BYTES))
            item.part(0, len(data)).read_into(memoryview(data))
            self._note_sent(item, len(data))
            self.unsent.appendleft(data)
            return
        sent = self.transport.send_file(item)
        self._shared.turn.large_bytes += sent
        self._note_sent(item, sent)

    def _note_sent(self, item: FileSlice, sent: int) -> None:
        """`sent` bytes of the slice at the head of the queue have been sent."""
        if sent == item.size:
            self.unsent.popleft()
        else:
            self.unsent[0] = item.after(sent)

    def _note_slice(self, item: FileSlice) -> bool:
        """Note a slice about to be sent. True if a sender thread should send it: it is large, and not the only one."""
        shared = self._shared
        return (
            item.size >= SENDER_BYTES_MIN
            and self.transport.sends_files
            and shared.senders.note_large_slice(self._fd, item, shared.turn.large_bytes)
        )
