"""What is received keeps on the disk until it has been shipped: one line of JSON for each event, in segments.

Whoever sends events to the agent hears that they have arrived once they are here and synced. The segments are files that
the agent ships like all others, so that nothing is lost or repeated by a kill; a segment of which everything was
acknowledged is removed, except for the last one, whose last line says where a source that can be read again goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.agent.state import Entry, sync_folder
from barnabas.terminal.errors import CliError

SEGMENT_BYTES: Final = 8 << 20
SUFFIX: Final = ".events"


class SpoolFull(Exception):
    """There is no room for more events now: the limit is reached, or the disk is full."""


@dataclass(slots=True, eq=False)
class Spool:
    """The segments of one input in a folder. limit_bytes: of all of them."""

    folder: Path
    limit_bytes: int
    segment_bytes: int = SEGMENT_BYTES
    events_total: int = 0
    dropped_total: int = 0
    """Events that were lost because there was no room, and the sender does not wait."""
    _descriptor: int = -1
    _path: Path | None = None
    _size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pattern(self) -> str:
        """What the agent ships."""
        return str(self.folder / f"*{SUFFIX}")

    def open(self) -> None:
        """Go on with the last segment; a line that was not written whole is cut off. Raises CliError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            segments = self.segments()
            if not segments:
                self._roll(1)
                return
            self._path = segments[-1]
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_APPEND)
            self._size = os.fstat(self._descriptor).st_size
            whole = self._last_end()
            if whole != self._size:
                os.ftruncate(self._descriptor, whole)
                self._size = whole
        except OSError as error:
            raise CliError(f"cannot keep events in {self.folder}: {error.strerror}") from None

    def segments(self) -> list[Path]:
        """The segments, the oldest first."""
        return sorted(self.folder.glob(f"*{SUFFIX}"))

    def _last_end(self) -> int:
        at = self._size
        while at:
            start = max(at - (1 << 16), 0)
            newline_at = os.pread(self._descriptor, at - start, start).rfind(b"\n")
            if newline_at >= 0:
                return start + newline_at + 1
            at = start
        return 0

    def last_event(self) -> dict[str, Any] | None:
        """The event that was written last; None if there is none."""
        for path in reversed(self.segments()):
            with path.open("rb") as source:
                source.seek(max(path.stat().st_size - (1 << 20), 0))
                lines = source.read().splitlines()
            if lines:
                with contextlib.suppress(ValueError):
                    event: dict[str, Any] = json.loads(lines[-1])
                    return event
        return None

    def size_bytes(self) -> int:
        """The size of all segments."""
        total = 0
        for path in self.segments():
            with contextlib.suppress(OSError):
                total += path.stat().st_size
        return total

    def write(self, events: list[dict[str, Any]], sync: bool = True) -> None:
        """Append events, and sync them. Raises SpoolFull; then none of them was written."""
        lines = [
            json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
            for event in events
        ]
        self.write_lines(lines, sync)

    def write_lines(self, lines: list[bytes], sync: bool = True) -> None:
        """Append lines, which have no newline, and sync them. Raises SpoolFull; then none of them was written."""
        if not lines:
            return
        data = b"\n".join(lines) + b"\n"
        with self._lock:
            if self._size and self._size + len(data) > self.segment_bytes:
                if self.size_bytes() + len(data) > self.limit_bytes:
                    raise SpoolFull
                self._roll_over()
            self._append(data, sync)
            self.events_total += len(lines)

    def _append(self, data: bytes, sync: bool) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            if sync:
                os.fdatasync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise SpoolFull from error
        self._size += len(data)

    def _roll_over(self) -> None:
        assert self._path is not None
        try:
            self._roll(int(self._path.stem) + 1)
        except OSError as error:
            raise SpoolFull from error

    def _roll(self, number: int) -> None:
        path = self.folder / f"{number:012}{SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        sync_folder(self.folder)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._path, self._size = descriptor, path, os.fstat(descriptor).st_size

    def remove_shipped(self, entries: list[Entry]) -> None:
        """Remove the segments of which everything was acknowledged, as the state on the disk says."""
        for entry in entries:
            path = Path(entry.path)
            if path.parent != self.folder or path == self._path:
                continue
            with contextlib.suppress(OSError):
                status = path.stat()
                if (status.st_dev, status.st_ino) == (
                    entry.device,
                    entry.inode,
                ) and status.st_size == entry.position:
                    path.unlink()

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
