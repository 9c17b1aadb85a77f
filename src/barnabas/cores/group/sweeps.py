"""Work that concerns every group of a partition, cut into events that take a few milliseconds at most.

A sweep is a generator: step each event that it yields; None is only a point to pause. Other events may run between two
pieces, so each piece examines the state again. Offsets of topics that are being forgotten are invisible from the first
piece on (`State.doomed`); what is committed later, to a topic of the same name, is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.cores.group.events import ExpireOffsets, ForgetOffsets
from barnabas.cores.group.share.events import ShareStatesLost
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.state import Partition, State

PIECE: Final = 500
"""The number of offsets that one event examines."""


def topics_deleted(state: State, now_ms: int, topics: frozenset[str]) -> Iterator[ForgetOffsets | None]:
    """Drop the offsets of deleted topics, and what share groups know of them."""
    state.doomed.update(dict.fromkeys(topics, state.sequence))
    return _forget(state, now_ms, topics, state.sequence)


def _forget(state: State, now_ms: int, topics: frozenset[str], newest: int) -> Iterator[ForgetOffsets | None]:
    try:
        for group_id in list(state.groups):
            group = state.groups.get(group_id)
            if isinstance(group, ShareGroup):
                known = (*group.initialized.values(), *group.initializing.values())
                concerned = any(topic.name in topics for topic in known)
                yield ForgetOffsets(None, now_ms, group_id, (), topics, newest) if concerned else None
                continue
            for piece in _pieces(state, group_id):
                doomed = tuple(partition for partition in piece if partition[0] in topics)
                yield ForgetOffsets(None, now_ms, group_id, doomed, topics, newest) if doomed else None
    finally:
        for topic in topics:
            if state.doomed.get(topic) == newest:
                del state.doomed[topic]


def states_lost(state: State, now_ms: int) -> Iterator[ShareStatesLost]:
    """The share coordinator's topic was deleted: share groups start afresh in every partition."""
    for group_id in [name for name, group in state.groups.items() if isinstance(group, ShareGroup)]:
        yield ShareStatesLost(None, now_ms, group_id)


def expiry(state: State, now_ms: int) -> Iterator[ExpireOffsets]:
    """Drop offsets older than offsets.retention.minutes, then groups that are empty and have none."""
    for group_id in list(state.groups):
        pieces = list(_pieces(state, group_id)) or [()]
        for number, piece in enumerate(pieces, 1):
            yield ExpireOffsets(None, now_ms, group_id, tuple(piece), number == len(pieces))


def _pieces(state: State, group_id: str) -> Iterator[tuple[Partition, ...]]:
    """All partitions with offsets of the group, including those in open transactions."""
    partitions = (*state.offsets_of(group_id), *state.pending_of(group_id))
    for begin in range(0, len(partitions), PIECE):
        yield partitions[begin : begin + PIECE]
