"""Keys and values as bytes.

A serde is named by a text (`string`, `json`, `bytes`, `int`, `long`, ...), by a type (`str`, `int`, `dict`, a dataclass, a
pydantic model), or is an object with `serialize` and `deserialize`.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import struct
import typing
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from barnabas.streams.errors import StreamsError
from barnabas.streams.records import Window, Windowed
from barnabas.streams.texts import is_model

T = TypeVar("T")


class Unreadable(ValueError):
    """Bytes that are not what their serde reads."""


class Unwritable(ValueError):
    """A value that its serde cannot write."""


@dataclasses.dataclass(frozen=True)
class Serde(Generic[T]):
    """Reads and writes keys or values. name: for messages. classes: those that values may have."""

    name: str
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]
    classes: tuple[type, ...] = ()

    def read(self, data: bytes, what: str) -> T:
        """The value of these bytes. what: `key` or `value`. Raises ValueError, which says what they are instead."""
        try:
            return self.deserialize(data)
        except Exception as error:
            raise Unreadable(f"the {what} is not {self.name}: {_reason(error)}: {data[:60]!r}") from error

    def write(self, value: Any, what: str) -> bytes | None:
        """The bytes of a value; None of None. Raises ValueError."""
        if value is None:
            return None
        try:
            data = self.serialize(value)
            if data is not None and type(data) is not bytes:
                raise TypeError(f"serialize returned a {type(data).__name__}, not bytes")
            return data
        except Exception as error:
            raise Unwritable(
                f"the {what} {value!r:.60} cannot be written as {self.name}: {_reason(error)}"
            ) from error


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def plain(value: Any) -> Any:
    """A value as JSON can hold it. Raises TypeError."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if is_model(type(value)):
        return value.model_dump(mode="json")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, (Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"a {type(value).__name__} is nothing that JSON has")


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, default=plain, separators=(",", ":"), ensure_ascii=False).encode()


def _any_bytes(value: Any) -> bytes:
    """What is written where nothing else was said: text as it is, bytes too, everything else as JSON."""
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if type(value) is int:
        return str(value).encode()
    if isinstance(value, Windowed):
        return f"{_any_bytes(value.key).decode()}@{value.start}/{value.end}".encode()
    return _json_bytes(value)


def _text(data: bytes) -> str:
    return data.decode()


def _exactly(kind: type) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise TypeError(f"it is a {type(value).__name__}")
        return value if isinstance(value, bytes) else str(value).encode()

    return write


def _packed(name: str, code: str) -> Serde[Any]:
    size = struct.calcsize(code)

    def read(data: bytes) -> Any:
        if len(data) != size:
            raise ValueError(f"it has {len(data)} bytes, not {size}")
        return struct.unpack(code, data)[0]

    return Serde(name, lambda value: struct.pack(code, value), read)


STRING: Final = Serde[Any]("string", _exactly(str), _text)
ANY: Final = Serde[Any]("text", _any_bytes, _text)
"""What is read and written where nothing else was said."""
BYTES: Final = Serde[Any]("bytes", _exactly(bytes), bytes)
JSON: Final = Serde[Any]("json", _json_bytes, lambda data: json.loads(data))
INT: Final = Serde[Any]("int", _exactly(int), lambda data: int(data))
FLOAT: Final = Serde[Any]("float", lambda value: repr(float(value)).encode(), lambda data: float(data))
BOOL: Final = Serde[Any](
    "bool", lambda value: b"true" if value else b"false", lambda data: {b"true": True, b"false": False}[data]
)
NAMED: Final[dict[str, Serde[Any]]] = {
    **{one.name: one for one in (STRING, BYTES, JSON, INT, FLOAT, BOOL)},
    "str": STRING,
    "text": ANY,
    "long": _packed("long", ">q"),
    "integer": _packed("integer", ">i"),
    "short": _packed("short", ">h"),
    "double": _packed("double", ">d"),
    "real": _packed("real", ">f"),
    "uuid": Serde("uuid", lambda value: str(value).encode(), lambda data: uuid.UUID(data.decode())),
}
"""`long`, `integer`, `short`, `double` and `real` are Kafka's, big-endian; `int` and `float` are text."""
TYPES: Final[dict[Any, Serde[Any]]] = {
    str: STRING,
    bytes: BYTES,
    int: INT,
    float: FLOAT,
    bool: BOOL,
    dict: JSON,
    list: JSON,
    uuid.UUID: NAMED["uuid"],
    Any: ANY,
}


def serde_of(kind: Any, default: Serde[Any] = ANY) -> Serde[Any]:
    """The serde that is meant. Raises StreamsError."""
    if kind is None:
        return default
    if isinstance(kind, Serde):
        return kind
    if isinstance(kind, str):
        if kind not in NAMED:
            raise StreamsError(f"there is no serde {kind!r}; there are {', '.join(sorted(NAMED))}")
        return NAMED[kind]
    if (serde := TYPES.get(kind) or TYPES.get(typing.get_origin(kind))) is not None:
        return serde
    if is_model(kind):
        return Serde(kind.__name__, lambda v: v.model_dump_json().encode(), kind.model_validate_json, (kind,))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return Serde(kind.__name__, _json_bytes, lambda data: made_of(kind, json.loads(data)), (kind,))
    if hasattr(kind, "for_topic"):
        serde = kind.for_topic("", "value")
        assert isinstance(serde, Serde)
        return serde
    if hasattr(kind, "serialize") and hasattr(kind, "deserialize"):
        return Serde(type(kind).__name__, kind.serialize, kind.deserialize)
    raise StreamsError(
        f"{kind!r} is no serde: name one ({', '.join(sorted(NAMED))}), or give a type, a dataclass, a pydantic model, "
        "or an object with serialize and deserialize"
    )


def serde_for(serde: Any, topic: str, part: str) -> Serde[Any]:
    """The serde that is meant for a topic's keys or values, see serde_of. topic: empty if functions choose topics. part: key
    or value."""
    return serde.for_topic(topic, part) if hasattr(serde, "for_topic") else serde_of(serde)


def made_of(kind: Any, value: Any) -> Any:
    """A value of JSON as one of a type: dataclasses of objects, at any depth. Raises ValueError or TypeError."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass_of(kind, value)
    if value is None or kind is Any:
        return value
    if origin in (list, tuple, set, frozenset) and arguments:
        return origin(made_of(arguments[0], one) for one in value)
    if origin is dict and arguments:
        return {made_of(arguments[0], key): made_of(arguments[1], one) for key, one in value.items()}
    if arguments and type(None) in arguments:
        return made_of(next(one for one in arguments if one is not type(None)), value)
    if kind in (datetime.datetime, datetime.date, Decimal, uuid.UUID) and isinstance(value, kind):
        return value
    if kind in (datetime.datetime, datetime.date):
        return kind.fromisoformat(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (Decimal, uuid.UUID) or (isinstance(kind, type) and issubclass(kind, Enum)):
        return kind(value)
    if kind in (str, int, float, bool) and (
        not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    ):
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _dataclass_of(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"it is no object, but {value!r:.40}")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name, field in fields.items():
        if name not in value and field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"it has no {name}")
    try:
        return kind(**{name: made_of(hints[name], one) for name, one in value.items() if name in fields})
    except (ValueError, TypeError) as error:
        raise ValueError(f"it is no {kind.__name__}: {error}") from error


def time_windowed(key: Any, size: int | None = None) -> Serde[Any]:
    """Kafka's serde of windowed keys: the key's bytes and the window's start; of windows of `size` milliseconds."""
    inner = serde_of(key)

    def read(data: bytes) -> Windowed[Any]:
        start = struct.unpack(">q", data[-8:])[0]
        return Windowed(inner.deserialize(data[:-8]), Window(start, start + (size or 0)))

    def write(value: Any) -> bytes:
        return inner.serialize(value.key) + struct.pack(">q", value.start)

    return Serde(f"time_windowed({inner.name})", write, read, inner.classes)


def session_windowed(key: Any) -> Serde[Any]:
    """Kafka's serde of keys of sessions: the key's bytes, the window's end, and its start."""
    inner = serde_of(key)

    def read(data: bytes) -> Windowed[Any]:
        end, start = struct.unpack(">qq", data[-16:])
        return Windowed(inner.deserialize(data[:-16]), Window(start, end))

    def write(value: Any) -> bytes:
        return inner.serialize(value.key) + struct.pack(">qq", value.end, value.start)

    return Serde(f"session_windowed({inner.name})", write, read, inner.classes)
