"""Decodes records of the internal topics to text, like the dump tool of Kafka 4.1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from barnabas.records.batch import Record
from barnabas.storage.dumping.dump import Decoder
from barnabas.wire.primitives import UnsupportedVersion, WireError
from barnabas.wire.records_schemas import RecordTypes
from barnabas.wire.records_schemas.as_json import INTERNAL_TOPICS, record_json


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _coordinator_decoder(types: RecordTypes) -> Decoder:
    def decode(record: Record) -> tuple[str | None, str | None]:
        if record.key is None:
            return f"Error at offset {record.offset}, skipping. The record has no key.", None
        try:
            key, value = record_json(types, record.key, record.value)
        except UnsupportedVersion:
            kind = int.from_bytes(record.key[:2], "big", signed=True)
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        except WireError as error:
            return f"Error at offset {record.offset}, skipping. {error}", None
        return _compact(key), "<DELETE>" if value is None else _compact(value)

    return decode


BY_TOPIC: Final[Mapping[str, Decoder]] = {
    name: _coordinator_decoder(types) for name, types in INTERNAL_TOPICS.items()
}
group_log: Final = BY_TOPIC["__consumer_offsets"]
transaction_log: Final = BY_TOPIC["__transaction_state"]
share_state: Final = BY_TOPIC["__share_group_state"]


def decoder_for(folder: str) -> Decoder | None:
    """The decoder for the internal topic of a partition's folder; None for other topics."""
    return BY_TOPIC.get(folder.rpartition("-")[0])
