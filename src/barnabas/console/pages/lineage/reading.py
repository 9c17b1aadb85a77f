"""What moves records through a cluster: pipelines, SQL queries, connectors, links and groups, each with what it reads and
writes, as the services tell it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask
from barnabas.console.pages import pipelines, sql
from barnabas.console.pages.connectors.progress import group_of, progress_of, topics_of
from barnabas.console.pages.connectors.worker import call as ask_connect
from barnabas.console.pages.groups import lag_of
from barnabas.console.pages.mirrors.reading import links_of, summary_of
from barnabas.console.pages.pipelines.server import call as ask_pipelines
from barnabas.console.rendering import encoded
from barnabas.console.said import Refused, Said, said

log = logging.getLogger("barnabas.console")

FLOWS_MAX: Final = 500
"""Of each kind: for each pipeline and connector its service is asked once."""
AT_ONCE: Final = 8
ANSWER_S: Final = 5.0
"""How long the page waits for each kind: the others are worth showing without it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where records are. kind: topic, or what a service calls it: a table's format, `cluster`, the class of a connector,
    whose other end has no name that is known."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Flow:
    """What moves records. kind: pipeline, query, connector, link or group; only a group writes nothing that is known.

    path: of its page, below the cluster's. per_second, lag: in records; None: not known.
    """

    kind: str
    name: str
    path: str
    reads: tuple[Place, ...]
    writes: tuple[Place, ...] = ()
    per_second: float | None = None
    lag: int | None = None


def topics(names: Iterable[str]) -> tuple[Place, ...]:
    """Topics as places."""
    return tuple(Place("topic", name) for name in names)


async def flows_of(ask: Ask) -> tuple[list[Flow], list[Said]]:
    """What moves records in the cluster, as far as the user may see it, and why something of it is not known."""
    kinds: tuple[tuple[str, Callable[[Ask], Awaitable[Sequence[Flow]]]], ...] = (
        ("pipelines", _pipelines), ("sql", _queries), ("connect", _connectors), ("mirrors", _links), ("groups", _groups),
    )  # fmt: skip
    parts = await asyncio.gather(*(_or_reason(name, kind(ask)) for name, kind in kinds))
    flows = [flow for part in parts if not isinstance(part, Said) for flow in part]
    own = {flow.name for flow in flows if flow.kind in ("pipeline", "query")}
    own |= {group_of(flow.name, {}) for flow in flows if flow.kind == "connector"}
    flows = [flow for flow in flows if flow.kind != "group" or not is_of(flow.name, own)]
    return [flow for flow in flows if ask.sees(flow.name)], [part for part in parts if isinstance(part, Said)]


def is_of(group: str, own: Collection[str]) -> bool:
    """Whether a group keeps the offsets of something that is shown itself: of a pipeline, of one of its outputs
    (PIPELINE.OUTPUT), or of the transactions that one writes (barnabas-PIPELINE.OUTPUT-...)."""
    name = group.removeprefix("barnabas-")
    parts = name.split(".")
    return group in own or any(".".join(parts[:count]) in own for count in range(1, len(parts)))


async def _or_reason(name: str, work: Awaitable[Sequence[Flow]]) -> Sequence[Flow] | Said:
    """A service that the cluster does not have moves nothing; one that does not answer, or oddly, is named."""
    try:
        return await asyncio.wait_for(work, ANSWER_S)
    except TimeoutError:
        return said("{name} has not answered within {seconds} seconds", name=name, seconds=f"{ANSWER_S:g}")
    except Refused as refused:
        return [] if refused.status in (404, 501) else refused.reason
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        log.warning("a service answers oddly", extra={"name_of": name, "reason": repr(error)})
        return said("{name} has not answered as it should", name=name)
    except ClientError as error:
        return Said("{reason}", {"reason": str(error)})


async def _each(names: Sequence[str], ask_for: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    """The answer for each name; without those that are gone by now."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Any:
        async with places:
            try:
                return await ask_for(name)
            except Refused as refused:
                if refused.status == 503:
                    raise
                return None

    names = names[:FLOWS_MAX]
    answers = await asyncio.gather(*(one(name) for name in names))
    return {name: answer for name, answer in zip(names, answers, strict=True) if answer is not None}


async def _pipelines(ask: Ask) -> list[Flow]:
    rows = {row["name"]: row for row in (await pipelines.read(ask))["pipelines"]}
    pictures = await _each(
        list(rows), lambda name: ask_pipelines(ask, "GET", f"/pipelines/{encoded(name)}/picture")
    )
    flows = []
    for name, picture in pictures.items():
        row, nodes = rows[name], picture["nodes"]
        sources = [part for node in nodes if node["kind"] == "source" for part in node["title"].split(", ")]
        targets = [node["title"].split(" ", 1) for node in nodes if node["kind"] == "output"]
        writes = tuple(Place("topic" if kind == "kafka" else kind, target) for kind, target in targets)
        flows.append(
            Flow("pipeline", name, f"/pipelines/{encoded(name)}", topics(sources), writes,
                 row["records_per_second"], row["lag"])
        )  # fmt: skip
    return flows


async def _queries(ask: Ask) -> list[Flow]:
    state = await sql.read(ask)
    flows = []
    for query in state["queries"]:
        reads = topics(one["topic"] for one in state["relations"] if query["id"] in one["read_by"])
        flows.append(
            Flow(
                "query",
                query["id"],
                "/sql",
                reads,
                topics(query["topics"]),
                query["per_second"],
                query["lag"],
            )
        )
    return flows


async def _connectors(ask: Ask) -> list[Flow]:
    connectors = await ask_connect(ask, "GET", "/connectors?expand=info")
    infos = {name: connectors[name].get("info") or {} for name in sorted(connectors) if ask.sees(name)}
    of_topics = await _each(list(infos), lambda name: topics_of(ask, name))
    progress = await progress_of(ask, infos, of_topics)
    flows = []
    for name, info in infos.items():
        config = info.get("config") or {}
        inside = topics(sorted(of_topics.get(name) or _topics_in(config)))
        outside = (Place(_short(str(config.get("connector.class") or "")), ""),)
        reads, writes = (inside, outside) if info.get("type") == "sink" else (outside, inside)
        lag, per_second = progress[name]["lag"], progress[name]["per_second"]
        flows.append(Flow("connector", name, f"/connectors/{encoded(name)}", reads, writes, per_second, lag))
    return flows


def _topics_in(config: Any) -> list[str]:
    """The topics of a sink that has not read any yet."""
    return [topic.strip() for topic in str(config.get("topics", "")).split(",") if topic.strip()]


def _short(class_name: str) -> str:
    """io.confluent.connect.jdbc.JdbcSinkConnector as JdbcSink."""
    return class_name.rpartition(".")[2].removesuffix("Connector") or "outside"


async def _links(ask: Ask) -> list[Flow]:
    flows = []
    for link in await links_of(ask):
        summary = summary_of(link)
        if summary["state"] != "promoted":
            flows.append(
                Flow("link", link.name, f"/mirrors/{encoded(link.name)}", (Place("cluster", link.source),),
                     topics(sorted(link.topics)), None, summary["lag"])
            )  # fmt: skip
    return flows


async def _groups(ask: Ask) -> list[Flow]:
    cluster = ask.cluster
    commits, bounds = await asyncio.gather(cluster.commits.get(), cluster.bounds.get())
    speeds = cluster.group_rates()
    return [
        Flow("group", name, f"/groups/{encoded(name)}", topics(sorted({key.topic for key in offsets})), (),
             speeds.get(name), lag_of(offsets, bounds))
        for name, offsets in sorted(commits.items())
        if offsets
    ]  # fmt: skip
