"""How kafka-console-consumer shows the records of internal topics: one JSON text each, as Kafka's formatters do.

The classes had other names before Kafka 4; the one for offsets printed a text of its own under its old names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Final

from barnabas.wire.primitives import UnsupportedVersion, WireError
from barnabas.wire.records_schemas import RecordTypes, decode_record
from barnabas.wire.records_schemas.as_json import struct_json
from barnabas.wire.records_schemas.group_log import GROUP_RECORDS
from barnabas.wire.records_schemas.share_state import SHARE_STATE_RECORDS
from barnabas.wire.records_schemas.transaction_log import TRANSACTION_RECORDS

OFFSETS: Final = (0, 1)
GROUP: Final = (2,)

Line = Callable[[Any], bytes]
"""What is printed of one message."""


def coordinator_json(types: RecordTypes, kinds: Collection[int]) -> Line:
    """Records of these kinds as JSON, with nothing between them; others are left out."""

    def line(message: Any) -> bytes:
        key, value = message.key(), message.value()
        if not key or int.from_bytes(key[:2], "big", signed=True) not in kinds:
            return b""
        try:
            decoded, content = decode_record(types, key, value)
        except (UnsupportedVersion, WireError):
            return b""
        kind = int.from_bytes(key[:2], "big", signed=True)
        shown: dict[str, Any] = {"key": {"type": kind, "data": struct_json(decoded, kind)}, "value": None}
        if content is not None and value is not None:
            version = int.from_bytes(value[:2], "big", signed=True)
            shown["value"] = {"version": version, "data": struct_json(content, version)}
        return json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode()

    return line


def old_offsets(message: Any) -> bytes:
    """`[group,topic,partition]::OffsetAndMetadata(...)`, as Kafka 2 and 3 printed committed offsets."""
    key, value = message.key(), message.value()
    if not key or int.from_bytes(key[:2], "big", signed=True) not in OFFSETS:
        return b""
    try:
        decoded, content = decode_record(GROUP_RECORDS, key, value)
    except (UnsupportedVersion, WireError):
        return b""
    name: Any = decoded
    text = "NULL"
    if content is not None:
        stored: Any = content
        epoch = "Optional.empty" if stored.leader_epoch < 0 else f"Optional[{stored.leader_epoch}]"
        expires = "None" if stored.expire_timestamp < 0 else f"Some({stored.expire_timestamp})"
        text = (
            f"OffsetAndMetadata(offset={stored.offset}, leaderEpoch={epoch}, metadata={stored.metadata}, "
            f"commitTimestamp={stored.commit_timestamp}, expireTimestamp={expires})"
        )
    return f"[{name.group},{name.topic},{name.partition}]::{text}\n".encode()


def nothing(_message: Any) -> bytes:
    """NoOpMessageFormatter."""
    return b""


BY_CLASS: Final[dict[str, Line]] = {
    "NoOpMessageFormatter": nothing,
    "OffsetsMessageFormatter": coordinator_json(GROUP_RECORDS, OFFSETS),
    "GroupMetadataMessageFormatter": coordinator_json(GROUP_RECORDS, GROUP),
    "TransactionLogMessageFormatter": coordinator_json(TRANSACTION_RECORDS, TRANSACTION_RECORDS),
    "ShareGroupStateMessageFormatter": coordinator_json(SHARE_STATE_RECORDS, SHARE_STATE_RECORDS),
    "ShareGroupMessageFormatter": coordinator_json(SHARE_STATE_RECORDS, SHARE_STATE_RECORDS),
}


def formatter_for(name: str) -> Line | None:
    """The formatter of a class by its full or short name, of any release; None when it is not known here."""
    short = name.replace("$", ".").rpartition(".")[2]
    if (short == "OffsetsMessageFormatter" and "GroupMetadataManager" in name) or "OffsetManager" in name:
        return old_offsets
    return BY_CLASS.get(short)
