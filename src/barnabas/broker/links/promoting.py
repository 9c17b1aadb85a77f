"""Describes links, and ends the mirroring of topics so that clients may write to them.

A promotion raises the leader epochs far above the source's, waits until the leaders are in them, and only then lets clients
write: records that are written here differ from the source's by their epochs, whatever happens there, so that the source can
become a copy of this cluster later and is cut where the two have parted.

One change of the link's definition decides that topics are promoted. Before it, nothing has happened after which mirroring
could not go on; after it, the controller does the rest, as often as it takes: leaders cease to copy and end the transactions
that are open, and topics in which none is open are let go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.links.mirror import WAITING
from barnabas.cores.decision import Producer
from barnabas.cores.links import (
    KIND,
    MIRRORING,
    PAUSED,
    PROMOTED,
    LinkSpec,
    link_of,
    linked_topics,
    promoted_epoch,
)
from barnabas.records.units import CoordinatorEpoch
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.links import (
    DescribedLink,
    LinkOption,
    LinkPartition,
    LinkProblem,
    LinkTail,
)

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.links.link import Link
    from barnabas.broker.links.mirror import Mirror
    from barnabas.broker.partitions.partition import Partition
    from barnabas.cores.cluster_image import ClusterImage

log = logging.getLogger("barnabas.links")

EPOCHS_KNOWN_S: Final = 10.0
POLL_S: Final = 0.05
NAMED_MAX: Final = 3
ENDING: Final = "ending"
"""The state of a copy that is promoted while its last records are not on all replicas yet."""


class Surroundings(Protocol):
    """What a promotion needs of all links."""

    @property
    def controller(self) -> Controller: ...

    async def partitions_of(self, name: str) -> dict[tuple[str, int], LinkPartition]: ...

    async def raise_epochs(self, wanted: Mapping[tuple[str, int], int]) -> None: ...


# --- describing ---------------------------------------------------------------------------------------------


def describe(image: ClusterImage, name: str, link: Link | None, broken: str, now_ms: int) -> DescribedLink:
    """A link as this broker knows it."""
    texts = image.config(KIND, name)
    shown = [LinkOption(name=key, value=text) for key, text in sorted(texts.items()) if not _is_secret(key)]
    return DescribedLink(
        name=name,
        state=texts.get("state", MIRRORING),
        options=shown,
        reason=broken if link is None else link.reason,
        topics=linked_topics(image, name),
        partitions=[] if link is None else [_row(link, mirror, now_ms) for mirror in link.mirrors.values()],
        problems=[]
        if link is None
        else [LinkProblem(topic=t, reason=why) for t, why in link.problems.items()],
        groups=0 if link is None else link.groups,
    )


def _is_secret(option: str) -> bool:
    from barnabas.broker.cluster.configs import is_client_secret

    return is_client_secret(option)


def _row(link: Link, mirror: Mirror, now_ms: int) -> LinkPartition:
    own = mirror.ends
    state, reason = mirror.state, mirror.stopped or mirror.reason
    if link.spec.lets_go(mirror.partition.topic):
        # What was appended last may still get lost with this broker.
        state = PROMOTED if mirror.partition.high_watermark >= own.end else ENDING
    elif not link.copies:
        state = link.spec.state
    elif link.reason and not reason:
        state, reason = WAITING, link.reason
    return LinkPartition(
        topic=mirror.partition.topic,
        partition=mirror.partition.index,
        state=state,
        reason=reason,
        log_start=own.start,
        log_end=own.end,
        source_start=mirror.source_start,
        source_end=mirror.source_end,
        lag_ms=mirror.lag_ms(now_ms),
        missed=mirror.missed,
        dropped=mirror.dropped,
        leader_epoch=mirror.partition.leader_epoch,
        source_epoch=mirror.source_epoch,
        open_transactions=mirror.open_transactions,
    )


# --- promoting ----------------------------------------------------------------------------------------------


def spec_of(image: ClusterImage, name: str) -> LinkSpec:
    """A link's definition. Raises ApiError RESOURCE_NOT_FOUND."""
    texts = image.config(KIND, name)
    if not texts:
        known = sorted(entity for kind, entity in image.configs if kind == KIND)
        there = f"there are {', '.join(known)}" if known else "there are none"
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"no link is called {name!r}; {there}")
    return LinkSpec.of(name, texts)


def chosen_topics(image: ClusterImage, name: str, topics: Collection[str] | None) -> list[str]:
    """The topics that a link mirrors and that are asked for. Raises ApiError."""
    linked = linked_topics(image, name)
    if topics is None:
        return linked
    strange = sorted(set(topics) - set(linked))
    if strange:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the link {name} does not mirror {', '.join(strange)}"
        )
    return sorted(set(topics))


async def promote(
    links: Surroundings,
    name: str,
    topics: Collection[str] | None,
    *,
    without_source: bool,
    validate_only: bool,
) -> list[LinkTail]:
    """Let clients write to topics of a link. Returns what the copies have, and what the source had as far as known.

    Raises ApiError: unless `without_source`, everything that the source has must have been copied.
    """
    controller = links.controller
    controller.require_office()
    spec = spec_of(controller.image, name)
    chosen = chosen_topics(controller.image, name, topics)
    rows = {key: row for key, row in (await links.partitions_of(name)).items() if key[0] in set(chosen)}
    tails = [_tail(row) for row in rows.values()]
    _require_leaders(chosen, controller.image, rows)
    fresh = {key: row for key, row in rows.items() if not spec.lets_go(key[0])}
    if not without_source:
        _require_caught_up(name, fresh)
    if validate_only:
        return tails
    wanted = {key: promoted_epoch(row.leader_epoch, row.source_epoch) for key, row in fresh.items()}
    await links.raise_epochs(wanted)
    rows = await _await_epochs(links, name, wanted)
    ended = (
        replace(spec, state=PROMOTED)
        if topics is None
        else replace(spec, promoted=spec.promoted | set(chosen))
    )
    await controller.options.alter_link(name, lambda _: ended.texts())
    log.info("topics of a link are promoted", extra={"link": name, "topics": len(chosen)})
    await _await_finished(links, name, chosen)
    return [_tail(rows.get((tail.topic, tail.partition)) or tail) for tail in tails]


async def finish(links: Surroundings, name: str) -> None:
    """Let go of the topics of a link that are promoted and in which nothing is open any more. Raises ApiError."""
    image = links.controller.image
    texts = image.config(KIND, name)
    if not texts:
        return
    spec = LinkSpec.of(name, texts)
    topics = [topic for topic in linked_topics(image, name) if spec.lets_go(topic)]
    rows = await links.partitions_of(name) if topics else {}
    for topic in topics:
        parts = [rows.get((topic, index)) for index in image.topics[topic].partitions]
        if all(row is not None and row.state == PROMOTED and not row.open_transactions for row in parts):
            await links.controller.options.set_link(topic, "")


async def _await_finished(links: Surroundings, name: str, topics: Collection[str]) -> None:
    """Returns when clients may write to these topics. Raises ApiError REQUEST_TIMED_OUT."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + EPOCHS_KNOWN_S
    while True:
        await finish(links, name)
        left = [topic for topic in topics if topic in linked_topics(links.controller.image, name)]
        if not left:
            return
        if loop.time() > give_up_s:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{', '.join(left[:NAMED_MAX])} cannot be written to yet: not all leaders have ended what was open. The "
                f"promotion is decided, and goes on by itself; see: barnabas mirror link status {name}",
            )
        await asyncio.sleep(POLL_S)


def _tail(row: LinkPartition | LinkTail) -> LinkTail:
    if isinstance(row, LinkTail):
        return row
    return LinkTail(
        topic=row.topic,
        partition=row.partition,
        mirrored_end=row.log_end,
        source_end=row.source_end,
        open_transactions=row.open_transactions,
    )


def _require_leaders(
    topics: list[str], image: ClusterImage, rows: Mapping[tuple[str, int], LinkPartition]
) -> None:
    """Raises ApiError LEADER_NOT_AVAILABLE unless all partitions are described."""
    for topic in topics:
        for index in image.topics[topic].partitions:
            if (topic, index) not in rows:
                raise ApiError(
                    ErrorCode.LEADER_NOT_AVAILABLE,
                    f"no live broker here leads {topic}-{index}; start its brokers, and promote then",
                )


def _require_caught_up(name: str, rows: Mapping[tuple[str, int], LinkPartition]) -> None:
    """Raises ApiError unless the copies have everything that the source has."""
    behind = []
    for (topic, index), row in rows.items():
        if row.reason:
            behind.append(f"{topic}-{index}: {row.reason}")
        elif row.source_end < 0:
            behind.append(f"{topic}-{index}: the source has not answered yet")
        elif row.source_end > row.log_end:
            behind.append(f"{topic}-{index} lacks the offsets {row.log_end} to {row.source_end - 1}")
    if behind:
        more = f", and {len(behind) - NAMED_MAX} more" if len(behind) > NAMED_MAX else ""
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the link {name} has not copied everything: {'; '.join(behind[:NAMED_MAX])}{more}. Stop the source's "
            "producers and wait; if the source is gone: barnabas mirror link failover",
        )


async def _await_epochs(
    links: Surroundings, name: str, wanted: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], LinkPartition]:
    """The link's partitions once their leaders are in these epochs. Raises ApiError REQUEST_TIMED_OUT."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + EPOCHS_KNOWN_S
    while True:
        rows = await links.partitions_of(name)
        late = [key for key, epoch in wanted.items() if key not in rows or rows[key].leader_epoch < epoch]
        if not late:
            return rows
        if loop.time() > give_up_s:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the leader of {late[0][0]}-{late[0][1]} has not begun its new leader epoch; "
                "nothing was promoted, try again",
            )
        await asyncio.sleep(POLL_S)


def abort_open(partition: Partition) -> int:
    """End the transactions that are open in a copy that is to become a topic like any other: their coordinator is in another
    cluster. Returns how many. Raises ApiError."""
    producers = partition.log.core.producers
    opened = [producers.get(producer_id) for producer_id in list(producers.ongoing.values())]
    for producer in opened:
        if producer is not None:
            partition.append_marker(
                Producer(producer.producer_id, producer.epoch),
                False,
                CoordinatorEpoch(max(producer.coordinator_epoch, 0)),
                0,
                in_copy=True,
            )
    return len(opened)


# --- other changes ------------------------------------------------------------------------------------------


async def mirror_again(links: Surroundings, name: str) -> None:
    """The topics of a promoted link are read-only again, and the link is paused. When it goes on, what they have and the
    source has not is removed: so the source has to be brought up to date first. Raises ApiError.
    """
    controller = links.controller
    image = controller.image
    spec = spec_of(image, name)
    if spec.state == MIRRORING:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the link {name} is {spec.state}: it was not promoted")
    again = replace(spec, state=PAUSED, promoted=frozenset())
    await controller.options.alter_link(name, lambda _: again.texts())
    for topic in list(image.topics):
        if again.takes_topic(topic) and link_of(image, topic) is None:
            await controller.options.set_link(topic, name)


async def set_state(links: Surroundings, name: str, state: str) -> None:
    """Pause a link, or let it go on. Raises ApiError."""
    spec = spec_of(links.controller.image, name)
    if spec.state == PROMOTED:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the link {name} was promoted; it mirrors nothing that could be {state}",
        )
    assert state in (MIRRORING, PAUSED)
    await links.controller.options.alter_link(name, lambda texts: texts | {"state": state})


async def delete(links: Surroundings, name: str) -> None:
    """Remove a link that mirrors nothing. Raises ApiError."""
    image = links.controller.image
    spec_of(image, name)
    linked = linked_topics(image, name)
    if linked:
        shown = ", ".join(linked[:NAMED_MAX]) + (
            f" and {len(linked) - NAMED_MAX} more" if len(linked) > NAMED_MAX else ""
        )
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the link {name} mirrors {shown}; promote them first, or delete the copies",
        )
    await links.controller.options.alter_link(name, lambda _: {})
