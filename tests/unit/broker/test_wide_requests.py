"""A request that names thousands of things is answered in many turns of the loop, with a row for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.groups import (
    delete_groups,
    describe_groups,
    find_coordinator,
    offset_fetch,
)
from barnabas.broker.api.handlers.records import list_offsets
from barnabas.broker.api.handlers.topics import metadata
from barnabas.runtime import pace
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import Encoded
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.unit.broker.share_stage import Stage, run

ROWS = 200
NAMES = [f"name-{number}" for number in range(ROWS)]
Ask = Callable[[Context], Any]

ASKED: dict[str, tuple[int, Ask, Callable[[Any], list[Any]]]] = {
    "offsets": (
        8,
        lambda context: offset_fetch.handle(
            context, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name) for name in NAMES])
        ),
        lambda answer: [row.group_id for row in answer.groups],
    ),
    "groups": (
        5,
        lambda context: describe_groups.handle(context, DescribeGroupsRequest(groups=NAMES)),
        lambda answer: [row.group_id for row in answer.groups],
    ),
    "deletions": (
        2,
        lambda context: delete_groups.handle(context, DeleteGroupsRequest(groups_names=NAMES)),
        lambda answer: [row.group_id for row in answer.results],
    ),
    "coordinators": (
        4,
        lambda context: find_coordinator.handle(
            context, FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES)
        ),
        lambda answer: [row.key for row in answer.coordinators],
    ),
    "times": (
        7,
        lambda context: list_offsets.handle(
            context,
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                    )
                    for name in NAMES
                ],
            ),
        ),
        lambda answer: [row.name for row in answer.topics],
    ),
}


@pytest.mark.parametrize("kind", ASKED)
def test_others_have_their_turns_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    version, ask, rows = ASKED[kind]

    async def scenario(on: Stage) -> None:
        monkeypatch.setattr(pace, "TURN_MS_MAX", -1.0)  # as if every row took long
        answering = asyncio.ensure_future(ask(on.context(version)))
        for _ in range(ROWS // 2):
            await asyncio.sleep(0)
        assert not answering.done()
        assert rows(await answering) == NAMES

    run(tmp_path, scenario)


def test_an_answer_about_a_few_partitions_is_there_at_once(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        assert not isinstance(ASKED["times"][1](on.context(7)), Awaitable)

    run(tmp_path, scenario)


def test_very_many_unknown_names_are_answered_by_a_thread(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        names = [f"unknown-{number}" for number in range(metadata.LARGE_ANSWER_ROWS + 1)]
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        answering = metadata.handle(on.context(9), request)
        assert isinstance(answering, Awaitable)
        encoded = await answering
        assert isinstance(encoded, Encoded)
        answer = MetadataResponse.decode(encoded.body, 9)
        assert [row.name for row in answer.topics] == names
        assert {row.error_code for row in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(tmp_path, scenario)
