"""Which answers of a coordinator may be wrong because another broker has taken over unnoticed, and how they are proved.

A broker that was stopped for longer than its session lasts, and goes on, believes for a while that it is still the
coordinator. Requests that wait in its sockets come from clients that have found the next coordinator meanwhile, and what it
remembers is out of date: committed offsets would go back, and members and producers would be refused for good. A change
proves itself, since only the leader can commit its entry. For any other answer, while the broker is not certain of its
session, an entry that changes nothing is appended: once the in-sync replicas have it, no other broker was leader when the
answer was decided. So a coordinator goes on serving while the metadata tree is away, as long as its followers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from barnabas.cores.decision import Decision, DoneReply
from barnabas.cores.group import ConsumerHeartbeatReply, HeartbeatReply, ShareHeartbeatReply
from barnabas.wire.errors import ErrorCode

TO_BE_TRIED_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors that do a client no harm if they are wrong: it tries again."""

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Prove:
    """The event with which a reader of a core asks whether the core is still the coordinator's."""

    token: object
    now_ms: int

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


class Doubts(Generic[S]):
    """Decisions whose replies wait for a proof; those of one turn of the loop share one proof.

    is_certain: whether no other broker can have taken over. prove: appends the proof, and holds the replies until it is
    committed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        is_certain: Callable[[], bool],
        prove: Callable[[S, Decision], None],
    ) -> None:
        self._loop = loop
        self._is_certain = is_certain
        self._prove = prove
        self._waiting: dict[S, list[Decision]] = {}

    def concern(self, decision: Decision) -> bool:
        """Whether the replies of a decision need a proof."""
        if decision.entries or not decision.replies or self._is_certain():
            return False
        is_asked = isinstance(decision.event, Prove)
        return is_asked or not all(is_harmless(reply) for _, reply in decision.replies)

    def prove_later(self, seat: S, decision: Decision) -> None:
        """Prove the replies of a decision at the end of this turn."""
        waiting = self._waiting.setdefault(seat, [])
        waiting.append(decision)
        if len(waiting) == 1:
            self._loop.call_soon(self._prove_all, seat)

    def _prove_all(self, seat: S) -> None:
        decisions = self._waiting.pop(seat, ())
        if decisions:
            replies = tuple(row for decision in decisions for row in decision.replies)
            effects = tuple(effect for decision in decisions for effect in decision.effects)
            self._prove(seat, Decision(replies=replies, effects=effects))

    def forget(self, seat: S) -> None:
        """The seat's requests have been answered otherwise."""
        self._waiting.pop(seat, None)


def is_harmless(reply: Any) -> bool:
    """Whether a reply does its client no harm if it is wrong: the client tries again, or has learned nothing."""
    if isinstance(reply, DoneReply) or reply.error in TO_BE_TRIED_AGAIN:
        return True
    if isinstance(reply, HeartbeatReply):
        return reply.error is ErrorCode.NONE
    if isinstance(reply, ConsumerHeartbeatReply | ShareHeartbeatReply):
        return reply.error is ErrorCode.NONE and reply.assignment is None
    # A transactional id's own: a question for a producer id, and a refusal that closes the connection.
    return getattr(reply, "needs_id", False) or getattr(reply, "is_stale", False)
