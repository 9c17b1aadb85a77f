"""Brokers: log dirs, options with their source, leaders that are not where they should be, partitions on the move."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.admin import ConfigKind, ConfigResource, back_to_default, set_to
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.brokers.levels import PAGE as LEVELS
from barnabas.console.pages.brokers.moving import PAGE as MOVING
from barnabas.console.pages.topic import option_row
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page
from barnabas.wire.errors import ErrorCode

LARGEST: Final = 50


async def read(ask: Ask) -> Data:
    """The brokers with what they lead and hold, and the leaders that could be elected"""
    layout, dirs = await asyncio.gather(ask.cluster.layout.get(), _or_none(ask.cluster.dirs.get()))
    partitions = [partition for topic in layout.topics.values() for partition in topic.partitions]
    rows = []
    for broker in sorted(layout.view.brokers, key=lambda broker: broker.id):
        directories = [] if dirs is None else dirs.done.get(broker.id, [])
        rows.append(
            {
                "id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack,
                "is_controller": broker.id == layout.view.controller,
                "leaders": sum(partition.leader == broker.id for partition in partitions),
                "preferred": sum(partition.preferred_leader == broker.id for partition in partitions),
                "replicas": sum(broker.id in partition.replicas for partition in partitions),
                "behind": sum(broker.id in p.replicas and broker.id not in p.in_sync for p in partitions),
                "size_bytes": sum(directory.size_bytes for directory in directories) if dirs is not None else None,
                "dirs": len(directories),
            }
        )  # fmt: skip
    elsewhere = sum(p.leader >= 0 and p.leader != p.preferred_leader for p in partitions)
    return {
        "brokers": rows,
        "elsewhere": elsewhere,
        "commands": [ask.command("cluster", "info"), ask.command("log", "dirs")],
    }


async def _or_none(work: Any) -> Any:
    try:
        return await work
    except ClientError:
        return None


async def elect(ask: Ask) -> Done:
    """Elect the preferred leader of every partition that is led by another broker"""
    results = await ask.admin.replicas.elect()
    done = results.except_for(ErrorCode.ELECTION_NOT_NEEDED)
    failed = {str(key): str(error) for key, error in done.failed.items()}
    if failed:
        first = next(iter(failed.items()))
        raise Refused(409, said("{count} partitions have no new leader: {partition}: {reason}",
                                count=len(failed), partition=first[0], reason=first[1]))  # fmt: skip
    return Done(said("{count} partitions have their preferred leader again", count=len(results.done)), "/brokers",
                {"elected": [str(key) for key in results.done]})  # fmt: skip


def node_of(ask: Ask) -> int:
    """The broker of the path. Raises Refused."""
    text = ask.path["broker"]
    if not text.isdecimal():
        raise Refused(404, said("There is no broker {id}", id=text[:20]))
    return int(text)


async def read_one(ask: Ask) -> Data:
    """One broker: its log dirs with the largest partitions, and its options with their source"""
    node = node_of(ask)
    view = (await ask.cluster.layout.get()).view
    broker = next((one for one in view.brokers if one.id == node), None)
    if broker is None:
        raise Refused(404, said("There is no broker {id}", id=node), said("It may not be running."))
    resource = ConfigResource(ConfigKind.BROKER, str(node))
    dirs, configs = await asyncio.gather(
        _or_none(ask.admin.log_dirs.describe([node])),
        _or_none(ask.admin.configs.describe([resource], synonyms=True, documentation=True)),
    )
    q, only_set = ask.text("q").lower(), ask.flag("set")
    options = [] if configs is None else [option_row(option) for option in configs[resource].values()]
    directories = [] if dirs is None else dirs[node]
    return {
        "id": node,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "is_controller": view.controller == node,
        "dirs": [
            {
                "path": directory.path, "size_bytes": directory.size_bytes, "total_bytes": directory.total_bytes,
                "usable_bytes": directory.usable_bytes, "replicas": len(directory.replicas),
                "error": None if directory.error is None else str(directory.error),
            }
            for directory in directories
        ],
        "largest": sorted(
            (
                {"topic": r.partition.topic, "partition": r.partition.partition, "size_bytes": r.size_bytes,
                 "lag": r.lag, "is_future": r.is_future, "path": directory.path}
                for directory in directories for r in directory.replicas if ask.sees(r.partition.topic)
            ),
            key=lambda row: -row["size_bytes"],
        )[:LARGEST],
        "options": [o for o in options if q in o["name"].lower() and (not only_set or o["source"] != "default")],
        "list": {"q": ask.text("q"), "sort": "", "descending": False},
        "only_set": only_set,
        "commands": [ask.command("config", "describe", "broker", str(node), "--all"), ask.command("log", "dirs")],
    }  # fmt: skip


async def set_option(ask: Ask) -> Done:
    """Set an option of a broker while it runs: option, value, was; unset=1 puts it back; everywhere=1 sets it for all"""
    node, option = node_of(ask), ask.required("option")
    one = ConfigResource(ConfigKind.BROKER, str(node))
    before = (await ask.admin.configs.describe([one], names=[option]))[one].get(option)
    if before is None:
        raise Refused(404, said("Brokers have no option {name}", name=option[:100]))
    was = ask.raw("was")
    if was is not None and was != (before.value or "") and not before.is_sensitive:
        raise Refused(
            409,
            said("Somebody else has set {name} to {value} meanwhile", name=option, value=before.value or ""),
            said("Look at the new value, and send yours again if it is still right."),
        )
    everywhere = ask.flag("everywhere")
    resource = ConfigResource(ConfigKind.BROKER, "" if everywhere else str(node))
    value = ask.raw("value")
    back = value is None or ask.flag("unset")
    changes = back_to_default([option]) if back else set_to({option: value or ""})
    (await ask.admin.configs.alter({resource: changes})).require()
    name = "default" if everywhere else str(node)
    what = ("unset", "broker", name, option) if back else ("set", "broker", name, f"{option}={value}")
    shown = said("{name} is back at its default", name=option) if back else said("{name} is set", name=option)
    data = {"option": option, "broker": name}
    if not before.is_sensitive:
        data |= {"before": before.value or "", "after": "" if back else value or ""}
    commands = () if before.is_sensitive else (ask.command("config", *what),)
    return Done(shown, f"/brokers/{node}?q={option}", data, commands)


PAGES: Final = (
    Page("brokers", "/brokers", "brokers", read, actions=(Action("/brokers/elect", elect),)),
    MOVING,
    LEVELS,
    Page(
        "brokers", "/brokers/{broker}", "brokers", read_one, template="one.html",
        actions=(Action("/brokers/{broker}/options", set_option),),
    ),
)  # fmt: skip
