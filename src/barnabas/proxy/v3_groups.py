"""API v3: consumer groups, their members, and how far they are behind."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec
from starlette.responses import Response

from barnabas.http.errors import HttpError
from barnabas.proxy.call import Call, answer
from barnabas.proxy.errors import from_exception
from barnabas.proxy.kafka import REQUEST_TIMEOUT_S
from barnabas.proxy.v3_cluster import BASE, Work
from barnabas.proxy.v3_shapes import Shapes, collection, shapes_of

DESCRIBED_MAX: Final = 500
"""Groups described in one request to the brokers."""
STATES: Final = {
    "PREPARING_REBALANCING": "PREPARING_REBALANCE",
    "COMPLETING_REBALANCING": "COMPLETING_REBALANCE",
}


def _no_group(name: str) -> HttpError:
    return HttpError(404, f"Consumer group {name[:100]} could not be found.")


async def _describe(call: Call, names: list[str]) -> list[Any]:
    """Groups with their members. Raises HttpError."""
    kafka = call.services.kafka
    found = []
    for begin in range(0, len(names), DESCRIBED_MAX):
        part = names[begin : begin + DESCRIBED_MAX]
        begin_call = partial(kafka.admin.describe_consumer_groups, part, request_timeout=REQUEST_TIMEOUT_S)
        futures: dict[str, Any] = await kafka.call(begin_call)
        for future in futures.values():
            found.append(await kafka.wait(future))
    return found


async def _group_of(call: Call) -> Any:
    """The group of the path. Raises HttpError 404."""
    name = call.part("group")
    try:
        (held,) = await _describe(call, [name])
    except HttpError as error:
        if error.code in (40403, 40002):  # no such group, or one of another kind
            raise _no_group(name) from error
        raise
    if held.state.name == "DEAD" and not held.members:
        raise _no_group(name)
    return held


def _group(shapes: Shapes, held: Any) -> dict[str, Any]:
    path = ("consumer-groups", held.group_id)
    coordinator = held.coordinator.id if held.coordinator is not None else -1
    fields = {
        "consumer_group_id": held.group_id,
        "is_simple": bool(held.is_simple_consumer_group),
        "partition_assignor": held.partition_assignor or "",
        "state": STATES.get(held.state.name, held.state.name),
        "coordinator": shapes.related("brokers", coordinator),
        "consumers": shapes.related(*path, "consumers"),
        "lag_summary": shapes.related(*path, "lag-summary"),
    }
    return shapes.resource("KafkaConsumerGroup", path, (("consumer-group", held.group_id),), fields)


async def list_groups(call: Call) -> Response:
    """GET .../consumer-groups."""
    shapes, kafka = await shapes_of(call), call.services.kafka
    listed = await kafka.result(lambda: kafka.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S))
    if listed.errors:  # some broker did not answer: an incomplete list would look complete
        raise from_exception(listed.errors[0])
    held = await _describe(call, sorted(group.group_id for group in listed.valid))
    return collection(
        "KafkaConsumerGroupList", shapes.url("consumer-groups"), [_group(shapes, group) for group in held]
    )


async def get_group(call: Call) -> Response:
    """GET .../consumer-groups/{group}."""
    return answer(_group(await shapes_of(call), await _group_of(call)))


# --- members ------------------------------------------------------------------------------------------


def _member(shapes: Shapes, group: str, held: Any) -> dict[str, Any]:
    path = ("consumer-groups", group, "consumers", held.member_id)
    fields = {
        "consumer_group_id": group,
        "consumer_id": held.member_id,
        "instance_id": held.group_instance_id,
        "client_id": held.client_id,
        "assignments": shapes.related(*path, "assignments"),
    }
    names = (("consumer-group", group), ("consumer", held.member_id))
    return shapes.resource("KafkaConsumer", path, names, fields)


async def _member_of(call: Call) -> tuple[str, Any]:
    held, wanted = await _group_of(call), call.part("consumer")
    for member in held.members:
        if member.member_id == wanted:
            return held.group_id, member
    raise HttpError(404, f"Consumer {wanted[:100]} could not be found.")


async def list_members(call: Call) -> Response:
    """GET .../consumer-groups/{group}/consumers."""
    shapes, held = await shapes_of(call), await _group_of(call)
    rows = [_member(shapes, held.group_id, member) for member in held.members]
    return collection("KafkaConsumerList", shapes.url("consumer-groups", held.group_id, "consumers"), rows)


async def get_member(call: Call) -> Response:
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


async def list_assignments(call: Call) -> Response:
    """GET .../consumers/{consumer}/assignments."""
    shapes = await shapes_of(call)
    group, member = await _member_of(call)
    places = sorted(member.assignment.topic_partitions, key=lambda p: (p.topic, p.partition))
    rows = [_assignment(shapes, group, member.member_id, place) for place in places]
    url = shapes.url("consumer-groups", group, "consumers", member.member_id, "assignments")
    return collection("KafkaConsumerAssignmentList", url, rows)


async def get_assignment(call: Call) -> Response:
    """GET .../consumers/{consumer}/assignments/{topic}/partitions/{partition}."""
    shapes = await shapes_of(call)
    group, member = await _member_of(call)
    missing = HttpError(404, "Consumer assignment could not be found.")
    wanted = (call.part("topic"), call.number_part("partition", missing))
    for place in member.assignment.topic_partitions:
        if (place.topic, place.partition) == wanted:
            return answer(_assignment(shapes, group, member.member_id, place))
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


async def lags_of(call: Call) -> tuple[str, list[Lag]]:
    """The group of the path, and its lag in each partition for which it has committed an offset. Raises HttpError."""
    held, kafka = await _group_of(call), call.services.kafka
    wanted = [ConsumerGroupTopicPartitions(held.group_id)]
    found = await kafka.only(
        lambda: kafka.admin.list_consumer_group_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
    )
    places = [place for place in found.topic_partitions or () if place.error is None and place.offset >= 0]
    there = (await kafka.metadata()).topics
    places = [p for p in places if p.topic in there and p.partition in there[p.topic].partitions]
    ends = await kafka.offsets(places, OffsetSpec.latest())
    owners = {
        (place.topic, place.partition): member
        for member in held.members
        for place in member.assignment.topic_partitions
    }
    lags = []
    for place in sorted(places, key=lambda p: (p.topic, p.partition)):
        owner = owners.get((place.topic, place.partition))
        lags.append(
            Lag(
                place.topic,
                place.partition,
                place.offset,
                ends[place.topic, place.partition],
                "" if owner is None else owner.member_id,
                None if owner is None else owner.group_instance_id,
                "" if owner is None else owner.client_id,
            )
        )
    return held.group_id, lags


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


async def list_lags(call: Call) -> Response:
    """GET .../consumer-groups/{group}/lags."""
    shapes = await shapes_of(call)
    group, lags = await lags_of(call)
    rows = [_lag(shapes, group, lag) for lag in lags]
    return collection("KafkaConsumerLagList", shapes.url("consumer-groups", group, "lags"), rows)


async def get_lag(call: Call) -> Response:
    """GET .../consumer-groups/{group}/lags/{topic}/partitions/{partition}."""
    shapes = await shapes_of(call)
    missing = HttpError(404, "Consumer lag could not be found.")
    wanted = (call.part("topic"), call.number_part("partition", missing))
    group, lags = await lags_of(call)
    for lag in lags:
        if (lag.topic, lag.partition) == wanted:
            return answer(_lag(shapes, group, lag))
    raise missing


async def lag_summary(call: Call) -> Response:
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
