"""Decodes records of the internal topics to text, like the dump tool of Kafka 4.1."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from barnabas.records.batch import Record
from barnabas.storage.checkpoints import encode_uuid
from barnabas.storage.dump import Decoder
from barnabas.wire.primitives import UnsupportedVersion, WireError
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
        return encode_uuid(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    return value


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _coordinator_decoder(types: RecordTypes) -> Decoder:
    def decode(record: Record) -> tuple[str | None, str | None]:
        if record.key is None:
            return f"Error at offset {record.offset}, skipping. The record has no key.", None
        try:
            key, value = decode_record(types, record.key, record.value)
        except UnsupportedVersion:
            kind = int.from_bytes(record.key[:2], "big", signed=True)
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        except WireError as error:
            return f"Error at offset {record.offset}, skipping. {error}", None
        kind = int.from_bytes(record.key[:2], "big", signed=True)
        key_text = _compact({"type": str(kind), "data": struct_json(key, kind)})
        if value is None or record.value is None:
            return key_text, "<DELETE>"
        version = int.from_bytes(record.value[:2], "big", signed=True)
        data = struct_json(value, version)
        if isinstance(value, GroupMetadataValue) and value.protocol_type == PROTOCOL_TYPE:
            _open_members(value, data)
        return key_text, _compact({"version": str(version), "data": data})

    return decode


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


group_log: Final[Decoder] = _coordinator_decoder(GROUP_RECORDS)
"""Records of __consumer_offsets: classic, consumer and share groups, committed offsets."""
transaction_log: Final[Decoder] = _coordinator_decoder(TRANSACTION_RECORDS)
"""Records of __transaction_state."""
share_state: Final[Decoder] = _coordinator_decoder(SHARE_STATE_RECORDS)
"""Records of __share_group_state."""

BY_TOPIC: Final[Mapping[str, Decoder]] = {
    "__consumer_offsets": group_log,
    "__transaction_state": transaction_log,
    "__share_group_state": share_state,
}


def decoder_for(folder: str) -> Decoder | None:
    """The decoder for the internal topic of a partition's folder; None for other topics."""
    return BY_TOPIC.get(folder.rpartition("-")[0])
