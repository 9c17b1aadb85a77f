"""Znode payloads: as Kafka wrote them, and back again."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cores import znode_layout as layout
from barnabas.cores.znode_layout import (
    Assignment,
    BadPayload,
    Broker,
    Endpoint,
    PartitionState,
    ProducerIdBlock,
)
from barnabas.wire.uuids import uuid_text

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def test_payloads_of_kafka_3_are_read() -> None:
    """Texts in the form that a ZooKeeper-era broker leaves behind."""
    broker = layout.decode_broker(
        1,
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","OUT":"SASL_SSL"},"endpoints":'
        b'["PLAINTEXT://h:9092","OUT://[::1]:9093"],"jmx_port":-1,"port":9092,"host":"h","version":5,'
        b'"timestamp":"1700000000000","rack":"r1"}',
        epoch=77,
    )
    endpoints = (Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"), Endpoint("OUT", "::1", 9093, "SASL_SSL"))
    assert broker == Broker(1, endpoints, "r1", 1_700_000_000_000, 77)
    assert broker.endpoint("OUT") == endpoints[1]
    assert broker.endpoint("NONE") is None
    state = layout.decode_state(
        "/s", b'{"controller_epoch":3,"leader":2,"version":1,"leader_epoch":5,"isr":[2,1]}', version=9
    )
    assert state == PartitionState(2, 5, (2, 1), 3, False, 9)
    old = layout.decode_assignment("t", b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}')
    assert old.replicas == {0: (1, 2), 1: (2, 1)}
    assert old.topic_id.int == 0
    assert layout.decode_config("/c", b'{"version":1,"config":{"retention.ms":"5"}}') == {"retention.ms": "5"}
    assert (
        layout.decode_controller(b'{"version":2,"brokerid":4,"timestamp":"1","kraftControllerEpoch":-1}') == 4
    )
    assert layout.decode_cluster_id(b'{"version":"1","id":"abc"}') == "abc"
    block = layout.decode_producer_id_block(b'{"version":1,"broker":0,"block_start":"0","block_end":"999"}')
    assert block == ProducerIdBlock(0, 0, 999)
    assert layout.decode_producer_id_block(b"") is None


def test_what_is_written_has_kafka_s_fields() -> None:
    written = json.loads(layout.encode_assignment(Assignment(TOPIC_ID, {1: (2,), 0: (1,)})))
    assert written == {
        "version": 3,
        "topic_id": "ASNFZ4mrze8BI0VniavN7w",
        "partitions": {"0": [1], "1": [2]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert set(json.loads(layout.encode_broker(Broker(1, (Endpoint("S", "h", 1, "SSL"),))))) == {
        "version", "host", "port", "jmx_port", "timestamp", "endpoints", "listener_security_protocol_map", "rack",
        "features",
    }  # fmt: skip


ids = st.integers(0, 2**31 - 1)
replicas = st.lists(ids, min_size=1, max_size=4, unique=True).map(tuple)
maps = st.dictionaries(st.integers(0, 200), replicas, max_size=5)


@given(st.uuids(), maps, maps, maps)
def test_assignments_round_trip(topic_id, first, second, third) -> None:
    assignment = Assignment(topic_id, first, second, third)
    assert layout.decode_assignment("t", layout.encode_assignment(assignment)) == assignment


@given(st.integers(-1, 9), ids, replicas, ids, st.booleans(), ids)
def test_states_round_trip(leader, epoch, isr, controller_epoch, recovering, version) -> None:
    state = PartitionState(leader, epoch, isr, controller_epoch, recovering, version)
    assert layout.decode_state("/s", layout.encode_state(state), version) == state


hosts = st.sampled_from(["localhost", "10.0.0.1", "::1", "fe80::1", "broker-1.example"])
endpoints = st.builds(Endpoint, st.text("ABC_", min_size=1), hosts, st.integers(0, 65535), st.just("SSL"))


@given(
    ids,
    st.lists(endpoints, max_size=3, unique_by=lambda each: each.listener),
    st.none() | st.text(),
    ids,
    ids,
    st.integers(-1, 2**31 - 1),
)
def test_brokers_round_trip(broker_id, found, rack, timestamp_ms, epoch, incarnation) -> None:
    broker = Broker(broker_id, tuple(found), rack, timestamp_ms, epoch, incarnation)
    assert layout.decode_broker(broker_id, layout.encode_broker(broker), epoch) == broker


@given(st.dictionaries(st.text(), st.text()))
def test_configs_round_trip(config) -> None:
    assert layout.decode_config("/c", layout.encode_config(config)) == config


@given(st.text())
def test_names_become_path_parts_and_names_again(name) -> None:
    part = layout.sanitize(name)
    assert part.isascii()
    assert "/" not in part
    assert "<" not in part
    assert layout.unsanitize(part) == name


@given(st.uuids())
def test_ids_round_trip(value) -> None:
    assert layout.topic_id_of(uuid_text(value)) == value


@given(st.dictionaries(st.tuples(st.text(min_size=1), ids), replicas))
def test_lists_and_reassignments_round_trip(moves) -> None:
    assert layout.decode_reassignment(layout.encode_reassignment(moves)) == moves
    assert layout.decode_partition_list("/p", layout.encode_partition_list(moves)) == list(moves)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"{}", b'{"isr":1}', b'{"endpoints":[1]}', b"\xff"])
def test_payloads_of_something_else_are_refused(data: bytes) -> None:
    for decode in (
        lambda: layout.decode_broker(1, data),
        lambda: layout.decode_state("/s", data, 0),
        lambda: layout.decode_controller(data),
        lambda: layout.decode_cluster_id(data),
        lambda: layout.decode_reassignment(data),
        lambda: layout.decode_partition_list("/p", data),
    ):
        with pytest.raises(BadPayload):
            decode()


def test_other_payloads_round_trip() -> None:
    assert layout.decode_controller(layout.encode_controller(3, 1)) == 3
    assert layout.decode_cluster_id(layout.encode_cluster_id("x")) == "x"
    block = ProducerIdBlock(1, 1000, 1999)
    assert layout.decode_producer_id_block(layout.encode_producer_id_block(block)) == block
    with pytest.raises(BadPayload, match="not an id"):
        layout.topic_id_of("?")
