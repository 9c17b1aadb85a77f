"""Spreads a request for many resources over the brokers that answer for them, in batches, with retries.

A family says where a resource belongs (`Route`) and how one batch is asked of one broker (`AskBatch`); the rest is here:
batches of one broker follow one another, brokers are asked side by side, what fails with a passing error is asked again
where it belongs now, and what fails for good becomes that resource's error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from barnabas.admin.errors import ResourceError
from barnabas.admin.results import Results
from barnabas.admin.values import NO_NODE, Broker, NodeId, TopicPartition
from barnabas.client.async_cluster import GROUP, AsyncCluster, is_passing
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import AuthenticationFailed, BrokerError, ClientError
from barnabas.wire.errors import ErrorCode

K = TypeVar("K")
V = TypeVar("V")

ANY_NODE: Final = -1
BATCH: Final = 500
"""The most resources in one request, unless a family says otherwise."""

Places: TypeAlias = Mapping[K, int | ClientError]
Route: TypeAlias = Callable[[Sequence[K]], Awaitable[Places[K]]]
AskBatch: TypeAlias = Callable[[AsyncConnection, Sequence[K]], Awaitable[Mapping[K, V | ClientError]]]


async def spread(
    cluster: AsyncCluster,
    keys: Iterable[K],
    route: Route[K],
    ask: AskBatch[K, V],
    *,
    batch: int = BATCH,
    also_passing: frozenset[ErrorCode] = frozenset(),
    final: frozenset[ErrorCode] = frozenset(),
) -> Results[K, V]:
    """One result per resource. also_passing: errors in answers (not of the route) that pass as well. final: errors that
    elsewhere pass, and here are results.

    Raises BrokerUnavailable if no broker has ever answered, and AuthenticationFailed.
    """
    wanted = list(dict.fromkeys(keys))
    outcomes: dict[K, V | ClientError] = {}
    waiting: Sequence[K] = wanted
    patience = cluster.patience()
    while waiting:
        routed, answered = await _attempt(cluster, waiting, route, ask, batch)
        outcomes |= routed | answered
        waiting = [
            key
            for key in waiting
            if _is_to_repeat(outcomes[key], also_passing if key in answered else frozenset(), final)
        ]
        if waiting and not await patience.pause():
            break
        if waiting:
            cluster.forget_routes()
    done: dict[K, V] = {}
    failed: dict[K, ClientError] = {}
    for key in wanted:
        outcome = outcomes[key]
        if isinstance(outcome, ClientError):
            failed[key] = outcome
        else:
            done[key] = outcome
    return Results(done, failed)


def _is_to_repeat(outcome: object, also_passing: frozenset[ErrorCode], final: frozenset[ErrorCode]) -> bool:
    if isinstance(outcome, BrokerError) and outcome.code in also_passing | final:
        return outcome.code not in final
    return isinstance(outcome, ClientError) and is_passing(outcome)


async def _attempt(
    cluster: AsyncCluster, keys: Sequence[K], route: Route[K], ask: AskBatch[K, V], batch: int
) -> tuple[dict[K, ClientError], dict[K, V | ClientError]]:
    """The keys that cannot be routed, and the outcomes of the others, BrokerUnavailable where a broker goes away."""
    try:
        places = await route(keys)
    except AuthenticationFailed:
        raise
    except ClientError as error:
        if not cluster.has_answered:
            raise
        return dict.fromkeys(keys, error), {}
    routed: dict[K, ClientError] = {}
    outcomes: dict[K, V | ClientError] = {}
    by_node: dict[int, list[K]] = {}
    for key in keys:
        place = places[key]
        if isinstance(place, ClientError):
            routed[key] = place
        else:
            by_node.setdefault(place, []).append(key)
    asked = await asyncio.gather(
        *(_ask_node(cluster, node, names, ask, batch) for node, names in by_node.items())
    )
    for answers in asked:
        outcomes.update(answers)
    return routed, outcomes


async def _ask_node(
    cluster: AsyncCluster, node: int, keys: Sequence[K], ask: AskBatch[K, V], batch: int
) -> dict[K, V | ClientError]:
    outcomes: dict[K, V | ClientError] = {}
    for start in range(0, len(keys), batch):
        names = keys[start : start + batch]
        try:
            answers = await ask(await cluster.node(node), names)
        except AuthenticationFailed:
            raise
        except ClientError as error:
            if not cluster.has_answered:
                raise
            outcomes.update(dict.fromkeys(names, error))
            continue
        for name in names:
            outcomes[name] = answers[name] if name in answers else _left_out(name)
    return outcomes


def _left_out(name: object) -> ClientError:
    return ClientError(f"the broker's answer says nothing about {name}")


NEW_TOPICS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""What a leader answers that does not yet know of a topic that the metadata has. When the metadata does not have it, there
is no leader to ask, and that is final."""


def to_any(cluster: AsyncCluster) -> Route[K]:
    """Whatever broker is connected."""

    async def route(keys: Sequence[K]) -> Places[K]:
        return dict.fromkeys(keys, ANY_NODE)

    return route


def to_controller(cluster: AsyncCluster) -> Route[K]:
    """The controller; any broker where none is named, since that forwards."""

    async def route(keys: Sequence[K]) -> Places[K]:
        return dict.fromkeys(keys, await cluster.controller())

    return route


def to_leaders(cluster: AsyncCluster, action: str) -> Route[TopicPartition]:
    """The leader of each partition. action: what is to be done there, for errors."""

    async def route(keys: Sequence[TopicPartition]) -> Places[TopicPartition]:
        places = await cluster.leaders(keys)
        return {key: _named(places[key], action, f"partition {key}") for key in keys}

    return route


def to_coordinators(cluster: AsyncCluster, action: str, kind: int = GROUP) -> Route[str]:
    """The coordinator of each group or transactional id. action: what is to be done, for errors."""
    noun = "group" if kind == GROUP else "transactional id"

    async def route(keys: Sequence[str]) -> Places[str]:
        places = await cluster.coordinators(keys, kind)
        return {key: _named(places[key], action, f"{noun} {key}") for key in keys}

    return route


async def coordinating_brokers(
    cluster: AsyncCluster, keys: Sequence[str], kind: int = GROUP
) -> Mapping[str, Broker]:
    """The brokers that coordinate these groups or transactional ids; they were looked up a moment ago."""
    coordinators = {}
    for key, place in (await cluster.coordinators(keys, kind)).items():
        node = cluster.nodes.get(place) if isinstance(place, int) else None
        coordinators[key] = (
            Broker(NO_NODE, "", -1)
            if node is None
            else Broker(NodeId(node.id), node.host, node.port, node.rack)
        )
    return coordinators


def _named(place: int | ClientError, action: str, resource: str) -> int | ClientError:
    """A place whose error says what was to be done to what."""
    if isinstance(place, BrokerError):
        return ResourceError(place.code, action, resource)
    return place


async def all_nodes(cluster: AsyncCluster) -> list[int]:
    """The ids of all brokers, in order."""
    await cluster.retry(cluster.refresh)
    return sorted(cluster.nodes)


def to_nodes(cluster: AsyncCluster, node_of: Callable[[K], int]) -> Route[K]:
    """The broker that `node_of` names (ANY_NODE: any). That it is not live is said at once: it may be away for long."""

    async def route(keys: Sequence[K]) -> Places[K]:
        nodes = {key: node_of(key) for key in keys}
        named = [node for node in nodes.values() if node != ANY_NODE]
        if named and (cluster.is_stale or not cluster.nodes.keys() >= set(named)):
            await cluster.refresh()
        return {
            key: node if node == ANY_NODE or node in cluster.nodes else _not_live(cluster, node)
            for key, node in nodes.items()
        }

    return route


def _not_live(cluster: AsyncCluster, node: int) -> ClientError:
    live = ", ".join(map(str, sorted(cluster.nodes)))
    return ClientError(f"broker {node} is not among the live ones ({live}): start it, or name another")


async def each_node(
    cluster: AsyncCluster,
    nodes: Iterable[int] | None,
    ask: Callable[[AsyncConnection], Awaitable[V]],
) -> Results[NodeId, V]:
    """Ask these brokers (None: all) the same thing, side by side."""

    async def ask_one(
        connection: AsyncConnection, keys: Sequence[NodeId]
    ) -> Mapping[NodeId, V | ClientError]:
        return {keys[0]: await ask(connection)}

    wanted = await all_nodes(cluster) if nodes is None else nodes
    return await spread(cluster, map(NodeId, wanted), to_nodes(cluster, int), ask_one, batch=1)
