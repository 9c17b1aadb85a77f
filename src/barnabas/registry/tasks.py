"""The work with schemas that may take long: what is asked, and what is answered. Pure.

A task holds everything that it needs, so that another process can carry it out. Its answer does not depend on where that is.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Any, Final, NamedTuple

from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.requests import Wanted, read_wanted
from barnabas.schemas.errors import InvalidSchema, SchemaError
from barnabas.schemas.formats.base import Dependency, Parsed
from barnabas.schemas.formats.comparing import problems_reading
from barnabas.schemas.formats.pairs import OverBudget
from barnabas.schemas.formats.reading import read_schema
from barnabas.schemas.formats.tags import change_tags
from barnabas.schemas.json_text import BadJson, parse_json

SHRINKS: Final = 2
"""A schema more than this many times as large as the largest record is not parsed: its stored form would not fit."""


class Source(NamedTuple):
    """A schema that has not been parsed. new: it is checked more strictly, since it is about to be stored."""

    kind: str
    text: str
    dependencies: tuple[Dependency, ...]
    new: bool

    @property
    def size(self) -> int:
        """The characters to parse."""
        return len(self.text) + sum(len(dependency.text) for dependency in self.dependencies)

    def digest(self) -> bytes:
        """Differs for different sources."""
        hasher = hashlib.sha256()
        rows = [(d.name, d.text) for d in self.dependencies]
        for part in (self.kind, str(self.new), self.text, *(part for row in rows for part in row)):
            raw = part.encode("utf-8", "surrogatepass")
            hasher.update(len(raw).to_bytes(8, "big"))
            hasher.update(raw)
        return hasher.digest()


class Asks(StrEnum):
    """What a task asks about its schemas."""

    CANONICAL = "canonical"
    NORMALIZED = "normalized"
    FORMATTED = "formatted"
    FIELDS = "fields"
    PROBLEMS = "problems"
    TAGGED = "tagged"
    BODY = "body"
    REQUEST = "request"


class Task(NamedTuple):
    """sources: one schema; for PROBLEMS the reader's and the writer's; none for BODY and REQUEST, which parse `body`.

    more: the format; for TAGGED the changes as JSON; for BODY and REQUEST the largest record's bytes.
    """

    asks: Asks
    sources: tuple[Source, ...]
    more: str = ""
    body: bytes = b""

    @property
    def key(self) -> tuple[str, str, bytes]:
        """Equal for tasks with the same answer."""
        return (self.asks, self.more, b"".join(source.digest() for source in self.sources) + self.body)


class Outcome(NamedTuple):
    """value: what was asked for; or the code and message of an error. code: 0 for none, OVER if it would take too long."""

    code: int
    value: Any

    def result(self) -> Any:
        """What was asked for. Raises RegistryError."""
        if self.code == Code.INVALID_SCHEMA:
            raise InvalidSchema(self.value)
        if self.code:
            raise RegistryError(self.code, self.value)
        return self.value

    @property
    def size(self) -> int:
        """About how many characters it holds."""
        if isinstance(self.value, str):
            return len(self.value)
        return sum(len(part) for row in self.value for part in row) if isinstance(self.value, list) else 100


TOO_LONG: Final = Outcome(
    Code.INVALID_SCHEMA,
    "parsing the schema, or comparing it with another version, takes more than the registry allows; "
    "make it simpler, or split it with references",
)


class Desk:
    """Carries out tasks, and keeps the schemas that were parsed last. characters_max: how much of their texts."""

    def __init__(self, characters_max: int = 16 << 20) -> None:
        self._parsed: dict[bytes, tuple[Parsed, int]] = {}
        self._characters_max = characters_max

    def carry_out(self, task: Task) -> Outcome:
        """The answer to a task. Any exception that comes out of here is a bug, or MemoryError."""
        try:
            return Outcome(0, self._answer(task))
        except SchemaError as error:
            return Outcome(error.code, error.message)
        except OverBudget:
            return TOO_LONG

    def _answer(self, task: Task) -> Any:
        if task.asks is Asks.BODY:
            return read_body(task.body, int(task.more))
        if task.asks is Asks.REQUEST:
            return read_request(task.body, int(task.more))
        if task.asks is Asks.TAGGED:
            return change_tags(task.sources[0].kind, task.sources[0].text, json.loads(task.more))
        first, *others = [self._read(source) for source in task.sources]
        match task.asks:
            case Asks.CANONICAL:
                return first.canonical
            case Asks.NORMALIZED:
                return first.normalized()
            case Asks.FORMATTED:
                return first.formatted(task.more)
            case Asks.FIELDS:
                return list(first.field_names())
            case _:
                return [tuple(problem) for problem in problems_reading(first, others[0])]

    def _read(self, source: Source) -> Parsed:
        digest = source.digest()
        entry = self._parsed.pop(digest, None)
        if entry is None:
            entry = (read_schema(source.kind, source.text, source.dependencies, new=source.new), source.size)
        self._parsed[digest] = entry
        total = sum(size for _, size in self._parsed.values())
        for oldest in list(self._parsed)[:-2]:  # never one of the two that are being compared
            if total <= self._characters_max:
                break
            total -= self._parsed.pop(oldest)[1]
        return entry[0]


def read_body(raw: bytes, record_bytes_max: int) -> dict[str, Any]:
    """The JSON object in a large body. Raises RegistryError, also if a record of this size could not hold it.

    A schema in it is not counted, but loses its spaces if it is large.
    """
    try:
        body = parse_json(raw)
    except BadJson as error:
        raise RegistryError(400, f"the body cannot be parsed as JSON: {error}") from None
    if not isinstance(body, dict):
        raise RegistryError(400, "the body is not a JSON object")
    text = body.pop("schema", None)
    require_fitting(len(_compact(body)), record_bytes_max)
    if isinstance(text, str) and len(text) > SHRINKS * record_bytes_max:
        text = _without_spaces(text)
        require_fitting(len(text), record_bytes_max)
    if isinstance(text, str):
        body["schema"] = text
    return body


def read_request(raw: bytes, record_bytes_max: int) -> Wanted:
    """The schema in a large body. Raises RegistryError, also if it could not be stored in a record of this size."""
    return read_wanted(read_body(raw, record_bytes_max))


def require_fitting(size: int, record_bytes_max: int) -> None:
    """Raises RegistryError 42209 for JSON that no record of this size could hold, however it is written."""
    if size > SHRINKS * record_bytes_max:
        raise RegistryError(
            Code.TOO_LARGE,
            f"The schema is too large: its record has {size} bytes, the topic accepts {record_bytes_max}; raise "
            "max.message.bytes of the topic, or split the schema with references",
        )


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _without_spaces(text: str) -> str:
    """A schema's text without most of its spaces; the stored form is not much shorter."""
    try:
        return _compact(parse_json(text))
    except BadJson:  # a .proto file, or a text that the parser will reject
        return "\n".join(line.strip() for line in text.splitlines() if line.strip())
