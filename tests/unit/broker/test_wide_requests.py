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
from tests.unit.broker.share_stage import Stage, run, stage

ROWS = 200
CLOSED = {
    "authorizer__class__name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow__everyone__if__no__acl__found": "true",
}
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


def names_asked(count: int) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"unknown-{number}") for number in range(count)],
        allow_auto_topic_creation=False,
    )


def test_very_many_unknown_names_take_many_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = metadata.LARGE_ANSWER_ROWS + 1

    async def scenario(on: Stage) -> None:
        monkeypatch.setattr(pace, "TURN_MS_MAX", -1.0)  # as if every row took long
        answering = asyncio.ensure_future(metadata.handle(on.context(9), names_asked(count)))  # type: ignore[arg-type]
        for _ in range(count // 2):
            await asyncio.sleep(0)
        assert not answering.done()
        answer = await answering
        assert isinstance(answer, MetadataResponse)  # and it is not kept: made-up names would fill the memory
        assert [row.name for row in answer.topics] == [f"unknown-{number}" for number in range(count)]
        assert {row.error_code for row in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(tmp_path, scenario)


@pytest.mark.parametrize("options", [{}, CLOSED], ids=["open", "authorizer"])
def test_a_large_answer_is_shared_while_nothing_changes(tmp_path: Path, options: dict[str, str]) -> None:
    async def scenario(on: Stage) -> None:
        await on.broker.services.controller.topics.create("wide", metadata.LARGE_ANSWER_ROWS + 1, 1, {}, {})
        request = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
        answers = [metadata.handle(on.context(9), request) for _ in range(2)]
        bodies = []
        for answer in answers:
            assert isinstance(answer, Awaitable)
            encoded = await answer
            assert isinstance(encoded, Encoded)
            bodies.append(encoded.body)
        assert bodies[0] is bodies[1]
        assert not isinstance(metadata.handle(on.context(9), request), Awaitable)
        (row,) = MetadataResponse.decode(bodies[0], 9).topics
        assert len(row.partitions) == metadata.LARGE_ANSWER_ROWS + 1

    async def main() -> None:
        async with stage(tmp_path, **options) as on:
            await scenario(on)

    asyncio.run(main())
