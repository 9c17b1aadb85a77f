"""API v3: consumer groups, their members, and how far they are behind."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from starlette.responses import Response

from barnabas.admin import LATEST, FoundOffset, Group, Member, ResourceError, Results, TopicPartition
from barnabas.http.errors import HttpError
from barnabas.proxy.call import ProxyCall, answer
from barnabas.proxy.errors import from_client
from barnabas.proxy.v3_cluster import BASE, Work
from barnabas.proxy.v3_shapes import Shapes, collection, shapes_of
from barnabas.wire.errors import ErrorCode

K = TypeVar("K")
V = TypeVar("V")

GROUPS_OF_CONSUMERS: Final = ("consumer", "")
"""Kafka Connect and the registry have groups too; an empty one may be so old that it does not say."""
NO_CONSUMER_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
WORD_BORDER: Final = re.compile("(?<=[a-z])(?=[A-Z])")


def _no_group(name: str) -> HttpError:
    return HttpError(404, f"Consumer group {name[:100]} could not be found.")


async def _group_of(call: ProxyCall) -> Group:
    """The group of the path. Raises HttpError 404."""
    kafka, name = call.services.kafka, call.part("group")
    described = await kafka.ask(kafka.admin.groups.describe([name]))
    error = described.failed.get(name)
    if isinstance(error, ResourceError) and error.code in NO_CONSUMER_GROUP:
        raise _no_group(name) from error
    if error is not None:
        raise from_client(error) from error
    return described[name]


def _group(shapes: Shapes, group: Group) -> dict[str, Any]:
    path = ("consumer-groups", group.name)
    fields = {
        "consumer_group_id": group.name,
        "is_simple": not group.protocol_type,
        "partition_assignor": group.assignor,
        "state": WORD_BORDER.sub("_", group.state).upper(),
        "coordinator": shapes.related("brokers", group.coordinator.id),
        "consumers": shapes.related(*path, "consumers"),
        "lag_summary": shapes.related(*path, "lag-summary"),
    }
    return shapes.resource("KafkaConsumerGroup", path, (("consumer-group", group.name),), fields)


async def list_groups(call: ProxyCall) -> Response:
    """GET .../consumer-groups."""
    shapes, kafka = await shapes_of(call), call.services.kafka
    # That some broker did not answer is an error: an incomplete list would look complete.
    names = [
        row.name
        for rows in (await kafka.ask(_all(kafka.admin.groups.list()))).values()
        for row in rows
        if row.protocol_type in GROUPS_OF_CONSUMERS
    ]
    groups = (await kafka.ask(_all(kafka.admin.groups.describe(sorted(names))))).values()
    return collection(
        "KafkaConsumerGroupList", shapes.url("consumer-groups"), [_group(shapes, group) for group in groups]
    )


async def _all(results: Awaitable[Results[K, V]]) -> Mapping[K, V]:
    """The values of all. Raises the first error."""
    return (await results).require()


async def get_group(call: ProxyCall) -> Response:
    """GET .../consumer-groups/{group}."""
    return answer(_group(await shapes_of(call), await _group_of(call)))


# --- members ------------------------------------------------------------------------------------------


def _member(shapes: Shapes, group: str, member: Member) -> dict[str, Any]:
    path = ("consumer-groups", group, "consumers", member.id)
    fields = {
        "consumer_group_id": group,
        "consumer_id": member.id,
        "instance_id": member.instance,
        "client_id": member.client,
        "assignments": shapes.related(*path, "assignments"),
    }
    names = (("consumer-group", group), ("consumer", member.id))
    return shapes.resource("KafkaConsumer", path, names, fields)


async def _member_of(call: ProxyCall) -> tuple[str, Member]:
    group, wanted = await _group_of(call), call.part("consumer")
    for member in group.members:
        if member.id == wanted:
            return group.name, member
    raise HttpError(404, f"Consumer {wanted[:100]} could not be found.")


async def list_members(call: ProxyCall) -> Response:
    """GET .../consumer-groups/{group}/consumers."""
    shapes, group = await shapes_of(call), await _group_of(call)
    rows = [_member(shapes, group.name, member) for member in group.members]
    return collection("KafkaConsumerList", shapes.url("consumer-groups", group.name, "consumers"), rows)


async def get_member(call: ProxyCall) -> Response:
    """GET .../consumer-groups/{group}/consumers/{consumer}."""
    shapes = await shapes_of(call)
    return answer(_member(shapes, *await _member_of(call)))


def _assignment(shapes: Shapes, group: str, member: str, place: TopicPartition) -> dict[str, Any]:
    inside = (place.topic, "partitions", place.partition)
    path = ("consumer-groups", group, "consumers", member, "assignments", *inside)
    fields = {
        "consumer_group_id": group,
        "consumer_id": member,
        "topic_name": place.topic,
        "partition_id": place.partition,
        "partition": shapes.related("topics", *inside),
        "lag": shapes.related("consumer-groups", group, "lags", *inside),
    }
    names = (
        ("consumer-group", group),
        ("consumer", member),
        ("assignment", place.topic),
        ("partition", place.partition),
    )
    return shapes.resource("KafkaConsumerAssignment", path, names, fields)


async def list_assignments(call: ProxyCall) -> Response:
    """GET .../consumers/{consumer}/assignments."""
    shapes = await shapes_of(call)
    group, member = await _member_of(call)
    places = sorted(member.assigned)
    rows = [_assignment(shapes, group, member.id, place) for place in places]
    url = shapes.url("consumer-groups", group, "consumers", member.id, "assignments")
    return collection("KafkaConsumerAssignmentList", url, rows)


async def get_assignment(call: ProxyCall) -> Response:
    """GET .../consumers/{consumer}/assignments/{topic}/partitions/{partition}."""
    shapes = await shapes_of(call)
    group, member = await _member_of(call)
    missing = HttpError(404, "Consumer assignment could not be found.")
    wanted = (call.part("topic"), call.number_part("partition", missing))
    for place in member.assigned:
        if (place.topic, place.partition) == wanted:
            return answer(_assignment(shapes, group, member.id, place))
    raise missing


# --- lags ---------------------------------------------------------------------------------------------


class Lag(NamedTuple):
    """How far a group is behind in one partition. consumer, client: empty if no member is assigned the partition."""

    topic: str
    partition: int
    current: int
    end: int
    consumer: str
    instance: str | None
    client: str

    @property
    def lag(self) -> int:
        """How many offsets are still to be read."""
        return max(self.end - self.current, 0)


async def lags_of(call: ProxyCall) -> tuple[str, list[Lag]]:
    """The group of the path, and its lag in each partition for which it has committed an offset. Raises HttpError."""
    group, kafka = await _group_of(call), call.services.kafka
    committed = (await kafka.ask(_all(kafka.admin.groups.offsets([group.name]))))[group.name]
    # Of a topic that was deleted, the offsets are still stored.

    async def read_ends() -> Mapping[TopicPartition, FoundOffset]:
        results = await kafka.admin.records.offsets(dict.fromkeys(sorted(committed), LATEST))
        return results.except_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).require()

    ends = await kafka.ask(read_ends())
    owners = {place: member for member in group.members for place in member.assigned}
    lags = []
    for place, end in ends.items():
        owner = owners.get(place)
        lags.append(
            Lag(
                place.topic,
                place.partition,
                committed[place].offset,
                -1 if end.offset is None else end.offset,
                "" if owner is None else owner.id,
                None if owner is None else owner.instance,
                "" if owner is None else owner.client,
            )
        )
    return group.name, lags


def _lag(shapes: Shapes, group: str, lag: Lag) -> dict[str, Any]:
    path = ("consumer-groups", group, "lags", lag.topic, "partitions", lag.partition)
    fields = {
        "consumer_group_id": group,
        "topic_name": lag.topic,
        "partition_id": lag.partition,
        "consumer_id": lag.consumer,
        "instance_id": lag.instance,
        "client_id": lag.client,
        "current_offset": lag.current,
        "log_end_offset": lag.end,
        "lag": lag.lag,
    }
    names = (("consumer-group", group), ("lag", lag.topic), ("partition", lag.partition))
    return shapes.resource("KafkaConsumerLag", path, names, fields)


async def list_lags(call: ProxyCall) -> Response:
    """GET .../consumer-groups/{group}/lags."""
    shapes = await shapes_of(call)
    group, lags = await lags_of(call)
    rows = [_lag(shapes, group, lag) for lag in lags]
    return collection("KafkaConsumerLagList", shapes.url("consumer-groups", group, "lags"), rows)


async def get_lag(call: ProxyCall) -> Response:
    """GET .../consumer-groups/{group}/lags/{topic}/partitions/{partition}."""
    shapes = await shapes_of(call)
    missing = HttpError(404, "Consumer lag could not be found.")
    wanted = (call.part("topic"), call.number_part("partition", missing))
    group, lags = await lags_of(call)
    for lag in lags:
        if (lag.topic, lag.partition) == wanted:
            return answer(_lag(shapes, group, lag))
    raise missing


async def lag_summary(call: ProxyCall) -> Response:
    """GET .../consumer-groups/{group}/lag-summary: the largest lag and the sum of all."""
    shapes = await shapes_of(call)
    group, lags = await lags_of(call)
    if not lags:
        raise HttpError(404, f"Consumer group {group[:100]} has committed no offsets.")
    worst = max(lags, key=lambda lag: lag.lag)
    fields = {
        "consumer_group_id": group,
        "max_lag_consumer_id": worst.consumer,
        "max_lag_instance_id": worst.instance,
        "max_lag_client_id": worst.client,
        "max_lag_topic_name": worst.topic,
        "max_lag_partition_id": worst.partition,
        "max_lag": worst.lag,
        "total_lag": sum(lag.lag for lag in lags),
        "max_lag_consumer": shapes.related("consumer-groups", group, "consumers", worst.consumer),
        "max_lag_partition": shapes.related("topics", worst.topic, "partitions", worst.partition),
    }
    names = (("consumer-group", group), ("lag-summary", None))
    path = ("consumer-groups", group, "lag-summary")
    return answer(shapes.resource("KafkaConsumerGroupLagSummary", path, names, fields))


GROUP: Final = f"{BASE}/consumer-groups/{{group}}"
MEMBER: Final = f"{GROUP}/consumers/{{consumer}}"
ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", f"{BASE}/consumer-groups", list_groups),
    ("GET", GROUP, get_group),
    ("GET", f"{GROUP}/consumers", list_members),
    ("GET", f"{GROUP}/lag-summary", lag_summary),
    ("GET", f"{GROUP}/lags", list_lags),
    ("GET", f"{GROUP}/lags/{{topic}}/partitions/{{partition}}", get_lag),
    ("GET", MEMBER, get_member),
    ("GET", f"{MEMBER}/assignments", list_assignments),
    ("GET", f"{MEMBER}/assignments/{{topic}}/partitions/{{partition}}", get_assignment),
)
