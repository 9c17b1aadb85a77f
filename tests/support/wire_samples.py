"""Instances of any declared message, made from a seeded random generator and its declaration."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from barnabas.wire.messages import CATALOGUE, request_class, response_class
from barnabas.wire.records_schemas import consumer_protocol, control
from barnabas.wire.records_schemas.group_log import GROUP_RECORDS
from barnabas.wire.records_schemas.share_state import SHARE_STATE_RECORDS
from barnabas.wire.records_schemas.transaction_log import TRANSACTION_RECORDS
from barnabas.wire.schema import UNSET, Data, Field, Message, Struct

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "a", "orders", "naïve-ключ", "x" * 200)


def all_messages() -> list[type[Message]]:
    """Every request and response, by API key."""
    return [pick(key) for key in CATALOGUE for pick in (request_class, response_class)]


def all_data() -> list[type[Data]]:
    """Every embedded schema: group protocol, control records, records of internal topics."""
    classes: list[type[Data]] = [
        consumer_protocol.ConsumerProtocolSubscription,
        consumer_protocol.ConsumerProtocolAssignment,
        control.ControlRecordType,
        control.EndTxnMarker,
        control.LeaderChangeMessage,
    ]
    for records in (GROUP_RECORDS, SHARE_STATE_RECORDS, TRANSACTION_RECORDS):
        for pair in records.values():
            classes += [cls for cls in pair if cls not in classes]
    return classes


def sample(cls: type[Struct], version: int, rng: random.Random, size: int = 3) -> Any:
    """An instance with values that the version can carry; arrays have at most `size` elements."""
    values = {}
    for name, field in cls.FIELDS.items():
        if field.exists_in(version) and not (size == 0 and rng.random() < 0.5):
            values[name] = _value(name, field, version, rng, size)
    return cls(**values)


def _value(name: str, field: Field, version: int, rng: random.Random, size: int) -> Any:
    if field.nullable_in(version) and rng.random() < 0.2:
        return None
    if field.kind == "array":
        count = rng.randint(0, size)
        if isinstance(field.element, str):
            return [_primitive(name, field.element, rng) for _ in range(count)]
        return [sample(field.element, version, rng, size) for _ in range(count)]
    if field.kind == "struct":
        sample_ = sample(field.element, version, rng, size)
        # A tagged struct that equals its default is not sent, and is absent (None) when read back.
        absent = field.tag is not None and not field.null and sample_ == field.element()
        return None if absent else sample_
    if rng.random() < 0.1 and field.default is not UNSET and field.default is not None:
        return field.default
    return _primitive(name, field.kind, rng)


def _primitive(name: str, kind: str, rng: random.Random) -> Any:
    if name.endswith("error_code"):
        return rng.randint(-1, 133)
    if kind in BITS:
        # Times stay within what datetime and timedelta can hold, because kio turns them into these.
        if kind == "int64" and ("timestamp" in name or name.endswith("_ms")):
            return rng.randint(0, 1 << 41)
        limit = 1 << (BITS[kind] - 1)
        return rng.choice((rng.randint(-limit, limit - 1), 0, -1, limit - 1, -limit, 1))
    if kind in ("uint16", "uint32"):
        return rng.randrange(1 << (16 if kind == "uint16" else 32))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.uniform(-1e9, 1e9)
    if kind == "uuid":
        return UUID(int=rng.getrandbits(128) if rng.random() < 0.8 else 0)
    if kind == "string":
        return rng.choice(TEXTS)
    assert kind in ("bytes", "records"), kind
    return rng.randbytes(rng.choice((0, 1, 5, 130)))


def with_every_string(cls: type[Struct], version: int, text: str) -> Any:
    """An instance with one element in every array and `text` in every string; the rest are defaults and zeros."""
    values: dict[str, Any] = {}
    for name, field in cls.FIELDS.items():
        if not field.exists_in(version) or field.tag is not None:
            continue
        if field.kind == "array":
            element = field.element
            if isinstance(element, str):
                values[name] = [text if element == "string" else 0 if element in BITS else UUID(int=1)]
            else:
                values[name] = [with_every_string(element, version, text)]
        elif field.kind == "string":
            values[name] = text
        elif field.kind == "struct" and not field.nullable_in(version):
            values[name] = with_every_string(field.element, version, text)
    return cls(**values)
