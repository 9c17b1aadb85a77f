"""The acknowledgements in ShareFetch and ShareAcknowledge requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from barnabas.broker.api.context import Context
from barnabas.broker.coordinators.shares.states import require
from barnabas.cores.group.share.partition import AckBatch
from barnabas.cores.group.share.session import SessionKey, ShareTopicPartition
from barnabas.cores.group.share.state import StateReply
from barnabas.wire.errors import ApiError

AT_ONCE_MAX: Final = 1_000
"""How many acknowledgements, each of a record or of a range, are applied in one turn of the loop."""

Acks = dict[ShareTopicPartition, list[AckBatch]]


class Acked:
    """The results of a request's acknowledgements: an error or None for each partition, and those still being stored."""

    def __init__(self) -> None:
        self.errors: dict[ShareTopicPartition, ApiError | None] = {}
        self.pending: list[tuple[ShareTopicPartition, asyncio.Future[StateReply]]] = []

    def add(self, partition: ShareTopicPartition, pending: asyncio.Future[StateReply] | None) -> None:
        """A partition's acknowledgements, or some of them, were applied."""
        self.errors.setdefault(partition, None)
        if pending is not None:
            self.pending.append((partition, pending))

    def __bool__(self) -> bool:
        return bool(self.errors)

    async def stored(self) -> None:
        """Returns when every change is stored, or known to be lost."""
        for partition, future in self.pending:
            try:
                require(await future)
            except ApiError as error:
                self.errors[partition] = error.with_traceback(None)
        self.pending.clear()


def acks_of(topics: Any) -> Acks:
    """The acknowledgements in a ShareFetch or ShareAcknowledge request."""
    return {
        (topic.topic_id, partition.partition_index): [
            AckBatch(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
            for batch in partition.acknowledgement_batches
        ]
        for topic in topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


def acknowledge(context: Context, key: SessionKey, acks: Acks) -> Acked:
    """Apply a member's acknowledgements, each partition separately."""
    shares = context.services.shares
    now_ms = shares.lock_now_ms()
    acked = Acked()
    for partition, batches in acks.items():
        try:
            queue = shares.open(key.group_id, *partition)
            pending = shares.run(queue, partial(queue.acknowledge, now_ms, key.member_id, batches))
            acked.add(partition, pending)
        except ApiError as error:
            acked.errors[partition] = error.with_traceback(None)
    return acked


def is_much(acks: Acks) -> bool:
    """Whether acknowledgements would take too long for one turn of the loop."""
    batches = sum(len(batches_of_partition) for batches_of_partition in acks.values())
    return batches > AT_ONCE_MAX or (
        batches + sum(len(batch.types) - 1 for partition_acks in acks.values() for batch in partition_acks)
        > AT_ONCE_MAX
    )


async def acknowledge_in_turns(context: Context, key: SessionKey, acks: Acks) -> Acked:
    """Apply acknowledgements of very many records, some in each turn of the loop.

    Those of one partition are checked together first, so that nothing is applied of what is malformed or was never locked.
    """
    shares = context.services.shares
    acked = Acked()
    for partition, batches in acks.items():
        await asyncio.sleep(0)
        try:
            queue = shares.open(key.group_id, *partition)
            shares.run(queue, partial(queue.core.check, key.member_id, batches))
            for some in _some_of(batches):
                await asyncio.sleep(0)
                queue, now_ms = shares.open(key.group_id, *partition), shares.lock_now_ms()
                act = partial(queue.acknowledge, now_ms, key.member_id, some)
                acked.add(partition, shares.run(queue, act))
        except ApiError as error:
            acked.errors[partition] = error.with_traceback(None)
    return acked


def _some_of(batches: list[AckBatch]) -> Iterator[list[AckBatch]]:
    """The same acknowledgements, for at most AT_ONCE_MAX types at once."""
    some: list[AckBatch] = []
    room = AT_ONCE_MAX
    for first, last, types in batches:
        rest = types
        while len(rest) > room:
            some.append(AckBatch(first, first + room - 1, rest[:room]))
            first, rest = first + room, rest[room:]
            yield some
            some, room = [], AT_ONCE_MAX
        some.append(AckBatch(first, last, rest))
        room -= len(rest)
        if room == 0:
            yield some
            some, room = [], AT_ONCE_MAX
    if some:
        yield some
