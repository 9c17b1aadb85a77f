"""Keys and values as people read them: by the registry, as JSON, text or hex, and those of the internal topics."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.registry import NoRegistry, RegistryClient, RegistryError
from barnabas.console.records.formats import DECODERS, Undecodable, guessed, plain
from barnabas.console.records.glue import GlueSchemas, glue_payload, glue_version
from barnabas.http_client import Address
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import NotFramed, frame, named_schema
from barnabas.schemas.model import Reference
from barnabas.wire.primitives import UnsupportedVersion, WireError
from barnabas.wire.records_schemas.as_json import INTERNAL_TOPICS, record_json

FORMATS: Final = ("auto", "schema", "json", "msgpack", "cbor", "xml", "text", "hex", "base64")
"""What a reader may ask for. schema: by the registry, and nothing else."""
_read: Final = json.JSONDecoder().raw_decode
CODECS_MAX: Final = 500
UNKNOWN_ID_MAX: Final = 1_000
LOOK_AGAIN_S: Final = 30.0
"""So long a registry is not asked again for a schema that it does not have, or for any when it has not answered."""
ANSWER_S: Final = 5.0
REASON_MAX: Final = 300

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A key or value. kind: null, json, msgpack, cbor, xml, text, hex, base64, the kind of its schema, internal, masked, or
    the name of a function that the console was started with.

    text: as people read it. document: the JSON value, None if it is none. schema: id, GUID, or the version's id of AWS
    Glue. error: why it could not be decoded as asked; text is hex then.
    """

    kind: str
    text: str
    size_bytes: int
    document: Any = None
    schema: str | None = None
    error: str | None = None


class Decoder:
    """Decodes the keys and values of one cluster. Called in threads: a registry may have to be asked.

    formats: what a reader may ask for: FORMATS, and the names of `more`, functions that make a JSON value of bytes. glue:
    schemas of AWS Glue.
    """

    def __init__(
        self,
        registry: Callable[[], Address | None],
        glue: GlueSchemas | None = None,
        more: Mapping[str, Callable[[bytes], Any]] | None = None,
    ) -> None:
        self._address = registry
        self._glue = glue
        self._more = more or {}
        self.formats = (*FORMATS, *self._more)
        self._registry: RegistryClient | None = None
        self._codecs: dict[int | str, Any] = {}
        self._unknown: dict[int | str, tuple[float, str]] = {}
        self._away: tuple[float, str] = (0.0, "")
        self._lock = threading.Lock()

    def shown(self, topic: str, part: str, data: bytes | None, how: str, headers: Headers = ()) -> Shown:
        """part: key or value. how: one of `formats`."""
        if data is None:
            return Shown("null", "", 0)
        if how in ("auto", "schema"):
            decoded = self._by_schema(part, data, headers, must=how == "schema")
            if decoded is not None:
                return decoded
        if how in ("auto", "json"):
            document, is_json = json_value(data)
            if is_json and (how == "json" or isinstance(document, (dict, list))):
                return Shown("json", pretty(document), len(data), document)
            if how == "json":
                return Shown("hex", data.hex(" "), len(data), error="it is not JSON")
        if how in DECODERS:
            try:
                return _decoded(how, DECODERS[how](data), data)
            except Undecodable as error:
                return Shown("hex", data.hex(" "), len(data), error=str(error))
        if how in self._more:
            return self._plugged(how, data)
        if how == "auto":
            guess = guessed(data)
            if guess is not None:
                return _decoded(*guess, data)
        if how == "hex":
            return Shown("hex", data.hex(" "), len(data))
        if how == "base64":
            return Shown("base64", base64.b64encode(data).decode(), len(data))
        return _text(data, must=how == "text")

    def internal(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[Shown, Shown] | None:
        """Key and value of a record of an internal topic; None for other topics, and for what cannot be read."""
        types = INTERNAL_TOPICS.get(topic)
        if types is None or key is None:
            return None
        try:
            key_json, value_json = record_json(types, key, value)
        except (UnsupportedVersion, WireError):
            return None
        shown_key = Shown("internal", pretty(key_json), len(key), key_json)
        if value is None or value_json is None:
            return shown_key, Shown("null", "", 0)
        return shown_key, Shown("internal", pretty(value_json), len(value), value_json)

    def _by_schema(self, part: str, data: bytes, headers: Headers, *, must: bool) -> Shown | None:
        version = glue_version(data)
        if version is not None:
            return self._by_glue(version, data)
        try:
            schema_id, payload = named_schema(data, headers, part)
        except NotFramed as error:
            return Shown("hex", data.hex(" "), len(data), error=str(error)) if must else None
        kind_codec = self._codec(schema_id)
        if isinstance(kind_codec, str):
            # Five bytes that begin with zero may be anything: without a registry they are shown as they are.
            if not must and self._registry is None:
                return None
            return Shown("hex", data.hex(" "), len(data), schema=str(schema_id), error=kind_codec)
        kind, codec = kind_codec
        try:
            document = codec.decode(payload)
        except (Mismatch, NotFramed) as error:
            return Shown("hex", data.hex(" "), len(data), schema=str(schema_id), error=str(error))
        return Shown(kind.lower(), pretty(document), len(data), document, str(schema_id))

    def _by_glue(self, version: str, data: bytes) -> Shown:
        if self._glue is None:
            reason = (
                f"its schema is version {version} of AWS Glue; say where its file is with --glue-schemas DIR"
            )
            return Shown("hex", data.hex(" "), len(data), schema=version, error=reason)
        kind_codec = self._glue.codec(version)
        if isinstance(kind_codec, str):
            return Shown("hex", data.hex(" "), len(data), schema=version, error=kind_codec)
        kind, codec = kind_codec
        try:
            document = codec.decode(glue_payload(data))
        except Mismatch as error:
            return Shown("hex", data.hex(" "), len(data), schema=version, error=str(error))
        return Shown(kind.lower(), pretty(document), len(data), document, version)

    def _plugged(self, how: str, data: bytes) -> Shown:
        """By a function that whoever started the console has named: it may raise anything."""
        try:
            document = plain(self._more[how](data))
            return Shown(how, pretty(document), len(data), document)
        except Exception as error:
            reason = f"{how} cannot decode it: {error or type(error).__name__}"[:REASON_MAX]
            return Shown("hex", data.hex(" "), len(data), error=reason)

    def _codec(self, schema_id: int | str) -> tuple[str, Any] | str:
        """(kind, codec), or why there is none."""
        with self._lock:
            known = self._codecs.get(schema_id)
            if known is not None:
                return known  # type: ignore[no-any-return]
            now_s = time.monotonic()
            for until_s, reason in (self._away, self._unknown.get(schema_id, (0.0, ""))):
                if now_s < until_s:
                    return f"schema {schema_id}{reason}"
            if self._registry is None:
                address = self._address()
                if address is None:
                    return "there is no registry"
                self._registry = RegistryClient(
                    address.url, timeout_s=ANSWER_S, tries=1, context=address.context
                )
            registry = self._registry
        from barnabas.schemas.codecs.schemas import make_codec

        try:
            schema = registry.by_guid(schema_id) if isinstance(schema_id, str) else registry.by_id(schema_id)
            dependencies = [
                Dependency(name, Reference(name, name, 1), text) for name, text in schema.dependencies
            ]
            codec = (schema.kind, make_codec(schema.kind, schema.text, dependencies))
        except NoRegistry as error:
            with self._lock:
                self._away = (time.monotonic() + LOOK_AGAIN_S, f": {error}")
            return f"schema {schema_id}: {error}"
        except RegistryError as error:
            return self._remember_unknown(schema_id, f": {error}")
        except (InvalidSchema, ImportError) as error:
            return self._remember_unknown(schema_id, f" cannot be used: {error}")
        with self._lock:
            if len(self._codecs) >= CODECS_MAX:
                self._codecs.clear()
            self._codecs[schema_id] = codec
        return codec

    def encoded(self, schema_id: int, document: Any) -> bytes:
        """A JSON value as the bytes of a record with this schema. Raises Mismatch, with the reason."""
        kind_codec = self._codec(schema_id)
        if isinstance(kind_codec, str):
            raise Mismatch(kind_codec)
        return frame(schema_id, kind_codec[1].encode(document))

    def _remember_unknown(self, schema_id: int | str, reason: str) -> str:
        with self._lock:
            if len(self._unknown) >= UNKNOWN_ID_MAX:
                self._unknown.clear()
            self._unknown[schema_id] = (time.monotonic() + LOOK_AGAIN_S, reason)
        return f"schema {schema_id}{reason}"


def _decoded(kind: str, document: Any, data: bytes) -> Shown:
    """XML is shown as it is, if it is UTF-8; its document is for filters."""
    text = pretty(document)
    if kind == "xml":
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode()
    return Shown(kind, text, len(data), document)


def pretty(document: Any) -> str:
    """A JSON value as text. Objects and lists have a line for each entry."""
    return json.dumps(document, indent=2, ensure_ascii=False, default=str)


def json_value(data: bytes) -> tuple[Any, bool]:
    """(the value, whether it is JSON)."""
    try:  # most values are UTF-8 without spaces around them: json.loads would spend more time on asking than on reading
        text = str(data, "utf-8")
        value, end = _read(text)
        if end == len(text):
            return value, True
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(data), True
    except (ValueError, RecursionError):
        return None, False


def _text(data: bytes, *, must: bool) -> Shown:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if must:
            return Shown(
                "text", data.decode("utf-8", "replace"), len(data), error=f"not UTF-8 at byte {error.start}"
            )
        return Shown("hex", data.hex(" "), len(data))
    controls = sum(1 for c in text[:4096] if c < " " and c not in "\t\n\r")
    if not must and controls > len(text[:4096]) // 10:
        return Shown("hex", data.hex(" "), len(data))
    return Shown("text", text, len(data))
