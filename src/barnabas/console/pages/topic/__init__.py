"""One topic: its partitions and replicas, how evenly they are spread, its options, its groups; what can be done to it."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.admin import ConfigKind, ConfigResource, NewTopic, back_to_default, set_to
from barnabas.admin.families.configs import Config, ConfigSource
from barnabas.admin.families.records import TO_THE_END, Bounds
from barnabas.admin.families.topics import Topic
from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.registry import RegistryError
from barnabas.config.topic_options import BARNABAS_TOPIC_BIN_MS
from barnabas.console.asking import Ask, Done
from barnabas.console.history import graphs_of, of_topic
from barnabas.console.pages.topics import NAME, PARTITIONS_MAX, state_of
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

BIN_MS: Final = BARNABAS_TOPIC_BIN_MS.name
DEAD: Final = re.compile(r"[-._](dead|dlq|dlt)", re.IGNORECASE)
SUBJECTS_S: Final = 0.5
SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "set for the topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "set for a broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "set for all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "the broker's file",
    ConfigSource.DEFAULT_CONFIG: "default",
}
"""Where values come from, in words."""


async def read(ask: Ask) -> Data:
    """A topic's partitions with replicas, offsets and sizes, its spread over the brokers, and its groups"""
    name = ask.path["topic"]
    topic = await topic_of(ask)
    keys = [TopicPartition(name, p.number) for p in topic.partitions if p.leader >= 0]
    bounds, dirs, commits = await asyncio.gather(
        ask.admin.records.bounds(keys), _or_none(ask.cluster.dirs.get()), _or_none(ask.cluster.commits.get())
    )
    sizes: dict[tuple[int, int], int] = {}
    for node, directories in (dirs.done if dirs is not None else {}).items():
        for directory in directories:
            for replica in directory.replicas:
                if replica.partition.topic == name and not replica.is_future:
                    sizes[node, replica.partition.partition] = replica.size_bytes
    rates = ask.cluster.rates()
    return {
        "topic": name,
        "id": topic.id,
        "is_internal": topic.is_internal,
        "state": state_of(topic),
        "replication": topic.replication,
        "records": sum(bound.count for bound in bounds.done.values()),
        "size_bytes": sum(sizes.values()) if dirs is not None else None,
        "records_per_s": rates.get(name),
        "history": await graphs_of(ask, of_topic(name), ask.cluster.history(name)),
        "partitions": [_partition(name, p, bounds.done, sizes) for p in topic.partitions],
        "spread": _spread(topic, sizes),
        "groups": _groups(ask, name, bounds.done, commits),
        "subjects": await _subjects(ask, name),
        "dead_letters": await _dead_letters(ask, name),
        "tab": "partitions",
        "commands": [ask.command("topic", "describe", name), ask.command("topic", "offsets", name)],
    }


async def _or_none(work: Any) -> Any:
    try:
        return await work
    except ClientError:
        return None


async def topic_of(ask: Ask) -> Topic:
    """The topic of the path. Raises Refused, ClientError."""
    name = ask.path["topic"]
    if not NAME.fullmatch(name):
        raise Refused(404, said("There is no topic {name}", name=name[:250]))
    return (await ask.admin.topics.describe([name]))[name]


def _partition(
    name: str, partition: Any, bounds: Mapping[TopicPartition, Bounds], sizes: Mapping[tuple[int, int], int]
) -> dict[str, Any]:
    bound = bounds.get(TopicPartition(name, partition.number))
    return {
        "partition": partition.number,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "in_sync": partition.in_sync,
        "missing": [node for node in partition.replicas if node not in partition.in_sync],
        "is_preferred": partition.leader == partition.preferred_leader,
        "start": None if bound is None else bound.start,
        "end": None if bound is None else bound.end,
        "records": None if bound is None else bound.count,
        "size_bytes": sizes.get((partition.leader, partition.number)),
    }


def _spread(topic: Topic, sizes: Mapping[tuple[int, int], int]) -> dict[str, Any]:
    """How evenly replicas and leaders are spread over the brokers that hold any of them.

    skew: the greatest share above an even one, in percent: 0 is even, 100 is twice as many as even.
    """
    replicas = Counter(node for partition in topic.partitions for node in partition.replicas)
    leaders = Counter(partition.leader for partition in topic.partitions if partition.leader >= 0)
    rows = [
        {
            "broker": node,
            "replicas": replicas[node],
            "leaders": leaders[node],
            "size_bytes": sum(size for (holder, _), size in sizes.items() if holder == node)
            if sizes
            else None,
        }
        for node in sorted(replicas)
    ]
    return {
        "brokers": rows,
        "skew_percent": _skew([replicas[node] for node in replicas]),
        "leader_skew_percent": _skew([leaders[node] for node in replicas]),
    }


async def _subjects(ask: Ask, topic: str) -> list[str]:
    """The registry's subjects of the topic's keys and values, by the names that Confluent's strategies give them.

    A registry that does not answer at once is not waited for.
    """
    try:
        subjects = await asyncio.wait_for(ask.cluster.subjects.get(), SUBJECTS_S)
    except (TimeoutError, RegistryError):
        return []
    plain = (f"{topic}-key", f"{topic}-value")
    return [
        subject
        for subject in sorted(subjects)
        if ask.sees(subject)
        and (subject in plain or (subject.startswith(f"{topic}-") and "." in subject[len(topic) :]))
    ]


async def _dead_letters(ask: Ask, topic: str) -> list[str]:
    """The topics that are named after this one as those for its dead letters are."""
    layout = await ask.cluster.layout.get()
    return sorted(
        name
        for name in layout.topics
        if name.startswith(topic) and DEAD.search(name[len(topic) :]) is not None and ask.sees(name)
    )


def _skew(counts: Sequence[int]) -> int:
    """How far the greatest count is above the smallest greatest one that is possible, in percent."""
    if not counts or not sum(counts):
        return 0
    even = -(-sum(counts) // len(counts))
    return round(100 * (max(counts) - even) / even)


def _groups(
    ask: Ask, name: str, bounds: Mapping[TopicPartition, Bounds], commits: Any
) -> list[dict[str, Any]] | None:
    """Groups with offsets in this topic, and how far they are behind."""
    if commits is None:
        return None
    rows = []
    for group, offsets in commits.items():
        mine = {key: committed.offset for key, committed in offsets.items() if key.topic == name}
        if mine and ask.sees(group):
            lag = sum(
                max(bounds[key].end - max(at, bounds[key].start), 0)
                for key, at in mine.items()
                if key in bounds
            )
            rows.append({"group": group, "partitions": len(mine), "lag": lag})
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))


# --- options ---------------------------------------------------------------------------------------------


async def read_options(ask: Ask) -> Data:
    """A topic's options with their values, sources and documentation"""
    name = ask.path["topic"]
    await topic_of(ask)
    resource = ConfigResource(ConfigKind.TOPIC, name)
    options = (await ask.admin.configs.describe([resource], synonyms=True, documentation=True))[resource]
    q = ask.text("q").lower()
    only_set = ask.flag("set")
    rows = [option_row(option) for option in options.values()]
    return {
        "topic": name,
        "options": [
            row for row in rows if q in row["name"].lower() and (not only_set or row["source"] != "default")
        ],
        "list": {"q": ask.text("q"), "sort": "", "descending": False},
        "only_set": only_set,
        "tab": "options",
        "commands": [ask.command("config", "describe", "topic", name)],
    }


def option_row(option: Config) -> dict[str, Any]:
    """An option as pages and the API show it. Secrets have no value."""
    return {
        "name": option.name,
        "value": None if option.is_sensitive else option.value,
        "source": SOURCES.get(option.source, option.source.name.lower()),
        "is_set": option.source in (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG),
        "is_read_only": option.is_read_only,
        "is_secret": option.is_sensitive,
        "type": option.type.name.lower(),
        "documentation": option.documentation,
        "otherwise": next(
            (s.value for s in option.synonyms[1:] if not option.is_sensitive), None
        ) if option.synonyms else None,
    }  # fmt: skip


async def set_option(ask: Ask) -> Done:
    """Set one option of a topic: option, value (none: back to the default), was: the value that was shown"""
    topic, option = ask.path["topic"], ask.required("option")
    value = ask.raw("value")
    resource = ConfigResource(ConfigKind.TOPIC, topic)
    before = (await ask.admin.configs.describe([resource], names=[option]))[resource].get(option)
    if before is None:
        raise Refused(404, said("Topics have no option {name}", name=option[:100]))
    was = ask.raw("was")
    if was is not None and was != (before.value or ""):
        raise Refused(
            409,
            said("Somebody else has set {name} to {value} meanwhile", name=option, value=before.value or ""),
            said("Look at the new value, and send yours again if it is still right."),
        )
    back = value is None or ask.flag("unset")
    changes = back_to_default([option]) if back else set_to({option: value or ""})
    (await ask.admin.configs.alter({resource: changes})).require()
    go_to = f"/topics/{encoded(topic)}/options"
    data = {"option": option, "before": before.value, "after": None if back else value}
    if back:
        return Done(said("{name} is back at its default", name=option), go_to, data,
                    (ask.command("config", "unset", "topic", topic, option),))  # fmt: skip
    return Done(said("{name} is set to {value}", name=option, value=value), go_to, data,
                (ask.command("config", "set", "topic", topic, f"{option}={value}"),))  # fmt: skip


# --- changes ---------------------------------------------------------------------------------------------


async def read_changes(ask: Ask) -> Data:
    """What can be done to a topic: partitions, emptying, copying its definition, deleting"""
    topic = await topic_of(ask)
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "is_internal": topic.is_internal,
        "rests_s": await _rests_s(ask, topic.name),
        "tab": "changes",
        "commands": [
            ask.command("topic", "alter", topic.name, "--partitions", str(len(topic.partitions) + 1)),
            ask.command("topic", "trim", topic.name, "--to", "latest", "--execute"),
            ask.command("topic", "delete", topic.name),
        ],
    }


async def _rests_s(ask: Ask, name: str) -> int | None:
    """How long the topic can be restored after it has been deleted; None for a cluster that cannot do that."""
    resource = ConfigResource(ConfigKind.TOPIC, name)
    option = (await ask.admin.configs.describe([resource], names=[BIN_MS]))[resource].get(BIN_MS)
    return None if option is None else int(option.value or 0) // 1000


async def add_partitions(ask: Ask) -> Done:
    """Raise the number of partitions to `partitions`: keys go to other partitions from then on"""
    topic = await topic_of(ask)
    count = ask.number("partitions", 0, 1, PARTITIONS_MAX)
    if count <= len(topic.partitions):
        raise Refused(
            400,
            said(
                "The topic has {count} partitions already; the number can only grow",
                count=len(topic.partitions),
            ),
        )
    (await ask.admin.topics.add_partitions({topic.name: count})).require()
    return Done(
        said("{name} has {count} partitions now", name=topic.name, count=count),
        f"/topics/{encoded(topic.name)}",
        {"topic": topic.name, "before": len(topic.partitions), "after": count},
        (ask.command("topic", "alter", topic.name, "--partitions", str(count)),),
    )


def confirmed(ask: Ask, name: str) -> None:
    """Raises Refused unless the name was typed again."""
    if ask.text("confirm") != name:
        raise Refused(400, said("Not done: type {name} to confirm", name=name))


async def empty(ask: Ask) -> Done:
    """Delete all records of a topic; confirm: its name"""
    topic = await topic_of(ask)
    confirmed(ask, topic.name)
    parts = {TopicPartition(topic.name, p.number): int(TO_THE_END) for p in topic.partitions}
    starts = (await ask.admin.records.delete(parts)).require()
    return Done(
        said("All records of {name} are deleted", name=topic.name),
        f"/topics/{encoded(topic.name)}",
        {"topic": topic.name, "starts": {str(key.partition): at for key, at in starts.items()}},
        (ask.command("topic", "trim", topic.name, "--to", "latest", "--execute"),),
    )


async def delete(ask: Ask) -> Done:
    """Delete a topic with all its records, into the bin if the cluster has one; confirm: its name"""
    name = ask.path["topic"]
    confirmed(ask, name)
    rests_s = await _rests_s(ask, name)
    (await ask.admin.topics.delete([name])).require()
    if rests_s:
        return Done(
            said("The topic {name} is deleted; it can be restored for {seconds} seconds", name=name, seconds=rests_s),
            "/bin", {"topic": name, "rests_s": rests_s}, (ask.command("topic", "delete", name),),
        )  # fmt: skip
    return Done(said("The topic {name} is deleted", name=name), "/topics", {"topic": name},
                (ask.command("topic", "delete", name),))  # fmt: skip


async def clone(ask: Ask) -> Done:
    """Create a topic with the same partitions, replicas and options, without records; name: of the new one"""
    topic, name = await topic_of(ask), ask.required("name")
    if not NAME.fullmatch(name) or ask.role_for(name) < Role.ADMIN:
        raise Refused(400, said("{name} cannot be the name of a topic", name=name[:100]))
    resource = ConfigResource(ConfigKind.TOPIC, topic.name)
    options = (await ask.admin.configs.describe([resource]))[resource]
    own = {
        o.name: o.value
        for o in options.values()
        if o.source == ConfigSource.DYNAMIC_TOPIC_CONFIG and not o.is_sensitive
    }
    new = NewTopic(name, len(topic.partitions), topic.replication, own)
    (await ask.admin.topics.create([new])).require()
    words = [
        "topic",
        "create",
        name,
        "--partitions",
        str(new.partitions),
        "--replication-factor",
        str(new.replication),
    ]
    for option, value in own.items():
        words += ["-c", f"{option}={value}"]
    return Done(said("The topic {name} is created", name=name), f"/topics/{encoded(name)}",
                {"topic": name, "time_ms": int(time.time() * 1000)}, (ask.command(*words),))  # fmt: skip


PAGES: Final = (
    Page("topic", "/topics/{topic}", "topics", read, named="topic"),
    Page(
        "topic", "/topics/{topic}/options", "topics", read_options, named="topic", template="options.html",
        actions=(Action("/topics/{topic}/options", set_option, Role.ADMIN, "topic"),),
    ),
    Page(
        "topic", "/topics/{topic}/changes", "topics", read_changes, Role.OPERATE, named="topic", template="changes.html",
        actions=(
            Action("/topics/{topic}/partitions", add_partitions, Role.ADMIN, "topic"),
            Action("/topics/{topic}/empty", empty, Role.ADMIN, "topic"),
            Action("/topics/{topic}/delete", delete, Role.ADMIN, "topic"),
            Action("/topics/{topic}/clone", clone, Role.ADMIN, "topic"),
        ),
    ),
)  # fmt: skip
