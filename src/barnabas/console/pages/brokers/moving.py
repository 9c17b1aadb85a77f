"""Partitions on the move between brokers: how far they are; starting and stopping it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.topics import NAME
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

HOME: Final = "/brokers/reassignments"


async def read(ask: Ask) -> Data:
    """The partitions that are being moved, with the share of their bytes that has arrived"""
    moving, dirs = await asyncio.gather(
        ask.admin.replicas.reassignments(), _or_none(ask.admin.log_dirs.describe())
    )
    layout = await ask.cluster.layout.get()
    sizes: dict[tuple[int, str, int], int] = {}
    for node, directories in (dirs.done if dirs is not None else {}).items():
        for directory in directories:
            for replica in directory.replicas:
                sizes[node, *replica.partition] = replica.size_bytes
    rows = []
    for key, move in sorted(moving.items()):
        sizes_before = [sizes.get((node, *key), 0) for node in move.replicas if node not in move.adding]
        whole = max(sizes_before, default=0) * len(move.adding)
        arrived = sum(sizes.get((node, *key), 0) for node in move.adding)
        rows.append(
            {
                "topic": key.topic, "partition": key.partition, "replicas": move.replicas, "adding": move.adding,
                "removing": move.removing, "arrived_bytes": arrived, "whole_bytes": whole,
            }
        )  # fmt: skip
    return {
        "moving": rows,
        "brokers": sorted(broker.id for broker in layout.view.brokers),
        "topics": sorted(name for name in layout.topics if ask.sees(name)),
        "commands": [ask.command("cluster", "info")],
    }


async def _or_none(work: Any) -> Any:
    try:
        return await work
    except ClientError:
        return None


async def move(ask: Ask) -> Done:
    """Move a partition: topic, partition, replicas (ids with commas, the preferred leader first); cancel=1 stops it"""
    topic = ask.required("topic")
    if not NAME.fullmatch(topic):
        raise Refused(404, said("There is no topic {name}", name=topic[:250]))
    key = TopicPartition(topic, ask.number("partition", 0, 0, 1_000_000))
    if ask.flag("cancel"):
        (await ask.admin.replicas.reassign({key: None})).require()
        return Done(said("{partition} stays where it was", partition=str(key)), HOME, {"partition": str(key)})
    words = ask.required("replicas").replace(",", " ").split()
    if not all(word.isdecimal() for word in words) or not words:
        raise Refused(
            400, said("{value} is not a list of brokers like 1,2,3", value=ask.text("replicas")[:60])
        )
    replicas = [int(word) for word in words]
    description = (await ask.admin.topics.describe([topic]))[topic]
    if key.partition >= len(description.partitions):
        raise Refused(
            404, said("{topic} has {count} partitions", topic=topic, count=len(description.partitions))
        )
    before = description.partitions[key.partition].replicas
    (await ask.admin.replicas.reassign({key: replicas})).require()
    return Done(
        said("{partition} moves to {brokers}", partition=str(key), brokers=", ".join(words)),
        HOME,
        {"partition": str(key), "before": list(before), "after": replicas},
    )


PAGE: Final = Page("brokers", HOME, "brokers", read, template="moving.html", actions=(Action(HOME, move),))
