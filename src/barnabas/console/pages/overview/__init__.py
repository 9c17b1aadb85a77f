"""The cluster at one look: whether it is well, and if not why and what to do; brokers, disks, throughput, clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from barnabas.admin import Results
from barnabas.admin.families.groups import GroupListing
from barnabas.admin.families.log_dirs import LogDir
from barnabas.admin.releases import METADATA, NAMES
from barnabas.admin.values import NodeId
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask
from barnabas.console.changes import lately
from barnabas.console.clusters import Layout
from barnabas.console.history import graphs_of, of_cluster
from barnabas.console.pages.overview.health import reasons_of
from barnabas.console.roles import Role
from barnabas.console.site import Data, Page

MEMBERS_GROUPS_MAX: Final = 200
CLIENTS_SHOWN: Final = 50


async def read(ask: Ask) -> Data:
    """Health with its reasons, brokers, disks, throughput, who is connected, and what was changed lately"""
    cluster = ask.cluster
    layout = await cluster.layout.get()
    dirs, groups, moving = await asyncio.gather(
        _or_none(cluster.dirs.get()),
        _or_none(cluster.groups.get()),
        _or_none(ask.admin.replicas.reassignments()),
    )
    topics = [topic for topic in layout.topics.values() if ask.sees(topic.name)]
    sizes = _sizes(dirs)
    rates = cluster.rates()
    sees_all = ask.role_for(None) >= Role.ADMIN
    reasons = reasons_of(layout, dirs, moving)
    return {
        "cluster_id": layout.view.id,
        "controller": layout.view.controller,
        "state": max((reason["state"] for reason in reasons), key=("good", "warn", "bad").index, default="good"),
        "reasons": reasons,
        "brokers": [
            {
                "id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack,
                "is_controller": broker.id == layout.view.controller,
                "leaders": _count(layout, lambda p, b=broker.id: p.leader == b),
                "replicas": _count(layout, lambda p, b=broker.id: b in p.replicas),
                **sizes.get(broker.id, {"size_bytes": None, "total_bytes": None, "usable_bytes": None}),
            }
            for broker in sorted(layout.view.brokers, key=lambda broker: broker.id)
        ],
        "topics": len(topics),
        "internal_topics": sum(topic.is_internal for topic in topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "size_bytes": sum(row["size_bytes"] or 0 for row in sizes.values()) if sizes else None,
        "groups": None if groups is None else sum(len(groups_of_broker) for groups_of_broker in groups.done.values()),
        "records_per_s": sum(rates.values()) if rates else None,
        "history": await graphs_of(ask, of_cluster(), cluster.history()),
        "clients": await _clients(ask, groups),
        "features": await _features(ask),
        "changes": lately(await cluster.lately.get(), None if sees_all else ask.user or ""),
        "audit": cluster.audit if cluster.audit in layout.topics and ask.sees(cluster.audit or "") else None,
        "commands": [
            ask.command("cluster", "info"), ask.command("topic", "list"), ask.command("clients"),
        ],
    }  # fmt: skip


async def _or_none(work: Any) -> Any:
    """What can be read; None for what this cluster does not tell this user: the rest of the page is still worth showing."""
    try:
        return await work
    except ClientError:
        return None


def _count(layout: Layout, holds: Any) -> int:
    return sum(holds(partition) for topic in layout.topics.values() for partition in topic.partitions)


def _sizes(dirs: Results[NodeId, Sequence[LogDir]] | None) -> dict[int, dict[str, int | None]]:
    sizes: dict[int, dict[str, int | None]] = {}
    for node, rows in (dirs.done if dirs is not None else {}).items():
        totals = [row.total_bytes for row in rows if row.total_bytes is not None]
        usable = [row.usable_bytes for row in rows if row.usable_bytes is not None]
        sizes[node] = {
            "size_bytes": sum(row.size_bytes for row in rows),
            "total_bytes": sum(totals) if totals else None,
            "usable_bytes": sum(usable) if totals else None,
        }
    return sizes


async def _clients(ask: Ask, groups: Results[NodeId, Sequence[GroupListing]] | None) -> list[dict[str, Any]]:
    """Members of groups by client id and address, with their groups; Kafka itself knows of no other clients."""
    if groups is None:
        return []
    names = [
        g.name
        for groups_of_broker in groups.done.values()
        for g in groups_of_broker
        if g.type.lower() != "share" and ask.sees(g.name)
    ]
    try:
        described = await ask.admin.groups.describe(names[:MEMBERS_GROUPS_MAX])
    except ClientError:
        return []
    members: Counter[tuple[str, str, str]] = Counter()
    for group in described.done.values():
        for member in group.members:
            members[member.client, member.host.removeprefix("/"), group.name] += 1
    return [
        {"client": client, "host": host, "group": group, "members": count}
        for (client, host, group), count in sorted(members.items())[:CLIENTS_SHOWN]
    ]


async def _features(ask: Ask) -> list[dict[str, Any]]:
    try:
        features = await ask.admin.cluster.features()
    except ClientError:
        return []
    return [
        {
            "name": name, "level": feature.level, "level_max": feature.level_max,
            "release": NAMES.get(feature.level) if name == METADATA else None,
        }
        for name, feature in sorted(features.features.items())
    ]  # fmt: skip


PAGES: Final = (Page("overview", "", "overview", read),)
