"""Delegation tokens in the metadata of a Kafka that is imported: in KRaft's log, and in ZooKeeper's nodes."""

from __future__ import annotations

from barnabas.broker.importing import kraft, zookeeper
from barnabas.cores import tokens
from barnabas.cores import znode_layout as layout
from barnabas.wire.records_schemas import cluster_metadata as kinds

TOKEN = tokens.Token("tZ", "User:alice", "User:root", ("User:bob",), 1_000, 9_000, 5_000)


def record() -> kinds.DelegationTokenRecord:
    return kinds.DelegationTokenRecord(
        owner="User:alice",
        requester="User:root",
        renewers=["User:bob"],
        issue_timestamp=1_000,
        max_timestamp=9_000,
        expiration_timestamp=5_000,
        token_id="tZ",
    )


def test_a_token_of_kraft_is_taken_over() -> None:
    # Kafka's frame: its version, the kind (10) and the layout's version, and the body.
    entry = kinds.decode_metadata(b"\x01\x0a\x00" + bytes(record().encode(0)))
    replay = kraft.Replay("here")
    assert entry is not None
    replay.apply(entry)
    assert replay.finish().tokens == {"tZ": TOKEN}


def test_a_token_that_was_ended_is_not() -> None:
    replay = kraft.Replay("here")
    replay.apply(record())
    replay.apply(kinds.RemoveDelegationTokenRecord(token_id="tZ"))
    assert replay.finish().tokens == {}


def test_a_token_of_zookeeper_is_taken_over() -> None:
    nodes = {
        layout.CLUSTER_ID: b'{"version":"1","id":"abc"}',
        tokens.ROOT: b"",
        tokens.NODES: b"",
        tokens.token_path("tZ"): tokens.encode_token(TOKEN),
    }
    assert zookeeper.read("here", nodes).tokens == {"tZ": TOKEN}
