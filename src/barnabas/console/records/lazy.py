"""Records for filters: decoded only as far as a filter looks, and without what its reader may not see."""

from __future__ import annotations

from typing import Any, Final, Protocol

from barnabas.console.records.decoding import Decoder, Headers, Shown, json_value
from barnabas.console.records.masking import NOTHING, Masks
from barnabas.wire.records_schemas.as_json import INTERNAL_TOPICS


class Source(Protocol):
    """Where a filter's record comes from: rows of one partition, in columns or one by one."""

    @property
    def partition(self) -> int: ...
    def key(self, row: int) -> bytes | None:
        """The key of a row."""
        ...

    def value(self, row: int) -> bytes | None:
        """The value of a row."""
        ...

    def headers(self, row: int) -> Headers:
        """The headers of a row."""
        ...


_UNREAD: Final = object()
_OPENING: Final = (b"{", b"[")
_FRAMED: Final = (b"\0", b"\1", b"\3")
"""What begins records that name their schemas."""


class Lazy:
    """A record for filters: key and value are read and decoded when a filter asks for them. `move` makes it the next one."""

    __slots__ = (
        "_decoder",
        "_how",
        "_is_masked",
        "_key",
        "_masks",
        "_plain",
        "_row",
        "_source",
        "_topic",
        "_value",
        "offset",
        "partition",
        "timestamp",
    )

    def __init__(
        self, decoder: Decoder, topic: str, how: tuple[str, str], source: Source, masks: Masks = NOTHING
    ) -> None:
        """how: the formats of key and value. masks: what filters may not compare."""
        self._masks = masks
        self._is_masked = {part: masks.touches(part) for part in ("key", "value")}
        self._decoder = decoder
        self._topic = topic
        self._how = {"key": how[0], "value": how[1]}
        self._source = source
        self._plain = [p for p, h in self._how.items() if h in ("auto", "json") and not self._is_masked[p]]
        self.partition = source.partition
        self.move(0, 0, 0)

    def move(self, row: int, offset: int, timestamp: int) -> None:
        """Become the record in this row."""
        self._row = row
        self.offset = offset
        self.timestamp = timestamp
        self._key: Any = _UNREAD
        self._value: Any = _UNREAD

    def _data(self, part: str) -> bytes | None:
        return self._source.key(self._row) if part == "key" else self._source.value(self._row)

    def text(self, part: str) -> str | None:
        """See filters.Readable. Of what is decoded by a schema, its JSON text."""
        data, how = self._data(part), self._how[part]
        if data is None:
            return None
        if self._is_masked[part]:
            return self._shown(part, data).text
        if how in ("auto", "json", "text") and (data[:1] not in _FRAMED or how != "auto"):
            return data.decode("utf-8", "replace")
        return self._shown(part, data).text

    def document(self, part: str) -> Any:
        """See filters.Readable."""
        document = self._value if part == "value" else self._key
        if document is not _UNREAD:
            return document
        data = self._source.value(self._row) if part == "value" else self._source.key(self._row)
        if data is None:
            document = None
        elif part in self._plain and data.startswith(_OPENING):
            document, _ = json_value(data)
        elif self._is_masked[part] or self._how[part] not in ("text", "hex", "base64"):
            document = self._shown(part, data).document
        else:
            document = None
        if part == "value":
            self._value = document
        else:
            self._key = document
        return document

    def _shown(self, part: str, data: bytes) -> Shown:
        content = None
        if self._topic in INTERNAL_TOPICS:
            pair = self._decoder.internal(self._topic, self._data("key"), self._data("value"))
            content = None if pair is None else pair[0 if part == "key" else 1]
        if content is None:
            how = self._masks.how(part, self._how[part])
            content = self._decoder.shown(self._topic, part, data, how, self._source.headers(self._row))
        return self._masks.shown(part, content)

    def header(self, name: str) -> str | None:
        """See filters.Readable."""
        content = None
        for held_name, data in self._masks.headers(self._source.headers(self._row)):
            if held_name == name:
                content = data
        return None if content is None else content.decode("utf-8", "replace")
