"""How `barnabas produce` makes records of lines."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from barnabas.cli.records.codecs import Codecs, Refused
from barnabas.terminal.errors import CliError

Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Record:
    """One record to send; None leaves the choice to the partitioner or the clock."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None
    topic: str | None = None
    """A topic other than the run's: that of dead letters."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How one line becomes a record."""

    key_separator: bytes | None
    fixed_key: bytes | None
    headers: Headers
    partition: int | None
    empty_is_null: bool
    is_json: bool
    codecs: Codecs | None = None

    def is_plain(self) -> bool:
        """Whether the batch call, which knows no headers, can be used."""
        return not self.headers and not self.is_json and self.codecs is None

    def batch(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """The lines as arguments of produce_batch."""
        if self.key_separator is None and not self.empty_is_null:
            if self.fixed_key is None:
                return [{"value": line} for line in lines]
            return [{"value": line, "key": self.fixed_key} for line in lines]
        batch = []
        for line in lines:
            record = self.record(line)
            arguments: dict[str, Any] = {"value": record.value}
            if record.key is not None:
                arguments["key"] = record.key
            batch.append(arguments)
        return batch

    def record(self, line: bytes) -> Record:
        """One line as a record. Raises CliError for JSON that cannot be read, or does not suit its schema."""
        record = self._plain_record(line)
        if self.codecs is not None:
            key, value = record.key, record.value
            try:
                record.key = self.codecs.encoded("key", key)
                record.value = self.codecs.encoded("value", value)
            except Refused as error:
                error.key, error.value = key, value
                error.headers[:0] = record.headers
                raise
        return record

    def _plain_record(self, line: bytes) -> Record:
        if self.is_json:
            return record_of_json(line, self)
        key, value = self.fixed_key, line
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator)
            if separator:
                key, value = before, after
        if not self.empty_is_null:
            return Record(value, key, self.headers, self.partition)
        return Record(value or None, key or None, self.headers, self.partition)


def record_of_json(line: bytes, shape: LineFormat) -> Record:
    """One envelope as `consume -J` writes it (`value` is taken for `payload`). Raises CliError."""
    try:
        read = json.loads(line)
    except json.JSONDecodeError as error:
        raise CliError(f"column {error.colno}: {error.msg}; -J needs one JSON object per line") from None
    except ValueError as error:
        raise CliError(f"{error}; -J needs one JSON object per line") from None
    if not isinstance(read, dict):
        raise CliError(f"-J needs one JSON object per line, not {line[:60].decode(errors='replace')}")
    name = next((name for name in ("payload", "value") if read.keys() & {name, f"{name}_base64"}), None)
    if name is None:
        raise CliError(
            "neither `value` nor `payload`; write null for a record without a value, or leave out -J"
        )
    try:
        return Record(
            json_bytes(read, name),
            json_bytes(read, "key") if shape.fixed_key is None else shape.fixed_key,
            [*json_headers(read.get("headers") or []), *shape.headers],
            shape.partition,
            read.get("ts"),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise CliError(f"not an envelope as `consume -J` writes it: {error}") from None


def json_headers(headers: Any) -> Headers:
    """Headers of an envelope: a flat list of names and values, or an object. Raises ValueError, TypeError."""
    pairs = headers.items() if isinstance(headers, dict) else zip(headers[::2], headers[1::2], strict=True)
    return [(str(name), None if value is None else str(value).encode()) for name, value in pairs]


def json_bytes(read: dict[str, Any], name: str) -> bytes | None:
    """A field of an envelope as bytes: text, base64, or any other JSON value as compact JSON."""
    encoded = read.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    value = read.get(name)
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def parse_headers(items: list[str]) -> Headers:
    """-H name=value; a name without `=` has a null value."""
    return [
        (name, value.encode("utf-8", "surrogateescape") if equals else None)
        for name, equals, value in (item.partition("=") for item in items)
    ]
