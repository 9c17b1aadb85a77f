"""Lineage: where a topic's records come from and go to, through pipelines, queries, connectors, links and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from barnabas.console.asking import Ask
from barnabas.console.drawing import drawing
from barnabas.console.listing import cut
from barnabas.console.pages.lineage.graph import around, graph_of, id_of
from barnabas.console.pages.lineage.reading import Flow, flows_of
from barnabas.console.pages.topic import topic_of
from barnabas.console.rendering import number, rate
from barnabas.console.said import Said
from barnabas.console.site import Data, Page

KINDS: Final = ("pipeline", "query", "connector", "link", "group")
"""In the order of the table."""


async def read(ask: Ask) -> Data:
    """What moves records through the cluster: pipelines, queries, connectors, links, groups, with rates and lag"""
    flows, unknown = await flows_of(ask)
    return {
        **await _shown(ask, flows, unknown),
        "commands": [ask.command("topic", "list"), ask.command("group", "list")],
    }


async def read_topic(ask: Ask) -> Data:
    """Where a topic's records come from and where they go to, however many steps away"""
    name = (await topic_of(ask)).name
    flows, unknown = await flows_of(ask)
    commands = [ask.command("topic", "describe", name), ask.command("group", "list")]
    return {
        **await _shown(ask, around(name, flows), unknown, name),
        "topic": name,
        "tab": "lineage",
        "commands": commands,
    }


async def _shown(ask: Ask, flows: Sequence[Flow], unknown: Sequence[Said], here: str = "") -> dict[str, Any]:
    visible = [flow for flow in flows if _may_be_seen(ask, flow)]
    page, list_ = cut(
        ask, visible, lambda flow: flow.name,
        {
            "kind": lambda flow: KINDS.index(flow.kind), "name": lambda flow: flow.name,
            "rate": lambda flow: flow.per_second or 0, "lag": lambda flow: flow.lag or 0,
        },
        "kind",
    )  # fmt: skip
    picture, left_out = await asyncio.to_thread(_picture, visible, here)
    return {
        "flows": [asdict(flow) for flow in page],
        "list": list_,
        "picture": picture,
        "left_out": left_out,
        "unknown": list(unknown),
    }


def _picture(flows: Sequence[Flow], here: str) -> tuple[dict[str, Any] | None, int]:
    """(the picture, how many flows are not in it)."""
    graph, left_out = graph_of(flows, here)
    return drawing(graph, {id_of(flow): _note(flow) for flow in flows}) if flows else None, left_out


def _may_be_seen(ask: Ask, flow: Flow) -> bool:
    """Not a flow with a topic that is hidden from the user."""
    return all(ask.sees(place.name) for place in (*flow.reads, *flow.writes) if place.kind == "topic")


def _note(flow: Flow) -> str:
    per_second = "" if flow.per_second is None else f"{rate(flow.per_second)}/s"
    lag = "" if flow.lag is None else f"lag {number(flow.lag)}"
    return " · ".join(filter(None, (per_second, lag)))


PAGES: Final = (
    Page("lineage", "/lineage", "lineage", read),
    Page("lineage", "/topics/{topic}/lineage", "topics", read_topic, named="topic", template="topic.html"),
)
