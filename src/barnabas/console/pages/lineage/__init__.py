"""Lineage: where a topic's records come from and go to, through pipelines, queries, connectors, links and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from barnabas.console.asking import Ask
from barnabas.console.drawing import drawing
from barnabas.console.pages.lineage.graph import around, graph_of, id_of
from barnabas.console.pages.lineage.reading import Flow, flows_of
from barnabas.console.pages.topic import topic_of
from barnabas.console.said import Said
from barnabas.console.site import Data, Page


async def read(ask: Ask) -> Data:
    """What moves records through the cluster: pipelines, queries, connectors, links, groups, with rates and lag"""
    flows, unknown = await flows_of(ask)
    return {
        **_shown(ask, flows, unknown),
        "commands": [ask.command("topic", "list"), ask.command("group", "list")],
    }


async def read_topic(ask: Ask) -> Data:
    """Where a topic's records come from and where they go to, however many steps away"""
    name = (await topic_of(ask)).name
    flows, unknown = await flows_of(ask)
    commands = [ask.command("topic", "describe", name), ask.command("group", "list")]
    return {
        **_shown(ask, around(name, flows), unknown),
        "topic": name,
        "tab": "lineage",
        "commands": commands,
    }


def _shown(ask: Ask, flows: Sequence[Flow], unknown: Sequence[Said]) -> dict[str, Any]:
    visible = [flow for flow in flows if _may_be_seen(ask, flow)]
    graph, left_out = graph_of(visible)
    return {
        "flows": [asdict(flow) for flow in visible],
        "picture": drawing(graph, {id_of(flow): _note(flow) for flow in visible}) if visible else None,
        "left_out": left_out,
        "unknown": list(unknown),
    }


def _may_be_seen(ask: Ask, flow: Flow) -> bool:
    """Not a flow with a topic that is hidden from the user."""
    return all(ask.sees(place.name) for place in (*flow.reads, *flow.writes) if place.kind == "topic")


def _note(flow: Flow) -> str:
    rate = "" if flow.per_second is None else f"{flow.per_second:,.0f}/s"
    lag = "" if flow.lag is None else f"lag {flow.lag:,}"
    return " · ".join(filter(None, (rate, lag)))


PAGES: Final = (
    Page("lineage", "/lineage", "lineage", read),
    Page("lineage", "/topics/{topic}/lineage", "topics", read_topic, named="topic", template="topic.html"),
)
