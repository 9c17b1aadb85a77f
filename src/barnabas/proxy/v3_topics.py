"""API v3: topics, partitions, replicas, reassignments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from starlette.responses import Response

from barnabas.admin import ConfigKind, ConfigResource, ConfigSource, NewTopic, Partition, Topic
from barnabas.http.errors import HttpError
from barnabas.proxy.call import (
    ProxyCall,
    answer,
    as_number,
    no_content,
    require_known,
    require_list,
    require_text,
)
from barnabas.proxy.errors import INVALID_PAYLOAD
from barnabas.proxy.v3_cluster import BASE, Work, read_changes
from barnabas.proxy.v3_shapes import Shapes, collection, config_row, shapes_of

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own names of internal topics."""


def _topic(shapes: Shapes, name: str, partitions: int, replicas: int) -> dict[str, Any]:
    path = ("topics", name)
    fields = {
        "topic_name": name,
        "is_internal": name in INTERNAL,
        "replication_factor": replicas,
        "partitions_count": partitions,
        "partitions": shapes.related(*path, "partitions"),
        "configs": shapes.related(*path, "configs"),
        "partition_reassignments": shapes.related(*path, "partitions", "-", "reassignment"),
        "authorized_operations": [],
    }
    return shapes.resource("KafkaTopic", path, (("topic", name),), fields)


def _held_topic(shapes: Shapes, topic: Topic) -> dict[str, Any]:
    return _topic(shapes, topic.name, len(topic.partitions), topic.replication)


async def list_topics(call: ProxyCall) -> Response:
    """GET .../topics."""
    shapes = await shapes_of(call)
    topics = await call.services.kafka.topics()
    rows = [_held_topic(shapes, topic) for topic in topics.values()]
    return collection("KafkaTopicList", shapes.url("topics"), rows)


async def get_topic(call: ProxyCall) -> Response:
    """GET .../topics/{topic}."""
    shapes = await shapes_of(call)
    return answer(_held_topic(shapes, await call.services.kafka.topic(call.part("topic"))))


TOPIC_FIELDS: Final = frozenset(
    {
        "topic_name",
        "partitions_count",
        "replication_factor",
        "replicas_assignments",
        "configs",
        "validate_only",
    }
)


async def create_topic(call: ProxyCall) -> Response:
    """POST .../topics."""
    shapes = await shapes_of(call)
    body = await call.body()
    require_known(body, TOPIC_FIELDS)
    name = require_text(body, "topic_name")
    assignment = _assignment(body)
    partitions = _count(body, "partitions_count")
    replication = _count(body, "replication_factor")
    configs = {
        require_text(row, "name"): str(row["value"])
        for row in require_list({"configs": body.get("configs") or []}, "configs")
        if row.get("value") is not None
    }
    kafka = call.services.kafka
    if assignment is not None:
        wanted = NewTopic(name, configs=configs, replicas=assignment)
        partitions, replication = len(assignment), len(assignment[0])
    else:
        wanted = NewTopic(name, partitions, replication, configs)
    validate_only = body.get("validate_only") is True

    async def create() -> None:
        (await kafka.admin.topics.create([wanted], validate_only=validate_only)).require()

    await kafka.ask(create())
    call.services.producing.forget(name)
    if not validate_only and (partitions < 0 or replication < 0):
        try:
            row = _held_topic(shapes, await kafka.topic(name))
        except HttpError:  # created, but not known to every broker yet
            row = _topic(shapes, name, max(partitions, 0), max(replication, 0))
    else:
        row = _topic(shapes, name, max(partitions, 0), max(replication, 0))
    response = answer(row, status=200 if validate_only else 201)
    response.headers["location"] = shapes.url("topics", name)
    return response


def _count(body: dict[str, Any], name: str) -> int:
    """A number in a body; -1 (the brokers' default) if it is missing. Raises HttpError 400."""
    value = body.get(name)
    if value is None:
        return -1
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 100_000:
        raise HttpError(400, f"{name} is not a number from 1 to 100000", 400)
    return value


def _assignment(body: dict[str, Any]) -> list[list[int]] | None:
    """The brokers of each partition in a body; None if it does not assign them. Raises HttpError 422."""
    if not body.get("replicas_assignments"):
        return None
    brokers_by_partition: dict[int, list[int]] = {}
    for index, row in enumerate(require_list(body, "replicas_assignments")):
        where = f"replicas_assignments[{index}]"
        partition = as_number(row.get("partition_id"), f"{where}.partition_id")
        brokers = row.get("broker_ids")
        if not isinstance(brokers, list) or not brokers:
            raise HttpError(422, f"{where}.broker_ids is not a list of brokers", INVALID_PAYLOAD)
        brokers_by_partition[partition] = [as_number(broker, f"{where}.broker_ids") for broker in brokers]
    if sorted(brokers_by_partition) != list(range(len(brokers_by_partition))):
        raise HttpError(
            422, "replicas_assignments must name each partition from 0 on exactly once", INVALID_PAYLOAD
        )
    return [brokers_by_partition[partition] for partition in range(len(brokers_by_partition))]


async def change_partitions(call: ProxyCall) -> Response:
    """PATCH .../topics/{topic}: adds partitions."""
    shapes = await shapes_of(call)
    name, count = call.part("topic"), _count(await call.body(), "partitions_count")
    if count < 0:
        raise HttpError(422, "partitions_count is missing", INVALID_PAYLOAD)
    kafka = call.services.kafka
    description = await kafka.topic(name)

    async def add() -> None:
        (await kafka.admin.topics.add_partitions({name: count})).require()

    await kafka.ask(add())
    call.services.producing.forget(name)
    return answer(_topic(shapes, name, count, description.replication))


async def delete_topic(call: ProxyCall) -> Response:
    """DELETE .../topics/{topic}."""
    await shapes_of(call)
    kafka, name = call.services.kafka, call.part("topic")

    async def delete() -> None:
        (await kafka.admin.topics.delete([name])).require()

    await kafka.ask(delete())
    call.services.producing.forget(name)
    return no_content()


async def all_topic_configs(call: ProxyCall) -> Response:
    """GET .../topics/-/configs: of every topic, the options that were set for it."""
    shapes = await shapes_of(call)
    rows = []
    for name in await call.services.kafka.topics():
        for entry in await call.services.kafka.configs(ConfigResource(ConfigKind.TOPIC, name)):
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG:
                path, names = ("topics", name, "configs"), (("topic", name),)
                rows.append(config_row(shapes, "KafkaTopicConfig", path, names, entry, topic_name=name))
    return collection("KafkaTopicConfigList", shapes.url("topics", "-", "configs"), rows)


async def alter_all_topics(call: ProxyCall) -> Response:
    """POST .../topics/-/configs:alter: the same change to every topic that is not internal."""
    await shapes_of(call)
    changes, validate_only = read_changes(await call.body())
    for name in await call.services.kafka.topics():
        if name not in INTERNAL:
            resource = ConfigResource(ConfigKind.TOPIC, name)
            await call.services.kafka.alter(resource, changes, validate_only=validate_only)
    return no_content()


# --- partitions and replicas --------------------------------------------------------------------------


def _partition(shapes: Shapes, topic: str, partition: Partition) -> dict[str, Any]:
    path = ("topics", topic, "partitions", partition.number)
    fields: dict[str, Any] = {"topic_name": topic, "partition_id": partition.number}
    if partition.leader >= 0:
        fields["leader"] = shapes.related(*path, "replicas", partition.leader)
    fields["replicas"] = shapes.related(*path, "replicas")
    fields["reassignment"] = shapes.related(*path, "reassignment")
    return shapes.resource(
        "KafkaPartition", path, (("topic", topic), ("partition", partition.number)), fields
    )


def _replica(shapes: Shapes, topic: str, partition: Partition, broker: int) -> dict[str, Any]:
    path = ("topics", topic, "partitions", partition.number, "replicas", broker)
    names = (("topic", topic), ("partition", partition.number), ("replica", broker))
    fields = {
        "topic_name": topic,
        "partition_id": partition.number,
        "broker_id": broker,
        "is_leader": broker == partition.leader,
        "is_in_sync": broker in partition.in_sync,
        "broker": shapes.related("brokers", broker),
    }
    return shapes.resource("KafkaReplica", path, names, fields)


async def find_partition(call: ProxyCall) -> Partition:
    """The partition of the path. Raises HttpError 404."""
    topic = await call.services.kafka.topic(call.part("topic"))
    missing = HttpError(404, "This server does not host this topic-partition.", 40403)
    number = call.number_part("partition", missing)
    for partition in topic.partitions:
        if partition.number == number:
            return partition
    raise missing


async def list_partitions(call: ProxyCall) -> Response:
    """GET .../topics/{topic}/partitions."""
    shapes, topic = await shapes_of(call), call.part("topic")
    description = await call.services.kafka.topic(topic)
    rows = [_partition(shapes, topic, partition) for partition in description.partitions]
    return collection("KafkaPartitionList", shapes.url("topics", topic, "partitions"), rows)


async def get_partition(call: ProxyCall) -> Response:
    """GET .../topics/{topic}/partitions/{partition}."""
    shapes = await shapes_of(call)
    return answer(_partition(shapes, call.part("topic"), await find_partition(call)))


async def partition_offsets(call: ProxyCall) -> Response:
    """GET .../topics/{topic}/partitions/{partition}/offset: its first offset, and that of the next record."""
    shapes, topic = await shapes_of(call), call.part("topic")
    partition = await find_partition(call)
    first, last = await call.services.kafka.offsets_of(topic, partition.number)
    path = ("topics", topic, "partitions", partition.number, "offset")
    fields = {
        "topic_name": topic,
        "partition_id": partition.number,
        "beginning_offset": first,
        "end_offset": last,
    }
    names = (("topic", topic), ("partition", partition.number), ("offset", None))
    return answer(shapes.resource("KafkaPartitionOffset", path, names, fields))


async def list_replicas(call: ProxyCall) -> Response:
    """GET .../topics/{topic}/partitions/{partition}/replicas."""
    shapes, topic = await shapes_of(call), call.part("topic")
    partition = await find_partition(call)
    rows = [_replica(shapes, topic, partition, broker) for broker in partition.replicas]
    url = shapes.url("topics", topic, "partitions", partition.number, "replicas")
    return collection("KafkaReplicaList", url, rows)


async def get_replica(call: ProxyCall) -> Response:
    """GET .../topics/{topic}/partitions/{partition}/replicas/{broker}."""
    shapes, topic = await shapes_of(call), call.part("topic")
    partition = await find_partition(call)
    missing = HttpError(404, f"Replica {call.part('broker')[:40]} cannot be found.")
    broker = call.number_part("broker", missing)
    if broker not in partition.replicas:
        raise missing
    return answer(_replica(shapes, topic, partition, broker))


async def replicas_of_broker(call: ProxyCall) -> Response:
    """GET .../brokers/{broker}/partition-replicas."""
    shapes = await shapes_of(call)
    missing = HttpError(404, f"Broker {call.part('broker')[:40]} cannot be found.")
    broker = call.number_part("broker", missing)
    if broker not in await call.services.kafka.brokers():
        raise missing
    rows = [
        _replica(shapes, name, partition, broker)
        for name, topic in (await call.services.kafka.topics()).items()
        for partition in topic.partitions
        if broker in partition.replicas
    ]
    return collection("KafkaReplicaList", shapes.url("brokers", broker, "partition-replicas"), rows)


# --- reassignments ------------------------------------------------------------------------------------


async def _moves(
    call: ProxyCall, shapes: Shapes, partitions: Iterable[tuple[str, int]] | None = None
) -> list[dict[str, Any]]:
    """The rows of reassignments in progress, of these partitions, or of all. Raises HttpError."""
    kafka = call.services.kafka
    rows = []
    for (topic, number), move in (await kafka.ask(kafka.admin.replicas.reassignments(partitions))).items():
        path = ("topics", topic, "partitions", number)
        fields = {
            "topic_name": topic,
            "partition_id": number,
            "adding_replicas": list(move.adding),
            "removing_replicas": list(move.removing),
            "replicas": shapes.related(*path, "replicas"),
        }
        names = (("topic", topic), ("partition", number), ("reassignment", None))
        rows.append(shapes.resource("KafkaReassignment", (*path, "reassignment"), names, fields))
    return rows


async def all_reassignments(call: ProxyCall) -> Response:
    """GET .../topics/-/partitions/-/reassignment: reassignments in progress in the whole cluster."""
    shapes = await shapes_of(call)
    url = shapes.url("topics", "-", "partitions", "-", "reassignment")
    return collection("KafkaReassignmentList", url, await _moves(call, shapes))


async def topic_reassignments(call: ProxyCall) -> Response:
    """GET .../topics/{topic}/partitions/-/reassignment."""
    shapes, topic = await shapes_of(call), call.part("topic")
    description = await call.services.kafka.topic(topic)
    rows = await _moves(call, shapes, [(topic, partition.number) for partition in description.partitions])
    return collection(
        "KafkaReassignmentList", shapes.url("topics", topic, "partitions", "-", "reassignment"), rows
    )


async def get_reassignment(call: ProxyCall) -> Response:
    """GET .../topics/{topic}/partitions/{partition}/reassignment."""
    shapes, topic = await shapes_of(call), call.part("topic")
    partition = await find_partition(call)
    rows = await _moves(call, shapes, [(topic, partition.number)])
    if not rows:
        raise HttpError(404, f"Partition {topic}-{partition.number} is not being reassigned.")
    return answer(rows[0])


TOPIC: Final = f"{BASE}/topics/{{topic}}"
ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", f"{BASE}/topics", list_topics),
    ("POST", f"{BASE}/topics", create_topic),
    ("GET", f"{BASE}/topics/-/configs", all_topic_configs),
    ("POST", f"{BASE}/topics/-/configs:alter", alter_all_topics),
    ("GET", f"{BASE}/topics/-/partitions/-/reassignment", all_reassignments),
    ("GET", TOPIC, get_topic),
    ("PATCH", TOPIC, change_partitions),
    ("DELETE", TOPIC, delete_topic),
    ("GET", f"{TOPIC}/partitions", list_partitions),
    ("GET", f"{TOPIC}/partitions/-/reassignment", topic_reassignments),
    ("GET", f"{TOPIC}/partitions/{{partition}}", get_partition),
    ("GET", f"{TOPIC}/partitions/{{partition}}/offset", partition_offsets),
    ("GET", f"{TOPIC}/partitions/{{partition}}/reassignment", get_reassignment),
    ("GET", f"{TOPIC}/partitions/{{partition}}/replicas", list_replicas),
    ("GET", f"{TOPIC}/partitions/{{partition}}/replicas/{{broker}}", get_replica),
    ("GET", f"{BASE}/brokers/{{broker}}/partition-replicas", replicas_of_broker),
)
