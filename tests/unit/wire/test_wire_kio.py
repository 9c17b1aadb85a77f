"""Our bytes are kio's bytes: its schemas are generated from Kafka's own definitions."""

from __future__ import annotations

import random
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from tests.support.wire_samples import all_messages, sample

from barnabas.wire.messages import CATALOGUE
from barnabas.wire.records_schemas import consumer_protocol, control
from barnabas.wire.schema import Message

serial = pytest.importorskip("kio.serial")
index = pytest.importorskip("kio.schema.index")

DATA = {
    "consumer_protocol_subscription": consumer_protocol.ConsumerProtocolSubscription,
    "consumer_protocol_assignment": consumer_protocol.ConsumerProtocolAssignment,
    "end_txn_marker": control.EndTxnMarker,
    "leader_change_message": control.LeaderChangeMessage,
}


def kio_versions(cls: type[Message]) -> dict[int, Any]:
    """kio's classes for one of our requests or responses, by version."""
    module = CATALOGUE[cls.API_KEY][1]
    kind = "request" if cls.IS_REQUEST else "response"
    versions = {}
    for version in index.schema_name_map[module]:
        loaded = import_module(f"kio.schema.{module}.v{version}.{kind}")
        versions[version] = getattr(loaded, cls.__name__)
    return versions


def through_kio(theirs: Any, encoded: bytes) -> bytes:
    entity, size = serial.entity_reader(theirs)(encoded, 0)
    assert size == len(encoded), "kio read a different length"
    buffer = BytesIO()
    serial.entity_writer(theirs)(buffer, entity)
    return buffer.getvalue()


def check(cls: type[Message], theirs: Any, version: int) -> None:
    for seed in range(4):
        message = sample(cls, version, random.Random(seed), seed)
        encoded = message.encode(version)
        from_kio = through_kio(theirs, encoded)
        assert from_kio == encoded, f"version {version}"
        assert cls.decode(from_kio, version) == message


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_bytes_equal_kio(cls: type[Message]) -> None:
    versions = kio_versions(cls)
    assert max(versions) == cls.VERSIONS[-1], "kio knows another newest version"
    for version, theirs in versions.items():
        check(cls, theirs, version)


@pytest.mark.parametrize("module", DATA)
def test_data_bytes_equal_kio(module: str) -> None:
    cls = DATA[module]
    for version in index.schema_name_map[module]:
        loaded = import_module(f"kio.schema.{module}.v{version}.data")
        check(cls, getattr(loaded, cls.__name__), version)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_header_kind_equals_kio(cls: type[Message]) -> None:
    for version, theirs in kio_versions(cls).items():
        flexible = cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM
        assert theirs.__flexible__ == flexible
