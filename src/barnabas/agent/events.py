"""What a record looks like: the line itself, or a JSON object in the shape of Filebeat's events with ECS names."""

from __future__ import annotations

import re
import socket
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json import dumps
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

import barnabas
from barnabas.records.record_block import Frame

ECS_VERSION: Final = "8.11.0"
FORMATTER: Final = string.Formatter()

Shaped = Callable[[bytes, int, int], bytes]
"""Makes a record's value of the text, where it begins, and how many lines it has."""


def host_name() -> str:
    """The name by which records know this machine."""
    return socket.gethostname()


class Framed(NamedTuple):
    """How values are made of lines: of all lines of a block, and of one."""

    frame: Frame
    one: Shaped


@dataclass(frozen=True, slots=True)
class EventFormat:
    """How values and keys are made. is_json: a JSON object instead of the text. key: a text with names in braces; None:
    none. key_pattern: what the names may find in the line. kind: of the input, as Filebeat calls it.
    """

    is_json: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    key: str | None = None
    key_pattern: re.Pattern[bytes] | None = None
    kind: str = "filestream"
    host: str = field(default_factory=host_name)

    def common(self) -> dict[str, Any]:
        """What all events of the input have."""
        fields: dict[str, Any] = {
            "input": {"type": self.kind},
            "host": {"name": self.host},
            "agent": {"type": "barnabas", "name": self.host, "version": barnabas.__version__},
            "ecs": {"version": ECS_VERSION},
        }
        if self.fields:
            fields["fields"] = dict(self.fields)
        if self.tags:
            fields["tags"] = [*self.tags]
        return fields

    def values(self, path: str, read_at: float) -> Shaped:
        """Makes the values of one file's records that were read at this time (seconds since 1970)."""
        if not self.is_json:
            return lambda text, position, lines: text
        return self._shaped(*self._parts(path, read_at))

    @staticmethod
    def _shaped(start: str, middle: str, end: str) -> Shaped:
        quoted = encode_basestring
        joined = ',"flags":["multiline"]' + end

        def shaped(text: bytes, position: int, lines: int) -> bytes:
            message = quoted(text.decode("utf-8", "replace").removesuffix("\r"))
            return f"{start}{message}{middle}{position}{end if lines == 1 else joined}".encode()

        return shaped

    def _parts(self, path: str, read_at: float) -> tuple[str, str, str]:
        """What stands before the text of an event, between it and its position, and behind that."""
        start = f'{{"@timestamp":"{shown(read_at)}","message":'
        middle = f',"log":{{"file":{{"path":{encode_basestring(readable(path))}}},"offset":'
        end = "}," + dumps(self.common(), ensure_ascii=False, separators=(",", ":"))[1:]
        return start, middle, end

    def framed(self, path: str, read_at: float) -> Framed:
        """Makes the values of lines that are UTF-8, as `values` does, in compiled code."""
        start, middle, end = self._parts(path, read_at)
        frame = Frame(start.encode(), middle.encode(), end.encode())
        return Framed(frame, self._shaped(start, middle, end))

    def event(
        self, text: bytes, extra: Mapping[str, Any], read_at: float, path: str = "", position: int = 0
    ) -> bytes:
        """The value of a record of which more is known than its text. path: empty if it comes from no file."""
        if not self.is_json:
            return text
        fields: dict[str, Any] = {"@timestamp": shown(read_at), "message": text.decode("utf-8", "replace")}
        if path:
            fields["log"] = {"file": {"path": readable(path)}, "offset": position}
        return dumps(
            merged({**fields, **self.common()}, extra), ensure_ascii=False, separators=(",", ":")
        ).encode("utf-8", "replace")

    def headers(self) -> list[tuple[str, bytes]]:
        """Headers for the own fields of records that are text."""
        return [] if self.is_json else [(name, value.encode()) for name, value in self.fields.items()]

    def keys(self, path: str) -> Callable[[bytes], bytes | None] | None:
        """Makes the keys of one file's records; None when they have none. A line that has not what the key needs gets
        none."""
        if self.key is None:
            return None
        known = {"host": self.host, "path": path, "file": path.rpartition("/")[2]}
        known |= {f"fields.{name}": value for name, value in self.fields.items()}
        parts = [(text, name) for text, name, _, _ in FORMATTER.parse(self.key)]
        if self.key_pattern is None:
            fixed = "".join(text + (known[name] if name else "") for text, name in parts).encode(
                "utf-8", "surrogateescape"
            )
            return lambda text: fixed
        search = self.key_pattern.search

        def key_of(text: bytes) -> bytes | None:
            match = search(text)
            if match is None:
                return None
            key = b""
            for before, name in parts:
                key += before.encode()
                if name and name in known:
                    key += known[name].encode("utf-8", "surrogateescape")
                elif name:
                    key += match[int(name) if name.isdigit() else name] or b""
            return key

        return key_of


@dataclass(frozen=True, slots=True)
class TimeRule:
    """Where in a line its time is. pattern: its first group, or all of it. format: of strptime; empty: ISO 8601. A time
    that does not say its zone is one of this machine."""

    pattern: re.Pattern[bytes]
    format: str = ""

    def find(self, text: bytes) -> str | None:
        """The time as events have it; None if there is none."""
        match = self.pattern.search(text)
        if match is None:
            return None
        word = match[1 if self.pattern.groups else 0].decode("utf-8", "replace")
        try:
            time = datetime.strptime(word, self.format) if self.format else datetime.fromisoformat(word)
            return shown(time.timestamp())
        except (ValueError, OverflowError, OSError):
            return None


def shown(seconds: float) -> str:
    """A time (since 1970) as events have it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def readable(path: str) -> str:
    """A path as text; bytes that are no UTF-8 are replaced."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def merged(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the names of both; what `more` says counts."""
    for name, value in more.items():
        old = base.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            base[name] = merged(dict(old), value)
        else:
            base[name] = value
    return base


def wrong_names(key: str, fields: Sequence[str], pattern: re.Pattern[bytes] | None) -> str | None:
    """Why a key cannot be made; None if it can."""
    allowed = ["host", "path", "file", *(f"fields.{name}" for name in fields)]
    if pattern is not None:
        allowed += [*pattern.groupindex, *map(str, range(pattern.groups + 1))]
    try:
        names = [name for _, name, _, _ in FORMATTER.parse(key) if name is not None]
    except ValueError as error:
        return str(error)
    wrong = [name for name in names if name not in allowed]
    return f"{{{wrong[0]}}} is unknown; allowed: {', '.join(allowed)}" if wrong else None
