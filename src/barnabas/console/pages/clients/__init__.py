"""Connected clients with their software, what clients push of their own metrics (KIP-714), and who is asked to push."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.admin.families.configs import (
    ConfigKind,
    ConfigResource,
    ConfigSource,
    back_to_default,
    set_to,
)
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.listing import cut
from barnabas.console.said import Refused, Said, said
from barnabas.console.site import Action, Data, Page

OPTIONS: Final = ("metrics", "interval.ms", "match")
METRICS_SHOWN: Final = 500


async def read(ask: Ask) -> Data:
    """Connected clients: software, address, user, the broker that they are connected to"""
    problem: Said | None = None
    rows: list[dict[str, Any]] = []
    try:
        clients_by_broker = await ask.admin.inspection.clients()
        rows = [
            {
                "client_id": one.client_id or "", "software": one.software, "address": one.address, "listener": one.listener,
                "principal": one.principal, "broker": node, "connected_ms": one.connected_ms, "idle_ms": one.idle_ms,
            }
            for node, clients in clients_by_broker.done.items()
            for one in clients.clients
        ]  # fmt: skip
    except ClientError as error:
        problem = said("Connections cannot be listed: {reason}", reason=str(error))
    shown, page = cut(
        ask,
        rows,
        lambda row: f"{row['client_id']} {row['software']} {row['address']} {row['principal']}",
        {
            "client": lambda row: row["client_id"],
            "software": lambda row: row["software"],
            "connected": lambda row: row["connected_ms"],
        },
        "client",
    )
    return {
        "clients": shown,
        "list": page,
        "problem": problem,
        "tab": "clients",
        "commands": [ask.command("clients")],
    }


async def read_metrics(ask: Ask) -> Data:
    """What clients are asked to push of their metrics (subscriptions), and who has pushed"""
    subscriptions, pushed = await asyncio.gather(_subscriptions(ask), _pushed(ask))
    return {
        "subscriptions": subscriptions[0],
        "instances": pushed[0],
        "problems": [problem for problem in (subscriptions[1], pushed[1]) if problem is not None],
        "tab": "metrics",
        "commands": [
            ask.command("clients", "--metrics"),
            ask.command("config", "set", "metrics", "NAME", "metrics=*"),
        ],
    }


async def _subscriptions(ask: Ask) -> tuple[list[dict[str, Any]], Said | None]:
    try:
        named = await ask.admin.configs.resources([ConfigKind.CLIENT_METRICS])
        options_by_name = (await ask.admin.configs.describe(named)).done
    except ClientError as error:
        return [], said("Subscriptions cannot be listed: {reason}", reason=str(error))
    return [
        {
            "name": resource.name,
            "options": [
                {
                    "name": option.name,
                    "value": option.value,
                    "is_set": option.source == ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
                }
                for option in options.values()
            ],
        }
        for resource, options in sorted(options_by_name.items(), key=lambda pair: pair[0].name)
    ], None


async def _pushed(ask: Ask) -> tuple[list[dict[str, Any]], Said | None]:
    try:
        metrics_by_broker = await ask.admin.inspection.client_metrics()
    except ClientError as error:
        return [], said("The brokers do not tell what clients push: {reason}", reason=str(error))
    return [
        {
            "instance": str(one.instance_id), "client_id": one.client_id, "software": one.software, "address": one.address,
            "broker": node, "received_ms": one.received_ms, "pushes": one.pushes, "metrics": len(one.metrics),
        }
        for node, instances in metrics_by_broker.done.items()
        for one in instances
    ], None  # fmt: skip


async def read_instance(ask: Ask) -> Data:
    """The metrics that one client has pushed last: q finds by a part of the name"""
    wanted, word = ask.path["instance"], ask.text("q").lower()
    metrics_by_broker = await ask.admin.inspection.client_metrics()
    for node, instances in metrics_by_broker.done.items():
        for one in instances:
            if str(one.instance_id) == wanted:
                rows = [
                    {"name": metric.name, "labels": dict(metric.labels), "value": metric.value}
                    for metric in sorted(one.metrics, key=lambda metric: metric.name)
                    if word in metric.name.lower()
                ]
                return {
                    "instance": wanted, "client_id": one.client_id, "software": one.software, "address": one.address,
                    "broker": node, "received_ms": one.received_ms, "metrics": rows[:METRICS_SHOWN], "count": len(rows),
                    "list": {"q": ask.text("q"), "sort": "", "descending": False}, "tab": "metrics",
                    "commands": [ask.command("clients", "--metrics")],
                }  # fmt: skip
    raise Refused(404, said("No client {name} has pushed metrics lately", name=wanted[:60]))


async def subscribe(ask: Ask) -> Done:
    """Set a subscription: name, metrics (prefixes with commas, * for all), interval.ms, match (client_id=REGEX,...)"""
    name = ask.required("name")
    values = {option: ask.text(option) for option in OPTIONS if ask.text(option)}
    if not values:
        raise Refused(400, said("{name} is missing", name="metrics"))
    resource = ConfigResource(ConfigKind.CLIENT_METRICS, name)
    (await ask.admin.configs.alter({resource: set_to(values)})).require()
    words = [f"{option}={value}" for option, value in values.items()]
    return Done(
        said("The subscription {name} is set", name=name), "/clients/metrics", {"name": name, **values},
        (ask.command("config", "set", "metrics", name, *words),),
    )  # fmt: skip


async def unsubscribe(ask: Ask) -> Done:
    """Remove a subscription: name"""
    name = ask.required("name")
    resource = ConfigResource(ConfigKind.CLIENT_METRICS, name)
    (await ask.admin.configs.alter({resource: back_to_default(OPTIONS)})).require()
    return Done(
        said("The subscription {name} is removed", name=name), "/clients/metrics", {"name": name},
        (ask.command("config", "unset", "metrics", name, *OPTIONS),),
    )  # fmt: skip


PAGES: Final = (
    Page("clients", "/clients", "clients", read),
    Page(
        "clients", "/clients/metrics", "clients", read_metrics, template="metrics.html",
        actions=(Action("/clients/metrics", subscribe), Action("/clients/metrics/remove", unsubscribe)),
    ),
    Page("clients", "/clients/metrics/{instance}", "clients", read_instance, template="instance.html"),
)  # fmt: skip
