"""Moves names that an earlier version stored in another partition of a coordinator's topic than Kafka does.

Runs before anything is served. The right partition is written and flushed before the wrong one forgets, so after a crash in
between the move is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.seats import C, Seat
from barnabas.broker.coordinators.stepping import Stepping
from barnabas.cores.decision import Event
from barnabas.records.partitioner import partition_for_name
from barnabas.runtime.pace import in_pieces
from barnabas.storage.errors import StorageError
from barnabas.wire.errors import ApiError

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.coordinators")

Move = tuple[Seat[C], str, Seat[C]]
"""(where a name is, the name, where it belongs)"""


async def move_home(
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    topic: str,
    stepping: Stepping[C],
    seats: Mapping[int, Seat[C]],
    count: int,
) -> None:
    """Move the names of the cores that have just been replayed; `count` is the topic's partition count."""
    moves: list[Move[C]] = [
        (seat, name, home)
        for seat in seats.values()
        for name in seat.core.names()
        if (home := seats.get(partition_for_name(name, count))) is not None and home is not seat
    ]
    if not moves:
        return
    try:
        await in_pieces(loop, clock, _export(clock, stepping, moves))
        for home in {seat.index: seat for _, _, seat in moves}.values():
            await loop.run_in_executor(None, home.partition.log.flush)
        await in_pieces(loop, clock, _disown(clock, stepping, moves))
    except (ApiError, StorageError) as error:
        log.error(
            "entries in the wrong partition were not moved to theirs; the next start tries again",
            extra={"topic": topic, "reason": str(error)},
        )
        return
    log.warning(
        "entries in the wrong partition were moved to theirs", extra={"topic": topic, "moved": len(moves)}
    )


def _export(clock: Clock, stepping: Stepping[C], moves: Iterable[Move[C]]) -> Iterator[None]:
    for seat, name, home in moves:
        for event in seat.core.export(name, clock.now_ms()):
            _write(stepping, home, event)
            yield


def _disown(clock: Clock, stepping: Stepping[C], moves: Iterable[Move[C]]) -> Iterator[None]:
    for seat, name, _ in moves:
        for event in seat.core.disown(name, clock.now_ms()):
            _write(stepping, seat, event)
            yield


def _write(stepping: Stepping[C], seat: Seat[C], event: Event[object]) -> None:
    """Raises ApiError; nothing is lost then, and the next start moves the rest."""
    decision = seat.core.decide(event)
    if decision.entries:
        stepping.append(seat, decision)
    seat.core.apply(decision)
