"""Partitions that move to other brokers: the controller's part, run by the executor (cores/reassignment.py).

The brokers do the rest: a broker that has become a replica creates a log and copies the leader's, and one that is no longer
a replica deletes its log (`Partitions.create`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.cores.reassignment import (
    Move,
    decide_advance,
    decide_asked,
    decide_moves,
    decide_overridden,
    finished,
    is_moving,
    topics_to_advance,
)
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.executor import Executor
    from barnabas.cores.cluster_image import TopicImage
    from barnabas.cores.znode_ops import Op

log = logging.getLogger("barnabas.controller")

TOPICS_PER_TURN: Final = 30
"""After so many topics of one request, others have their turn."""

Refused = dict[tuple[str, int], ApiError]


class Reassigning:
    """See the module."""

    def __init__(self, executor: Executor, require_office: Callable[[], None]) -> None:
        """require_office: raises ApiError unless this broker is the controller."""
        self._executor = executor
        self._image = executor.image
        self._require_office = require_office

    async def alter(self, moves: Sequence[Move]) -> Refused:
        """Begin, redirect or cancel moves; returns the refusals by partition. Raises ApiError NOT_CONTROLLER and others."""
        by_topic: dict[str, list[Move]] = defaultdict(list)
        for move in moves:
            by_topic[move.topic].append(move)

        async def work() -> Refused:
            refused: Refused = {}
            for number, (topic, of_topic) in enumerate(by_topic.items()):
                if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
                    await asyncio.sleep(0)
                refused |= await self._alter_topic(topic, of_topic)
            return refused

        return await self._executor.run(work)

    async def _alter_topic(self, topic: str, moves: Sequence[Move]) -> Refused:
        refused: dict[int, ApiError] = {}
        begun: set[int] = set()

        def decide() -> Iterable[Op]:
            self._require_office()
            decision = decide_moves(self._image, topic, moves)
            refused.clear()
            for index, error in decision.refused.items():
                # The move that this request was to cancel is gone: it was cancelled, only the answer was lost.
                if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS or index not in begun:
                    refused[index] = error
            begun.update(move.partition for move in moves if move.partition not in refused)
            return decision.ops

        decide()
        taken = [move for move in moves if move.partition in begun]
        if taken:
            await self._executor.change(lambda: decide_overridden(self._image, taken))
            await self._executor.change_topic(topic, decide)
            log.info(
                "replicas are moved as an administrator asks",
                extra={"topic": topic, "partitions": sorted(begun - refused.keys())},
            )
        return {(topic, index): error for index, error in refused.items()}

    async def advance(self) -> None:
        """Finish the moves that can be finished, and begin those requested by older tools. Called by the controller."""
        for topic in topics_to_advance(self._image):

            def decide(topic: str = topic) -> Iterable[Op]:
                return decide_advance(self._image, topic)

            before = self._moving(topic)
            await self._executor.change_topic(topic, decide)
            ended = before - self._moving(topic)
            log.info("replicas have moved", extra={"topic": topic, "partitions": sorted(ended)})
        if self._image.moves_asked_version >= 0:
            await self._executor.change(lambda: decide_asked(self._image))

    def _moving(self, topic: str) -> set[int]:
        known = self._image.topics.get(topic)
        partitions = {} if known is None else known.partitions
        return {index for index, image in partitions.items() if is_moving(image)}

    def may_end(self, topic: str, index: int) -> bool:
        """Whether all new replicas of a moving partition are in sync, so that the move can be finished."""
        partition = self._image.partition(topic, index)
        return partition is not None and finished(partition, self._image.brokers.keys()) is not partition

    def has_ended_moves(self, topic: TopicImage) -> bool:
        """Whether any move of a topic can be finished."""
        live = self._image.brokers.keys()
        return any(finished(partition, live) is not partition for partition in topic.partitions.values())
