"""One thread of Kafka Streams as the coordinator sees it: heartbeats of a member of a streams group, without Java."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from barnabas.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.support.process import BrokerProcess
from tests.support.raw import Raw


def counting(source: str, name: str) -> Topology:
    """Words of a topic are counted: one subtopology writes to a repartition topic that another one reads, with state."""
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=[source],
                repartition_sink_topics=[f"{name}-words-repartition"],
            ),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name=f"{name}-words-repartition")],
                state_changelog_topics=[TopicInfo(name=f"{name}-counts-changelog")],
            ),
        ],
    )


class StreamsMember:
    """Does at once what it is told to: its tasks are those of the last answer that named any."""

    def __init__(self, broker: BrokerProcess, group: str, topology: Topology) -> None:
        self.raw = Raw(broker)
        self.group = group
        self.topology = topology
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.tasks: dict[str, list[int]] = {}
        self.standby: dict[str, list[int]] = {}

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        joins = self.epoch == 0
        request = StreamsGroupHeartbeatRequest(
            **{
                "group_id": self.group,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "endpoint_information_epoch": -1,
                "rebalance_timeout_ms": 30_000 if joins else -1,
                "topology": self.topology if joins else None,
                "process_id": self.member_id if joins else None,
                "client_tags": [] if joins else None,
                "active_tasks": _rows(self.tasks),
                "standby_tasks": _rows(self.standby),
                "warmup_tasks": [],
                **fields,
            }
        )
        answer = self.raw.ask(request, StreamsGroupHeartbeatResponse, 0)
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.tasks = _numbers(answer.active_tasks)
                self.standby = _numbers(answer.standby_tasks or ())
        return answer

    def until(
        self, reached: Callable[[StreamsGroupHeartbeatResponse], bool]
    ) -> StreamsGroupHeartbeatResponse:
        """Heartbeats until an answer satisfies."""
        deadline = time.monotonic() + 60
        while not reached(answer := self.beat()):
            assert answer.error_code == 0, answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)
        return answer

    def leave(self) -> None:
        self.beat(member_epoch=-1, active_tasks=None, standby_tasks=None, warmup_tasks=None)
        self.raw.sock.close()


def _rows(tasks: dict[str, list[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=part, partitions=numbers) for part, numbers in tasks.items()]


def _numbers(rows: Iterable[TaskIds]) -> dict[str, list[int]]:
    return {row.subtopology_id: list(row.partitions) for row in rows}
