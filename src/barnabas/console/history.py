"""Graphs of the past: what a monitor has kept, or else what the console itself has sampled while pages were looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from barnabas.console import services
from barnabas.console.asking import Ask
from barnabas.console.said import Refused, Said, said
from barnabas.console.services import MONITOR

SPANS: Final = {"1h": 3600, "6h": 21_600, "1d": 86_400, "7d": 604_800, "30d": 2_592_000}
SPAN: Final = "6h"
POINTS_MAX: Final = 300
"""What a graph shows at most; more are averaged."""
LINES_MAX: Final = 8
TIMEOUT_S: Final = 5.0
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One graph. names: of the monitor's series; labels: theirs. by: the labels that name a line; without any, all series
    are added up. part: what makes each value a share of this series, in percent."""

    title: Said
    name: str
    unit: str
    labels: Mapping[str, str]
    by: tuple[str, ...] = ()


def span_of(ask: Ask) -> str:
    """How far back the graphs go."""
    since = ask.text("since", SPAN)
    return since if since in SPANS else SPAN


async def graphs_of(ask: Ask, wanted: Sequence[Wanted], own: Sequence[Point] = ()) -> dict[str, Any]:
    """Graphs as plain data: {since, spans, is_kept, graphs: [{title, unit, lines: [{label, points}]}]}.

    own: (seconds since 1970, value), shown as the first graph where there is no monitor. A monitor that does not answer
    costs the page only its graphs.
    """
    since = span_of(ask)
    graphs: list[dict[str, Any] | None] = [None] * len(wanted)
    is_kept = ask.cluster.service(MONITOR.name) is not None
    failure = None
    if is_kept:
        try:
            graphs = list(await asyncio.gather(*(_graph(ask, one, since) for one in wanted)))
        except Refused as refused:
            failure = refused.reason
    if graphs and graphs[0] is None and len(own) > 1 and max(value for _, value in own) > 0:
        graphs[0] = _shaped(wanted[0], [("", list(own))])
    return {
        "since": since,
        "spans": list(SPANS),
        "is_kept": is_kept,
        "failure": failure,
        "graphs": [graph for graph in graphs if graph is not None],
    }


async def _graph(ask: Ask, wanted: Wanted, since: str) -> dict[str, Any] | None:
    """A graph of the monitor's series; None if nothing is kept, or if there are too many of them to be added up."""
    try:
        series = await _series(ask, {"cluster": ask.cluster.name}, wanted, since)
        if not series:
            # The monitor calls the cluster otherwise; of several, none is taken.
            series = await _series(ask, {}, wanted, since)
            if len({one["labels"].get("cluster") for one in series}) > 1:
                return None
    except Refused as refused:
        if refused.status in (400, 404):
            return None
        raise
    lines: dict[str, dict[float, float]] = {}
    for one in series:
        label = " ".join(str(one["labels"].get(name, "")) for name in wanted.by)
        line = lines.setdefault(label, {})
        for at, mean, _ in one["points"]:
            line[at] = line.get(at, 0.0) + mean
    shown_lines = [(label, sorted(line.items())) for label, line in sorted(lines.items()) if line]
    return _shaped(wanted, shown_lines[:LINES_MAX]) if shown_lines else None


async def _series(ask: Ask, cluster: Mapping[str, str], wanted: Wanted, since: str) -> list[dict[str, Any]]:
    query = urlencode({"name": wanted.name, **cluster, **wanted.labels, "since": since})
    history = await services.call(ask, MONITOR, "GET", f"/v1/history?{query}", timeout_s=TIMEOUT_S)
    return [one for one in history["series"] if one["points"]]


def _shaped(wanted: Wanted, lines: Sequence[tuple[str, list[Point]]]) -> dict[str, Any]:
    return {
        "title": wanted.title,
        "unit": wanted.unit,
        "lines": [{"label": label, "points": thinned(points)} for label, points in lines],
    }


def thinned(points: Sequence[Point]) -> list[tuple[float, float]]:
    """At most POINTS_MAX points, each the mean of as many neighbours."""
    step = -(-len(points) // POINTS_MAX)
    if step <= 1:
        return [(float(at), float(value)) for at, value in points]
    averages = []
    for begin in range(0, len(points), step):
        part = points[begin : begin + step]
        averages.append((part[-1][0], sum(value for _, value in part) / len(part)))
    return averages


RECORDS: Final = said("Records per second")
LAG: Final = said("Lag, in records")
BEHIND: Final = said("Behind, in seconds")
SIZE: Final = said("Size, all replicas")
USED: Final = said("Logs on disk, by broker")
FREE: Final = said("Free on disk, by broker")


def of_cluster() -> list[Wanted]:
    """The graphs of a whole cluster."""
    return [
        Wanted(RECORDS, "topic_records_per_second", "records/s", {}),
        Wanted(LAG, "group_lag", "records", {}),
        Wanted(USED, "disk_used_bytes", "bytes", {}, ("broker",)),
        Wanted(FREE, "disk_free_bytes", "bytes", {}, ("broker",)),
    ]


def of_topic(topic: str) -> list[Wanted]:
    """The graphs of a topic."""
    return [
        Wanted(RECORDS, "topic_records_per_second", "records/s", {"topic": topic}),
        Wanted(SIZE, "topic_bytes", "bytes", {"topic": topic}),
    ]


def of_group(group: str) -> list[Wanted]:
    """The graphs of a group."""
    return [
        Wanted(LAG, "group_lag", "records", {"group": group}),
        Wanted(BEHIND, "group_lag_seconds", "seconds", {"group": group}),
    ]
