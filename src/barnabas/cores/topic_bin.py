"""The bin of deleted topics: what the tree keeps of them, how they go there, and how they come back.

A topic that is deleted while `barnabas.topic.bin.ms` is not 0 gets a deletion mark that says so (`Mark`). Its nodes are
then removed as those of every deleted topic, but first they are copied into one node below DELETED_TOPICS, named by the
topic's id. Brokers keep the topic's logs, renamed, as long as that node exists. A topic that is restored keeps its id, and
may get another name, so it does not matter whether a new topic has taken the old one.

Each step may be cut anywhere. While the mark is there, the removal continues, and what was copied before is kept. While the
bin's node is there, the restoration continues: leaders that the restored topic lacks are chosen from that node. This module
has the format of the nodes, binning.py the decisions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.cores import znode_layout as layout
from barnabas.cores.znode_layout import BadPayload
from barnabas.wire.uuids import uuid_text

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """What the deletion mark of a topic says that is to rest in the bin. until_ms: when it may be removed for good."""

    topic_id: UUID
    deleted_ms: int
    until_ms: int


class LastState(NamedTuple):
    """A partition as it was when its topic was deleted."""

    leader_epoch: int
    in_sync: Replicas


@dataclass(frozen=True, slots=True)
class BinnedTopic:
    """A deleted topic that can be restored. replicas, states: by partition; config: the options that it had set."""

    name: str
    topic_id: UUID
    deleted_ms: int
    until_ms: int
    replicas: Mapping[int, Replicas]
    states: Mapping[int, LastState]
    config: Mapping[str, str] = field(default_factory=dict)


def encode_mark(mark: Mark) -> bytes:
    """Payload of /admin/delete_topics/T; that of Kafka is empty."""
    return json.dumps(
        {
            "version": 1,
            "bin": {
                "topic_id": uuid_text(mark.topic_id),
                "deleted_ms": mark.deleted_ms,
                "until_ms": mark.until_ms,
            },
        }
    ).encode()


def decode_mark(path: str, data: bytes) -> Mark | None:
    """The mark in a payload; None for a topic that is deleted for good. Raises BadPayload."""
    if not data:
        return None
    try:
        mark = json.loads(data).get("bin")
        if mark is None:
            return None
        topic_id = layout.topic_id_of(mark["topic_id"])
        return Mark(topic_id, int(mark["deleted_ms"]), int(mark["until_ms"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadPayload(f"{path}: {error!r}") from None


def encode_binned(topic: BinnedTopic) -> bytes:
    """Payload of a node below DELETED_TOPICS."""
    partitions: list[Any] = []
    for index, replicas in sorted(topic.replicas.items()):
        state = topic.states.get(index)
        partitions.append(
            [index, replicas] if state is None else [index, replicas, state.leader_epoch, state.in_sync]
        )
    value = {
        "version": 1,
        "name": topic.name,
        "deleted_ms": topic.deleted_ms,
        "until_ms": topic.until_ms,
        "config": dict(topic.config),
        "partitions": partitions,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_binned(path: str, data: bytes) -> BinnedTopic:
    """The topic in a payload. Raises BadPayload."""
    topic_id = layout.topic_id_of(path.rpartition("/")[2])
    try:
        value = json.loads(data)
        replicas: dict[int, Replicas] = {}
        states: dict[int, LastState] = {}
        for index, held_by, *state in value["partitions"]:
            replicas[int(index)] = tuple(map(int, held_by))
            if state:
                states[int(index)] = LastState(int(state[0]), tuple(map(int, state[1])))
        config = {str(name): str(text) for name, text in value.get("config", {}).items()}
        return BinnedTopic(
            str(value["name"]), topic_id, int(value["deleted_ms"]), int(value["until_ms"]), replicas, states, config
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadPayload(f"{path}: {error!r}") from None
