"""Makes records of the lines of one file: joins those that belong together, leaves some out, decodes, shapes.

A piece that comes out ends where the first line begins that is not in it: a record that may still get more lines is not
acknowledged, and the next run reads it again. An earlier run may have sent such a record shorter than it is now, because
it waited no longer. Where records of that run begin and end, records of this one do, too.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.agent.containers import named, parse
from barnabas.agent.events import EventFormat, Shaped, TimeRule
from barnabas.agent.files import CLOSED, Followed, Piece, Refusal, joined_tail
from barnabas.agent.multiline import TIMEOUT_SECONDS, Joiner, Multiline
from barnabas.agent.state import bytes_before


@dataclass(frozen=True, slots=True)
class Recipe:
    """How records are made of lines. encoding: empty for bytes that are sent as they are.

    include: a record must match one of these; exclude: and none of those. refuses: a line that cannot be decoded is
    refused; otherwise what is wrong in it is replaced. container: lines are those of a container engine. spooled: lines
    are events that were received, as JSON.
    """

    shape: EventFormat = field(default_factory=EventFormat)
    encoding: str = ""
    multiline: Multiline | None = None
    include: tuple[re.Pattern[bytes], ...] = ()
    exclude: tuple[re.Pattern[bytes], ...] = ()
    refuses: bool = False
    container: bool = False
    spooled: bool = False
    time: TimeRule | None = None

    def is_plain(self) -> bool:
        """Whether each line is a record as it is, without a key of its own."""
        return not (self.shape.is_json or self.encoding or self._looks_at_lines())

    def is_framed(self) -> bool:
        """Whether each line that is UTF-8 becomes an event of JSON, without a key of its own."""
        is_utf8 = not self.encoding or codecs.lookup(self.encoding).name == "utf-8"
        return self.shape.is_json and is_utf8 and self.time is None and not self._looks_at_lines()

    def _looks_at_lines(self) -> bool:
        return bool(
            self.shape.key is not None
            or self.multiline
            or self.include
            or self.exclude
            or self.container
            or self.spooled
        )

    def wants(self, text: bytes) -> bool:
        """Whether a record is sent."""
        if self.include and not any(pattern.search(text) for pattern in self.include):
            return False
        return not any(pattern.search(text) for pattern in self.exclude)


class Joined(NamedTuple):
    """The lines of one record. extra: what is known about it beside its text; None: nothing."""

    position: int
    end: int
    lines: list[bytes]
    extra: dict[str, Any] | None = None


@dataclass(slots=True, eq=False)
class Pending:
    """Lines of a record that may get more."""

    position: int
    tail: bytes
    """The bytes of the file before `position`."""
    lines: list[bytes] = field(default_factory=list)
    is_part: bool = False
    """The last line goes on in the next one."""
    extra: dict[str, Any] | None = None
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
    assembled_end: int = 0
    """The end of the last piece that came out."""
    joiner: Joiner | None = None

    def __post_init__(self) -> None:
        self.position = self.assembled_end = self.followed.entry.position
        self.tail = self.followed.last
        self.joiner = None if self.recipe.multiline is None else self.recipe.multiline.joiner()

    def feed(self, piece: Piece) -> Piece | None:
        """The records that are complete with these lines; None when nothing can be said about the file yet."""
        if not piece.lines and not piece.too_long:
            return None
        if piece.start != self.position:
            self.tail = piece.start_tail if piece.too_long else self._tail_before(piece.start)
        shaped = Piece([], self.position, piece.end, piece.tail, piece.too_long, positions=[], ends=[])
        joins = self.joiner is not None or self.recipe.container
        events = self._events(piece) if joins else self._single(piece)
        self._shape(events, shaped)
        self.position, self.tail = piece.end, piece.tail
        if self.pending is not None:
            shaped.end, shaped.tail = self.pending.position, self.pending.tail
        if shaped.end == self.assembled_end and not (shaped.too_long or shaped.lines or shaped.refused):
            return None
        self.assembled_end = shaped.end
        return shaped

    def passed(self, piece: Piece) -> None:
        """Lines were sent without coming here."""
        self.position = self.assembled_end = piece.end
        self.tail = piece.tail

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
        shaped = Piece([], pending.position, self.position, self.tail, positions=[], ends=[])
        self.assembled_end = shaped.end
        self._shape([Joined(pending.position, self.position, pending.lines, pending.extra)], shaped)
        return shaped

    def is_due(self, now: float) -> bool:
        """Whether what waits has waited long enough."""
        timeout_s = TIMEOUT_SECONDS if self.recipe.multiline is None else self.recipe.multiline.timeout_s
        return self.pending is not None and now - self.pending.since > timeout_s

    def _single(self, piece: Piece) -> list[Joined]:
        width, position, last = len(self.followed.newline), piece.start, piece.end
        events = []
        for line in piece.lines:
            end = min(position + len(line) + width, last)  # the last line may have no newline
            events.append(Joined(position, end, [line]))
            position = end
        return events

    def _events(self, piece: Piece) -> list[Joined]:
        """Records of several lines that are complete; the last one stays in `pending`."""
        limits = self.recipe.multiline or Multiline()
        events: list[Joined] = []
        position, tail, joiner = piece.start, self.tail, self.joiner
        if piece.too_long and self.pending is not None:
            self._complete(self.position, events)
        for line in piece.lines:
            text, is_part, extra = parse(line) if self.recipe.container else (line, False, None)
            pending = self.pending
            goes_on = joiner is not None and joiner.joins(text)
            if pending is not None and not (
                (goes_on or pending.is_part)
                and position not in self.boundaries
                and len(pending.lines) < limits.lines_max
                and pending.size_bytes + len(line) <= limits.bytes_max
            ):
                self._complete(position, events)
                pending = None
            if pending is None:
                pending = self.pending = Pending(position, tail, extra=extra)
            if pending.is_part:
                pending.lines[-1] += text
            else:
                pending.lines.append(text)
            raw = line + self.followed.newline
            pending.is_part, pending.since = is_part, time.monotonic()
            pending.size_bytes += len(raw)
            tail = joined_tail(tail, raw)
            position += len(raw)
            if joiner is None and not is_part:
                self._complete(position, events)
        return events

    def _complete(self, end: int, events: list[Joined]) -> None:
        """What waits gets no more lines."""
        pending, self.pending = self.pending, None
        assert pending is not None
        events.append(Joined(pending.position, end, pending.lines, pending.extra))

    def _value(self, event: Joined, text: bytes, value: Shaped, read_at: float) -> bytes:
        """The value of a record."""
        if event.extra is None:
            return value(text, event.position, len(event.lines))
        shape, path = self.recipe.shape, self.followed.path
        if self.recipe.spooled:
            return shape.event(text, event.extra, read_at)
        extra = {**named(path), **event.extra}
        if len(event.lines) > 1:
            extra["log"] = {"flags": ["multiline"]}
        return shape.event(text, extra, read_at, path, event.position)

    def _shape(self, events: list[Joined], shaped: Piece) -> None:
        """Decode, choose and shape records."""
        recipe, newline, read_at = self.recipe, self.followed.newline, time.time()
        value = recipe.shape.values(self.followed.path, read_at)
        key_of = recipe.shape.keys(self.followed.path)
        keys: list[bytes | None] | None = None if key_of is None else []
        assert shaped.positions is not None
        assert shaped.ends is not None
        refused = []
        for event in events:
            text = event.lines[0] if len(event.lines) == 1 else newline.join(event.lines)
            if recipe.spooled:
                event, text = received(event)
            if recipe.time is not None and (at := recipe.time.find(text)) is not None:
                event = event._replace(extra={**(event.extra or {}), "@timestamp": at})
            if recipe.encoding:
                try:
                    text = self._decoded(text, event.position)
                except UnicodeDecodeError as error:
                    refused.append(Refusal(event.position, text, f"is not {recipe.encoding}: {error.reason}"))
                    continue
            if not recipe.wants(text):
                continue
            shaped.lines.append(self._value(event, text, value, read_at))
            shaped.positions.append(event.position)
            shaped.ends.append(event.end)
            if keys is not None and key_of is not None:
                keys.append(key_of(text))
        shaped.keys, shaped.refused = keys, tuple(refused)

    def _decoded(self, text: bytes, position: int) -> bytes:
        """Text in UTF-8. Raises UnicodeDecodeError."""
        content = text.decode(self.recipe.encoding, "strict" if self.recipe.refuses else "replace")
        return (content.removeprefix("\ufeff") if position == 0 else content).encode()


def received(event: Joined) -> tuple[Joined, bytes]:
    """An event of the spool, and its text."""
    fields = json.loads(event.lines[0])
    text = fields.get("message", "")
    message = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return event._replace(extra=fields), message.encode("utf-8", "replace")
