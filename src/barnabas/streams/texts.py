"""Keys and values as texts, in which state and the records between the stages of a topology keep them.

JSON, in which an object with the one field `$` and a kind stands for what JSON does not have: bytes, tuples, sets, times,
decimals, windowed keys, and objects of the classes that a topology knows.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from barnabas.streams.records import Change, Window, Windowed

KIND: Final = "$"
Classes = Mapping[str, type]


class NotKept(ValueError):
    """A value of a kind that state cannot keep."""


def text_of(value: Any) -> str:
    """The text of a value; the same for equal ones. Raises NotKept."""
    kind = type(value)
    if kind is str:
        return _string(value)
    if kind is int:
        return str(value)
    if kind is list:
        return f"[{','.join([text_of(one) for one in value])}]"
    if kind is Windowed:
        window = value.window
        return f'{{"{KIND}":"windowed","v":[{text_of(value.key)},{window.start},{window.end}]}}'
    return _encode(_plain(value))


_string: Final[Callable[[str], str]] = json.encoder.encode_basestring
_encode: Final[Callable[[Any], str]] = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_scan: Final[Any] = vars(json.JSONDecoder())["scan_once"]
"""Reads JSON without white space around it."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def value_of(text: str, classes: Classes) -> Any:
    """The value of a text."""
    content = _scan(text, 0)[0]
    return content if type(content) in _PLAIN else _value_of(content, classes)


def is_model(kind: Any) -> bool:
    """Whether it is a class of pydantic's models, which need not be installed."""
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_fields")


def name_of(kind: type) -> str:
    """The name under which a topology knows a class."""
    return kind.__qualname__


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {KIND: "float", "v": repr(value)}
    if kind is list:
        return [_plain(one) for one in value]
    if kind is dict:
        if all(type(key) is str for key in value) and KIND not in value:
            return {key: _plain(one) for key, one in value.items()}
        return {KIND: "dict", "v": [[_plain(key), _plain(one)] for key, one in value.items()]}
    writer = _WRITERS.get(kind)
    if writer is not None:
        name, write = writer
        return {KIND: name, "v": write(value)}
    return _object(value)


def _object(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, Enum):
        return {KIND: "enum", "of": name_of(kind), "v": value.name}
    if dataclasses.is_dataclass(value):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {KIND: "data", "of": name_of(kind), "v": fields}
    if is_model(kind):
        return {KIND: "model", "of": name_of(kind), "v": value.model_dump(mode="json")}
    raise NotKept(
        f"a {kind.__name__} cannot be kept in state or sent on by its key: use text, numbers, bytes, lists, dicts, "
        "dataclasses or pydantic models"
    )


_WRITERS: Final[Mapping[type, tuple[str, Callable[[Any], Any]]]] = {
    bytes: ("bytes", lambda v: base64.b64encode(v).decode()),
    tuple: ("tuple", lambda v: [_plain(one) for one in v]),
    set: ("set", lambda v: sorted((_plain(one) for one in v), key=repr)),
    frozenset: ("frozenset", lambda v: sorted((_plain(one) for one in v), key=repr)),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    timedelta: ("timedelta", lambda v: v // timedelta(microseconds=1)),
    Decimal: ("decimal", str),
    uuid.UUID: ("uuid", str),
    Windowed: ("windowed", lambda v: [_plain(v.key), v.window.start, v.window.end]),
    Change: ("change", lambda v: [_plain(v.new), _plain(v.old)]),
}


def _value_of(value: Any, classes: Classes) -> Any:
    if isinstance(value, list):
        return [one if type(one) in _PLAIN else _value_of(one, classes) for one in value]
    if not isinstance(value, dict):
        return value
    if KIND not in value:
        return {key: _value_of(one, classes) for key, one in value.items()}
    return _READERS[value[KIND]](value, classes)


def _class(value: Mapping[str, Any], classes: Classes) -> Any:
    cls = classes.get(value["of"])
    if cls is None:
        raise NotKept(f"state has a {value['of']}, a class that the topology's module does not have any more")
    return cls


def _listed(value: Any, classes: Classes) -> list[Any]:
    return [_value_of(one, classes) for one in value["v"]]


_READERS: Final[Mapping[str, Callable[[Any, Classes], Any]]] = {
    "bytes": lambda v, _: base64.b64decode(v["v"]),
    "float": lambda v, _: float(v["v"]),
    "tuple": lambda v, classes: tuple(_listed(v, classes)),
    "set": lambda v, classes: set(_listed(v, classes)),
    "frozenset": lambda v, classes: frozenset(_listed(v, classes)),
    "dict": lambda v, classes: {_value_of(key, classes): _value_of(one, classes) for key, one in v["v"]},
    "datetime": lambda v, _: datetime.fromisoformat(v["v"]),
    "date": lambda v, _: date.fromisoformat(v["v"]),
    "timedelta": lambda v, _: timedelta(microseconds=v["v"]),
    "decimal": lambda v, _: Decimal(v["v"]),
    "uuid": lambda v, _: uuid.UUID(v["v"]),
    "windowed": lambda v, classes: Windowed(_value_of(v["v"][0], classes), Window(v["v"][1], v["v"][2])),
    "change": lambda v, classes: Change(_value_of(v["v"][0], classes), _value_of(v["v"][1], classes)),
    "enum": lambda v, classes: _class(v, classes)[v["v"]],
    "data": lambda v, classes: _class(v, classes)(
        **{k: _value_of(one, classes) for k, one in v["v"].items()}
    ),
    "model": lambda v, classes: _class(v, classes).model_validate(v["v"]),
}
