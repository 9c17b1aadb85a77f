"""Messages and records of the internal topics as JSON values, named and formatted as by Kafka's JSON converters. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas import RecordTypes, decode_record
from barnabas.wire.records_schemas.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from barnabas.wire.records_schemas.group_log import GROUP_RECORDS, GroupMetadataValue
from barnabas.wire.records_schemas.share_state import SHARE_STATE_RECORDS
from barnabas.wire.records_schemas.transaction_log import TRANSACTION_RECORDS
from barnabas.wire.schema import Data, Struct
from barnabas.wire.uuids import uuid_text

INTERNAL_TOPICS: Final[Mapping[str, RecordTypes]] = {
    "__consumer_offsets": GROUP_RECORDS,
    "__transaction_state": TRANSACTION_RECORDS,
    "__share_group_state": SHARE_STATE_RECORDS,
}
"""What the records of each internal topic are."""


def struct_json(struct: Struct, version: int) -> dict[str, Any]:
    """The fields of a message in one version, named and formatted as by Kafka's JSON converters."""
    shown: dict[str, Any] = {}
    for name, field in type(struct).FIELDS.items():
        if not field.exists_in(version):
            continue
        value = getattr(struct, name)
        if field.tag is not None and value == field.default:
            continue
        first, *rest = name.split("_")
        shown[first + "".join(word.capitalize() for word in rest)] = _value_json(value, version)
    return shown


def _value_json(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return struct_json(value, version)
    if isinstance(value, list):
        return [_value_json(element, version) for element in value]
    if isinstance(value, UUID):
        return uuid_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    return value


def record_json(
    types: RecordTypes, key: bytes, value: bytes | None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Key and value of a record of an internal topic; the value is None for a tombstone.

    Raises UnsupportedVersion for a kind of record that is not known, and WireError for malformed bytes.
    """
    decoded_key, decoded = decode_record(types, key, value)
    kind = int.from_bytes(key[:2], "big", signed=True)
    key_json = {"type": str(kind), "data": struct_json(decoded_key, kind)}
    if decoded is None or value is None:
        return key_json, None
    version = int.from_bytes(value[:2], "big", signed=True)
    data = struct_json(decoded, version)
    if isinstance(decoded, GroupMetadataValue) and decoded.protocol_type == PROTOCOL_TYPE:
        _open_members(decoded, data)
    return key_json, {"version": str(version), "data": data}


def _open_members(value: GroupMetadataValue, data: dict[str, Any]) -> None:
    """Decode what members of the consumer protocol sent each other; what cannot be read stays base64."""
    for member, shown in zip(value.members, data["members"], strict=True):
        for name, raw, kind in (
            ("subscription", member.subscription, ConsumerProtocolSubscription),
            ("assignment", member.assignment, ConsumerProtocolAssignment),
        ):
            try:
                inner: Data = kind.decode_versioned(raw)
            except WireError:
                continue
            version = min(int.from_bytes(raw[:2], "big", signed=True), kind.VERSIONS[-1])
            shown[name] = struct_json(inner, version)
