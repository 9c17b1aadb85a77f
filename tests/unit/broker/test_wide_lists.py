"""A request about hundreds of partitions or rules is answered in several turns of the loop, with a row for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.api.handlers.cluster import describe_log_dirs
from barnabas.broker.api.handlers.groups import offset_commit, offset_delete, offset_fetch
from barnabas.broker.api.handlers.once import OFFSETS_PER_STEP
from barnabas.broker.api.handlers.records import describe_producers, offset_for_leader_epoch
from barnabas.broker.api.handlers.security import create_acls, delete_acls, describe_acls
from barnabas.broker.api.handlers.shares import describe_share_group_offsets
from barnabas.cores.acl import Operation, Pattern, Permission, ResourceType
from barnabas.runtime import pace
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.broker.share_stage import GROUP, Stage, run, stage

WIDTH = 2 * OFFSETS_PER_STEP + 50
ALL = list(range(WIDTH))


async def answered(answering: Awaitable[Any]) -> Any:
    """The answer, for which others had turns in between."""
    future, turns = asyncio.ensure_future(answering), 0
    while not future.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > WIDTH / OFFSETS_PER_STEP
    return future.result()


async def commit(on: Stage, indexes: list[int], offset: int) -> list[int]:
    rows = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in indexes
    ]
    request = OffsetCommitRequest(
        group_id="readers", topics=[OffsetCommitRequestTopic(name="wide", partitions=rows)]
    )
    answer = await answered(offset_commit.handle(on.context(8), request))
    (topic,) = answer.topics
    assert [row.partition_index for row in topic.partitions] == list(dict.fromkeys(indexes))
    return [row.error_code for row in topic.partitions]


async def fetch(on: Stage, indexes: list[int] | None, *, version: int = 8) -> dict[int, int]:
    if version < offset_fetch.GROUPS_FROM:
        old = None if indexes is None else [OffsetFetchRequestTopic(name="wide", partition_indexes=indexes)]
        request = OffsetFetchRequest(group_id="readers", topics=old)
    else:
        new = None if indexes is None else [OffsetFetchRequestTopics(name="wide", partition_indexes=indexes)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="readers", topics=new)])
    answer = await answered(offset_fetch.handle(on.context(version), request))
    topics = answer.topics if version < offset_fetch.GROUPS_FROM else answer.groups[0].topics
    return {row.partition_index: row.committed_offset for topic in topics for row in topic.partitions}


@pytest.fixture(autouse=True)
def every_rest_ends_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "TURN_MS_MAX", -1.0)


def test_offsets(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        await on.broker.services.controller.topics.create("wide", WIDTH, 1, {}, {})
        assert set(await commit(on, ALL, 7)) == {ErrorCode.NONE}
        unknown = [*ALL, WIDTH, 0]  # one that does not exist, and one twice
        assert (await commit(on, unknown, 9))[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for version in (7, 8):
            assert await fetch(on, None, version=version) == dict.fromkeys(ALL, 9)
            assert await fetch(on, [*ALL, WIDTH], version=version) == dict.fromkeys(ALL, 9) | {WIDTH: -1}
        rows = [OffsetDeleteRequestPartition(partition_index=index) for index in ALL[:-1]]
        request = OffsetDeleteRequest(
            group_id="readers", topics=[OffsetDeleteRequestTopic(name="wide", partitions=rows)]
        )
        answer = await answered(offset_delete.handle(on.context(0), request))
        assert [row.error_code for row in answer.topics[0].partitions] == [0] * (WIDTH - 1)
        assert {i: o for i, o in (await fetch(on, ALL)).items() if o >= 0} == {WIDTH - 1: 9}

    run(tmp_path, scenario)


def test_a_refusal_is_that_of_every_partition(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        await on.broker.services.controller.topics.create("wide", WIDTH, 1, {}, {})
        rows = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
            for index in ALL
        ]
        request = OffsetCommitRequest(
            group_id="readers",
            generation_id_or_member_epoch=3,
            member_id="nobody",
            topics=[OffsetCommitRequestTopic(name="wide", partitions=rows)],
        )
        (topic,) = (await answered(offset_commit.handle(on.context(8), request))).topics
        assert {row.error_code for row in topic.partitions} == {ErrorCode.ILLEGAL_GENERATION}

    run(tmp_path, scenario)


def test_what_is_read_of_partitions(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        await on.broker.services.controller.topics.create("wide", WIDTH, 1, {}, {})
        epochs = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="wide",
                    partitions=[OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in ALL],
                )
            ]
        )
        answer = await answered(offset_for_leader_epoch.handle(on.context(4), epochs))
        assert [row.partition for row in answer.topics[0].partitions] == ALL
        producers = DescribeProducersRequest(topics=[TopicRequest(name="wide", partition_indexes=ALL)])
        answer = await answered(describe_producers.handle(on.context(0), producers))
        assert [row.partition_index for row in answer.topics[0].partitions] == ALL
        answer = await answered(describe_log_dirs.handle(on.context(4), DescribeLogDirsRequest(topics=None)))
        sizes = {topic.name: len(topic.partitions) for row in answer.results for topic in row.topics}
        assert sizes["wide"] == WIDTH

    run(tmp_path, scenario)


def test_offsets_of_a_share_group(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        await on.broker.services.controller.topics.create("wide", WIDTH, 1, {}, {})
        await on.join()
        wide = DescribeShareGroupOffsetsRequestTopic(topic_name="wide", partitions=[*ALL, WIDTH])
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[wide])]
        )
        (group,) = (await answered(describe_share_group_offsets.handle(on.context(1), request))).groups
        (topic,) = group.topics
        assert [row.partition_index for row in topic.partitions] == [*ALL, WIDTH]
        codes = [row.error_code for row in topic.partitions]
        assert codes == [ErrorCode.NONE] * WIDTH + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    run(tmp_path, scenario)


def rule(number: int) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=f"topic-{number:04}",
        resource_pattern_type=Pattern.LITERAL,
        principal="User:anna",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


def test_access_rules(tmp_path: Path) -> None:
    names = [f"topic-{number:04}" for number in ALL]
    chosen = {
        "resource_type_filter": ResourceType.TOPIC,
        "resource_name_filter": None,
        "pattern_type_filter": Pattern.ANY,
        "principal_filter": "User:anna",
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }

    async def scenario(on: Stage) -> None:
        bad = rule(0)
        bad.principal = "nobody"
        creations = [*map(rule, ALL), bad]
        answer = await answered(create_acls.handle(on.context(3), CreateAclsRequest(creations=creations)))
        codes = [row.error_code for row in answer.results]
        assert codes == [ErrorCode.NONE] * WIDTH + [ErrorCode.INVALID_REQUEST]
        describe = DescribeAclsRequest(**chosen)
        answer = await answered(describe_acls.handle(on.context(3), describe))
        assert [row.resource_name for row in answer.resources] == names
        delete = DeleteAclsRequest(filters=[DeleteAclsFilter(**chosen)])
        answer = await answered(delete_acls.handle(on.context(3), delete))
        assert [row.resource_name for row in answer.filter_results[0].matching_acls] == names
        assert not (await describe_acls.handle(on.context(3), describe)).resources

    async def main() -> None:
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        async with stage(
            tmp_path, authorizer__class__name=authorizer, allow__everyone__if__no__acl__found="true"
        ) as on:
            await scenario(on)

    asyncio.run(main())
