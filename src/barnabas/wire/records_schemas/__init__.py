"""The contents of records in Kafka's own topics, and what group members send each other.

Keys and values begin with an int16: in a value it is the version of the layout, in a key it is the kind of record
(which Kafka formerly called the key's version), so each key class has just that one version.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.wire.primitives import Buffer, UnsupportedVersion, WireError
from barnabas.wire.schema import Data

RecordTypes = Mapping[int, tuple[type[Data], type[Data]]]


def decode_record(types: RecordTypes, key: Buffer, value: Buffer | None) -> tuple[Data, Data | None]:
    """Key and value of one record of an internal topic; the value is None for a tombstone.

    Raises UnsupportedVersion for a kind of record that is not in `types`, which readers skip as Kafka does,
    and WireError for malformed bytes.
    """
    if len(key) < 2:
        raise WireError(f"record key of {len(key)} bytes has no kind")
    kind = int.from_bytes(key[:2], "big", signed=True)
    if kind not in types:
        raise UnsupportedVersion(f"record kind {kind} is not known here")
    key_class, value_class = types[kind]
    return key_class.decode(key, kind, 2), None if value is None else value_class.decode_versioned(value)
