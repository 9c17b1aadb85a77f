"""The list of topics: size, records, rate, groups, state; and the form that creates one."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from barnabas.admin import NewTopic
from barnabas.admin.families.topics import DEFAULT, Topic
from barnabas.client.errors import ClientError
from barnabas.config.topic_options import TOPIC
from barnabas.console.asking import Ask, Done
from barnabas.console.clusters import sizes_of
from barnabas.console.listing import cut
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
PARTITIONS_MAX: Final = 100_000
COMMON: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "min.insync.replicas",
    "max.message.bytes",
)
"""The options that the form shows first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One topic. records: offsets between start and end, of all partitions. size_bytes: of all replicas.

    bytes_per_hour: how fast size_bytes grows. groups: that have committed offsets. None: this cluster does not tell.
    state: good, behind, offline.
    """

    name: str
    is_internal: bool
    partitions: int
    replication: int
    records: int | None
    size_bytes: int | None
    records_per_s: float | None
    bytes_per_hour: float | None
    groups: int | None
    state: str


def state_of(topic: Topic) -> str:
    """The state of a topic's worst partition."""
    if any(partition.leader < 0 for partition in topic.partitions):
        return "offline"
    return "behind" if any(partition.is_under_replicated for partition in topic.partitions) else "good"


async def read(ask: Ask) -> Data:
    """The topics with size, records, rate, groups and state"""
    rows = await rows_of(ask)
    internal = ask.flag("internal")
    wanted = ask.text("state")
    shown = [row for row in rows if (internal or not row.is_internal) and wanted in ("", row.state)]
    page, list_ = cut(
        ask, shown, lambda row: row.name,
        {
            "name": lambda row: row.name,
            "partitions": lambda row: row.partitions,
            "replication": lambda row: row.replication,
            "records": lambda row: row.records or 0,
            "size": lambda row: row.size_bytes or 0,
            "rate": lambda row: row.records_per_s or 0,
            "growth": lambda row: row.bytes_per_hour or 0,
            "groups": lambda row: row.groups or 0,
        },
        "name",
    )  # fmt: skip
    return {
        "topics": page,
        "list": list_,
        "internal": internal,
        "hidden": sum(row.is_internal for row in rows) if not internal else 0,
        "state": wanted,
        "commands": [ask.command("topic", "list")],
    }


async def rows_of(ask: Ask) -> list[Row]:
    """All topics that the user may see."""
    cluster = ask.cluster
    layout = await cluster.layout.get()
    # What is slow to read may be missing: the list itself is worth more than that.
    dirs, bounds, commits = await asyncio.gather(
        cluster.dirs.get(), cluster.bounds.get(), cluster.commits.get(), return_exceptions=True
    )
    sizes = None if isinstance(dirs, BaseException) else sizes_of(dirs)
    records: Counter[str] | None = None
    if not isinstance(bounds, BaseException):
        records = Counter()
        for key, bound in bounds.items():
            records[key.topic] += bound.end - bound.start
    readers: Counter[str] | None = None
    if not isinstance(commits, BaseException):
        readers = Counter(topic for offsets in commits.values() for topic in {key.topic for key in offsets})
    for failure in (dirs, bounds, commits):
        if isinstance(failure, BaseException) and not isinstance(failure, ClientError):
            raise failure
    rates, growth = cluster.rates(), cluster.growth()
    return [
        Row(
            topic.name,
            topic.is_internal,
            len(topic.partitions),
            topic.replication,
            None if records is None else records[topic.name],
            None if sizes is None else sizes[topic.name],
            rates.get(topic.name),
            growth.get(topic.name),
            None if readers is None else readers[topic.name],
            state_of(topic),
        )
        for topic in layout.topics.values()
        if ask.sees(topic.name)
    ]


# --- creating --------------------------------------------------------------------------------------------


async def read_form(ask: Ask) -> Data:
    """What a new topic may be given: the options with their help and defaults"""
    layout = await ask.cluster.layout.get()
    options = [option_of(name) for name in (*COMMON, *sorted(set(TOPIC.names()) - set(COMMON)))]
    return {
        "brokers": len(layout.view.brokers),
        "common": [option for option in options if option["name"] in COMMON],
        "more": [option for option in options if option["name"] not in COMMON],
        "commands": [
            ask.command("topic", "create", "NAME", "--partitions", "6", "-c", "retention.ms=86400000")
        ],
    }


def option_of(name: str) -> dict[str, Any]:
    """An option of topics as the form needs it."""
    option = TOPIC[name]
    return {
        "name": name,
        "doc": option.doc,
        "allowed": option.allowed(),
        "choices": option.choices,
        "default": option.format(option.default),
    }


async def create(ask: Ask) -> Done:
    """Create a topic: name, partitions, replication, options as `option.NAME`; check=1 only asks whether it could be made"""
    name = ask.required("name")
    if not NAME.fullmatch(name) or name in (".", ".."):
        raise Refused(
            400,
            said("{name} cannot be the name of a topic", name=name[:100]),
            said("Use up to 249 letters, digits, dots, dashes and underscores."),
        )
    if ask.role_for(name) < Role.ADMIN:
        raise Refused(403, said("You may not create a topic of this name"))
    partitions = ask.number("partitions", DEFAULT, 1, PARTITIONS_MAX)
    replication = ask.number("replication", DEFAULT, 1, 1_000)
    configs = {
        field.removeprefix("option."): ask.text(field)
        for field in ask.fields
        if field.startswith("option.") and ask.text(field)
    }
    options = ask.fields.get("options")
    if isinstance(options, dict):
        configs |= {str(option): str(value) for option, value in options.items()}
    check = ask.flag("check")
    new = NewTopic(name, partitions, replication, configs)
    (await ask.admin.topics.create([new], validate_only=check)).require()
    words = ["topic", "create", name]
    words += [] if partitions == DEFAULT else ["--partitions", str(partitions)]
    words += [] if replication == DEFAULT else ["--replication-factor", str(replication)]
    for option, value in configs.items():
        words += ["-c", f"{option}={value}"]
    commands = (ask.command(*words, *(["--dry-run"] if check else [])),)
    if check:
        return Done(
            said("The topic {name} could be created", name=name), "/topics/create", {"topic": name}, commands
        )
    return Done(
        said("The topic {name} is created", name=name), f"/topics/{encoded(name)}", {"topic": name}, commands
    )


PAGES: Final = (
    Page("topics", "/topics", "topics", read, actions=(Action("/topics", create),)),
    Page(
        "topics", "/topics/create", "topics", read_form, Role.READ, template="create.html",
        actions=(Action("/topics/create", create),),
    ),
)  # fmt: skip
