"""kafka-topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.admin import Admin, Config, ConfigKind, ConfigResource, NewTopic, Partition, Topic
from barnabas.client.errors import ClientError
from barnabas.kafka_tools.shared.common import ToolError, checked, connect, live_brokers, parse, say, text_of
from barnabas.kafka_tools.shared.matching import topic_pattern
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode
from barnabas.wire.uuids import uuid_text

ACTIONS: Final = ("create", "delete", "alter", "describe", "list")

TOOL: Final = Tool(
    "This tool helps to create, delete, describe, or change a topic.",
    (
        *COMMON,
        Opt("list", "List all available topics."),
        Opt("create", "Create a new topic."),
        Opt("delete", "Delete a topic."),
        Opt("alter", "Alter the number of partitions."),
        Opt("describe", "List details for the given topics."),
        Opt("topic", "The topic; a regular expression, except for --create.", "String: topic"),
        Opt("topic-id", "The topic id to describe.", "String: topic-id"),
        Opt("partitions", "The number of partitions; it can only grow.", "Integer: # of partitions"),
        Opt("replication-factor", "The number of replicas of a new topic.", "Integer: replication factor"),
        Opt("replica-assignment", "Brokers of each partition: 1:2,2:3", "String: assignment"),
        Opt("config", "An option of a new topic.", "String: name=value"),
        Opt("delete-config", "Use kafka-configs.", "String: name", old=True),
        Opt("under-replicated-partitions", "Only partitions that lack a replica in sync."),
        Opt("under-min-isr-partitions", "Only partitions with fewer in sync than min.insync.replicas."),
        Opt("at-min-isr-partitions", "Only partitions with just min.insync.replicas in sync."),
        Opt("unavailable-partitions", "Only partitions whose leader is not available."),
        Opt("topics-with-overrides", "Only topics with options of their own."),
        Opt("if-exists", "The topic need not be there."),
        Opt("if-not-exists", "The topic may be there already."),
        Opt("exclude-internal", "Leave out internal topics."),
        Opt("disable-rack-aware", "Of old tools.", old=True),
        Opt("force", "Of old tools.", old=True),
        Opt("partition-size-limit-per-response", "Of the response.", "Integer: partitions", old=True),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run the tool; its exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    admin = connect(parsed)
    action = next(action for action in ACTIONS if action in parsed)
    try:
        {"create": create, "delete": delete, "alter": alter, "describe": describe, "list": list_topics}[
            action
        ](admin, parsed)
    except (ToolError, ClientError) as error:
        say(f"Error while executing topic command : {text_of(error)}")
        return EXIT_FAILED
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if sum(action in parsed for action in ACTIONS) != 1:
        raise Refused(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    for action in ("create", "alter"):
        if action in parsed:
            TOOL.need(parsed, "topic")
    if "delete" in parsed and not {"topic"} & parsed.values.keys():
        raise Refused('Missing required argument "[topic]"')
    old_configs = "zookeeper" in parsed and {"config", "delete-config"} & parsed.values.keys()
    if "alter" in parsed and ("config" in parsed or "delete-config" in parsed) and not old_configs:
        raise Refused(
            'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]" '
            "(the kafka-configs CLI supports altering topic configs with a --bootstrap-server option)"
        )
    if (
        "alter" in parsed
        and not old_configs
        and not {"partitions", "replica-assignment"} & parsed.values.keys()
    ):
        raise Refused('Missing required argument "[partitions]"')


def matching(admin: Admin, parsed: Parsed) -> list[Topic]:
    """The topics that --topic or --topic-id name. Raises ToolError when there are none and there must be."""
    topics = list(admin.topics.list(internal="exclude-internal" not in parsed).values())
    wanted_id = parsed.get("topic-id")
    if wanted_id:
        topics = [topic for topic in topics if topic.id and uuid_text(topic.id) == wanted_id]
        if not topics and "if-exists" not in parsed:
            raise ToolError(f"TopicId '{wanted_id}' does not exist as expected")
    pattern = parsed.get("topic")
    if pattern is None:
        return topics
    expression = topic_pattern(pattern)
    topics = [topic for topic in topics if expression.fullmatch(topic.name)]
    if not topics and "if-exists" not in parsed and "list" not in parsed:
        raise ToolError(f"Topic '{pattern}' does not exist as expected")
    return topics


def list_topics(admin: Admin, parsed: Parsed) -> None:
    """One name per line."""
    for topic in matching(admin, parsed):
        print(topic.name)


def create(admin: Admin, parsed: Parsed) -> None:
    """Create one topic. Raises ToolError."""
    name = parsed.text("topic")
    if "." in name or "_" in name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    assignment = parsed.get("replica-assignment")
    topic = NewTopic(
        name,
        parsed.number("partitions", -1),
        parsed.number("replication-factor", -1),
        dict(config_pairs(parsed.all("config"))),
        parse_assignment(assignment or ""),
    )
    results = admin.topics.create([topic], wait=False)
    if "if-not-exists" in parsed:
        results = results.except_for(ErrorCode.TOPIC_ALREADY_EXISTS)
    if results.require():
        print(f"Created topic {name}.")


def config_pairs(items: Sequence[str]) -> list[tuple[str, str]]:
    """--config name=value, several. Raises ToolError."""
    pairs = []
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise ToolError("requirement failed: Invalid topic config: all configs to be added must be in the "
                            'format "key=val".')  # fmt: skip
        pairs.append((key.strip(), value.strip()))
    return pairs


def parse_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3` as the brokers of each partition. Raises ToolError."""
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")] if text else []
    except ValueError:
        raise ToolError(f"Invalid replica assignment {text!r}; it looks like 1:2,2:3") from None


def delete(admin: Admin, parsed: Parsed) -> None:
    """Delete topics. Raises ToolError."""
    names = [topic.name for topic in matching(admin, parsed)]
    for name in admin.topics.delete(names).require():
        if "zookeeper" in parsed:
            print(f"Topic {name} is marked for deletion.")
            say("Note: This will have no impact if delete.topic.enable is not set to true.")


def alter(admin: Admin, parsed: Parsed) -> None:
    """Add partitions; with --zookeeper, change options, too. Raises ToolError."""
    if {"config", "delete-config"} & parsed.values.keys():
        alter_configs(admin, parsed)
        if "partitions" not in parsed:
            return
    assigned = parse_assignment(parsed.text("replica-assignment"))
    wanted = parsed.number("partitions", len(assigned))
    topics = matching(admin, parsed)
    if not topics:
        return
    added = {topic.name: assigned[len(topic.partitions) :] for topic in topics}
    if "zookeeper" in parsed:
        print(
            "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of "
            "the messages will be affected"
        )
    replicas = {name: fresh for name, fresh in added.items() if fresh}
    admin.topics.add_partitions(dict.fromkeys(added, wanted), replicas=replicas).require()
    if "zookeeper" in parsed:
        print("Adding partitions succeeded!")


def alter_configs(admin: Admin, parsed: Parsed) -> None:
    """Change options as kafka-topics did until Kafka 3. Raises ToolError."""
    from barnabas.kafka_tools.configs.configs import Entity, change

    print(
        "WARNING: Altering topic configuration from this script has been deprecated and may be removed in future "
        "releases.\n         Going forward, please use kafka-configs.sh for this functionality"
    )
    for topic in matching(admin, parsed):
        change(
            admin,
            Entity("topics", topic.name),
            dict(config_pairs(parsed.all("config"))),
            parsed.all("delete-config"),
        )
        print(f"Updated config for topic {topic.name}.")


def describe(admin: Admin, parsed: Parsed) -> None:
    """A line per topic and one per partition."""
    topics = matching(admin, parsed)
    configs = topic_configs(admin, [topic.name for topic in topics])
    live = set(live_brokers(admin))
    only = {name for name in parsed.values if name.endswith("-partitions")}
    for topic in topics:
        entries = configs[topic.name]
        shown = {name: entry.value for name, entry in entries.items() if not entry.is_default}
        if "topics-with-overrides" in parsed and not shown:
            continue
        if not only:
            print_topic(topic, shown)
        if "topics-with-overrides" in parsed:
            continue
        least = entries.get("min.insync.replicas")
        minimum = int(least.value) if least and least.value else 1
        for part in topic.partitions:
            if is_wanted(part, only, minimum, live):
                print_partition(topic.name, part)


def topic_configs(admin: Admin, names: Sequence[str]) -> dict[str, Mapping[str, Config]]:
    """All options of topics; none of those that the caller may not read."""
    resources = {name: ConfigResource(ConfigKind.TOPIC, name) for name in names}
    configs = admin.configs.describe(resources.values()).done
    return {name: configs.get(resource, {}) for name, resource in resources.items()}


def print_topic(topic: Topic, configs: Mapping[str, str | None]) -> None:
    """The line of a topic."""
    overrides = ",".join(f"{name}={value}" for name, value in configs.items())
    known = f"TopicId: {uuid_text(topic.id)}\t" if topic.id else ""
    print(
        f"Topic: {topic.name}\t{known}PartitionCount: {len(topic.partitions)}\t"
        f"ReplicationFactor: {topic.replication}\tConfigs: {overrides}"
    )


def print_partition(name: str, part: Partition) -> None:
    """The line of a partition."""
    leader = part.leader if part.leader >= 0 else "none"
    replicas, isr = (",".join(map(str, ids)) for ids in (part.replicas, part.in_sync))
    print(
        f"\tTopic: {name}\tPartition: {part.number}\tLeader: {leader}\tReplicas: {replicas}\t"
        f"Isr: {isr}\tElr: \tLastKnownElr: "
    )


def is_wanted(part: Partition, only: set[str], minimum: int, live: set[int]) -> bool:
    """Whether a partition is of one of the requested kinds."""
    kinds = {
        "under-replicated-partitions": part.is_under_replicated,
        "under-min-isr-partitions": len(part.in_sync) < minimum,
        "at-min-isr-partitions": len(part.in_sync) == minimum,
        "unavailable-partitions": part.leader not in live,
    }
    return not only or any(kinds.get(name, False) for name in only)
