"""Makes records of the lines of one file: joins those that belong together, leaves some out, decodes, shapes.

A piece that comes out ends where the first line begins that is not in it: a record that may still get more lines is not
acknowledged, and the next run reads it again. An earlier run may have sent such a record shorter than it is now, because
it waited no longer. Where records of that run begin and end, records of this one do, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from barnabas.agent.events import Shape
from barnabas.agent.files import CLOSED, Followed, Piece, Refusal, joined_tail
from barnabas.agent.multiline import Joiner, Multiline
from barnabas.agent.state import bytes_before


@dataclass(frozen=True, slots=True)
class Recipe:
    """How records are made of lines. encoding: empty for bytes that are sent as they are.

    include: a record must match one of these; exclude: and none of those. refuses: a line that cannot be decoded is
    refused; otherwise what is wrong in it is replaced.
    """

    shape: Shape = field(default_factory=Shape)
    encoding: str = ""
    multiline: Multiline | None = None
    include: tuple[re.Pattern[bytes], ...] = ()
    exclude: tuple[re.Pattern[bytes], ...] = ()
    refuses: bool = False

    def is_plain(self) -> bool:
        """Whether each line is a record as it is, without a key of its own."""
        return not (
            self.shape.is_json
            or self.shape.key is not None
            or self.encoding
            or self.multiline
            or self.include
            or self.exclude
        )

    def wants(self, text: bytes) -> bool:
        """Whether a record is sent."""
        if self.include and not any(pattern.search(text) for pattern in self.include):
            return False
        return not any(pattern.search(text) for pattern in self.exclude)


@dataclass(slots=True, eq=False)
class Pending:
    """Lines of a record that may get more."""

    position: int
    tail: bytes
    """The bytes of the file before `position`."""
    lines: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True, eq=False)
class Assembler:
    """The records of one file."""

    recipe: Recipe
    followed: Followed
    boundaries: Collection[int] = ()
    """Positions at which records of an earlier run begin or end."""
    pending: Pending | None = None
    position: int = 0
    """The end of the last line that came."""
    tail: bytes = b""
    """The bytes before it."""
    told: int = 0
    """The end of the last piece that came out."""
    joiner: Joiner | None = None

    def __post_init__(self) -> None:
        self.position = self.told = self.followed.entry.position
        self.tail = self.followed.last
        self.joiner = None if self.recipe.multiline is None else self.recipe.multiline.joiner()

    def feed(self, piece: Piece) -> Piece | None:
        """The records that are complete with these lines; None when nothing can be said about the file yet."""
        if not piece.lines and not piece.too_long:
            return None
        if piece.start != self.position:
            self.tail = piece.start_tail if piece.too_long else self._tail_before(piece.start)
        made = Piece([], self.position, piece.end, piece.tail, piece.too_long, positions=[], ends=[])
        events = self._events(piece) if self.joiner is not None else self._single(piece)
        self._shape(events, made)
        self.position, self.tail = piece.end, piece.tail
        if self.pending is not None:
            made.end, made.tail = self.pending.position, self.pending.tail
        if made.end == self.told and not (made.too_long or made.lines or made.refused):
            return None
        self.told = made.end
        return made

    def _tail_before(self, start: int) -> bytes:
        """The bytes before a line that does not begin where the last one ended."""
        newline, descriptor = self.followed.newline, self.followed.descriptor
        if start == self.position + len(newline) or descriptor == CLOSED:
            return joined_tail(self.tail, newline)  # the one that the last line had lacked
        return bytes_before(descriptor, start)

    def flush(self) -> Piece | None:
        """What waits for more lines, as a record."""
        pending, self.pending = self.pending, None
        if pending is None:
            return None
        made = Piece([], pending.position, self.position, self.tail, positions=[], ends=[])
        self.told = made.end
        self._shape([(pending.position, self.position, pending.lines)], made)
        return made

    def is_due(self, now: float) -> bool:
        """Whether what waits has waited long enough."""
        assert self.recipe.multiline is not None or self.pending is None
        return (
            self.pending is not None
            and self.recipe.multiline is not None
            and now - self.pending.since > self.recipe.multiline.timeout_s
        )

    def _single(self, piece: Piece) -> list[tuple[int, int, list[bytes]]]:
        width, position, last = len(self.followed.newline), piece.start, piece.end
        events = []
        for line in piece.lines:
            end = min(position + len(line) + width, last)  # the last line may have no newline
            events.append((position, end, [line]))
            position = end
        return events

    def _events(self, piece: Piece) -> list[tuple[int, int, list[bytes]]]:
        """Records of several lines that are complete; the last one stays in `pending`."""
        assert self.joiner is not None
        assert self.recipe.multiline is not None
        limits, width = self.recipe.multiline, len(self.followed.newline)
        joins, events, tail = self.joiner.joins, [], self.tail
        position, pending = piece.start, self.pending
        if piece.too_long and pending is not None:
            events.append((pending.position, self.position, pending.lines))
            pending = None
        for line in piece.lines:
            goes_on = joins(line) and position not in self.boundaries
            if pending is not None and not (
                goes_on
                and len(pending.lines) < limits.lines_max
                and pending.size_bytes + len(line) <= limits.bytes_max
            ):
                events.append((pending.position, position, pending.lines))
                pending = None
            if pending is None:
                pending = Pending(position, tail)
            pending.lines.append(line)
            pending.size_bytes += len(line) + width
            pending.since = time.monotonic()
            raw = line + self.followed.newline
            tail = joined_tail(tail, raw)
            position += len(raw)
        self.pending = pending
        return events

    def _shape(self, events: list[tuple[int, int, list[bytes]]], made: Piece) -> None:
        """Decode, choose and shape records."""
        recipe, newline = self.recipe, self.followed.newline
        value = recipe.shape.values(self.followed.path, time.time())
        key_of = recipe.shape.keys(self.followed.path)
        keys: list[bytes | None] | None = None if key_of is None else []
        assert made.positions is not None
        assert made.ends is not None
        refused = []
        for position, end, lines in events:
            text = lines[0] if len(lines) == 1 else newline.join(lines)
            if recipe.encoding:
                try:
                    text = self._decoded(text, position)
                except UnicodeDecodeError as error:
                    refused.append(Refusal(position, text, f"is not {recipe.encoding}: {error.reason}"))
                    continue
            if not recipe.wants(text):
                continue
            made.lines.append(value(text, position, len(lines)))
            made.positions.append(position)
            made.ends.append(end)
            if keys is not None and key_of is not None:
                keys.append(key_of(text))
        made.keys, made.refused = keys, tuple(refused)

    def _decoded(self, text: bytes, position: int) -> bytes:
        """Text in UTF-8. Raises UnicodeDecodeError."""
        found = text.decode(self.recipe.encoding, "strict" if self.recipe.refuses else "replace")
        return (found.removeprefix("\ufeff") if position == 0 else found).encode()
