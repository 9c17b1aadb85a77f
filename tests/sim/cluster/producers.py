"""A producer that numbers its batches: up to five in flight, sent again in order until they are acknowledged."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from barnabas.records.batch import Record, build_batch
from barnabas.sim.loop import Killed
from barnabas.sim.machine import EPOCH_MS
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition
    from tests.sim.broker.node import Node
    from tests.sim.cluster.world import World

IN_FLIGHT_MAX: Final = 5
PATIENCE_S: Final = 0.6
"""How long an answer is waited for before all is sent again."""
FIRST_ID: Final = 1_000


class Sent:
    """One batch of one record."""

    def __init__(self, sequence: int, value: bytes, data: bytes) -> None:
        self.sequence = sequence
        self.value = value
        self.data = data
        self.is_acknowledged = False


class Producer:
    """See the module. `run` until the world is over and all is acknowledged."""

    def __init__(self, world: World, index: int, chance: random.Random) -> None:
        self.world = world
        self.index = index
        self.values: list[bytes] = []
        """In the order in which they are to be in the log."""
        self._chance = chance
        self._in_flight: list[Sent] = []
        self._target: tuple[Node, Partition] | None = None
        self._is_broken = False
        """Whether something that was sent to the target has not arrived: then nothing after it does."""
        self._sent_s = 0.0

    async def run(self) -> None:
        """Goes on after the world is over until everything is acknowledged."""
        world = self.world
        while not (world.over and not self._in_flight):
            await asyncio.sleep(self._chance.random() * world.rest_s())
            self._in_flight = [sent for sent in self._in_flight if not sent.is_acknowledged]
            if world.loop.time() - self._sent_s > PATIENCE_S:
                self._target = None  # which may be dead, or lead no more
            if self._target is None:
                self._begin_again()
            elif len(self._in_flight) < IN_FLIGHT_MAX and not world.over:
                sent = self._next()
                self._in_flight.append(sent)
                self._send(sent)

    def _next(self) -> Sent:
        sequence = len(self.values)
        value = f"p{self.index}-{sequence}".encode()
        self.values.append(value)
        data = build_batch(
            [Record(0, EPOCH_MS, b"", value)],
            producer_id=FIRST_ID + self.index,
            producer_epoch=0,
            base_sequence=sequence,
        )
        self.world.note_body(data, value)
        return Sent(sequence, value, data)

    def _begin_again(self) -> None:
        """With any broker that takes itself for the leader."""
        leaders = self.world.leaders_of(self.index)
        if leaders:
            self._target = self._chance.choice(leaders)
            self._is_broken = False
            self._sent_s = self.world.loop.time()
            for sent in list(self._in_flight):
                if not self._send(sent):
                    break

    def _send(self, sent: Sent) -> bool:
        assert self._target is not None
        node, partition = self._target
        life = node.life
        server = node.running
        if (
            self._is_broken
            or server is None
            or life is None
            or life.pauses
            or server.services.partitions.get(partition.topic, partition.index) is not partition
        ):
            self._is_broken = True
            return True
        try:
            batch = memoryview(bytearray(sent.data))
            appended = self.world.append_batch(node, partition, batch, acks_all=True)
        except (ApiError, Killed) as error:
            is_refused = isinstance(error, ApiError) and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if is_refused and self.world.is_in_office(node, partition):
                self.world.fail(
                    "refused", f"{node.name}, which leads {partition}, refuses {sent.value!r}: {error}"
                )
            self._target = None
            return False

        def ready(appended: Any) -> None:
            if appended.error is not None:
                self._target = None
            elif life.alive:
                sent.is_acknowledged = True
                self._sent_s = self.world.loop.time()
                self.world.note_acknowledged(node, self.index, int(appended.base_offset), sent.value)

        appended.when_ready(ready)
        return True

    def judge(self, content: dict[int, bytes]) -> None:
        """content: offset -> value, of the whole log."""
        mark = f"p{self.index}-".encode()
        own_values = [value for _, value in sorted(content.items()) if value.startswith(mark)]
        if len(own_values) != len(set(own_values)):
            twice = {
                value: [o for o, v in content.items() if v == value]
                for value in own_values
                if own_values.count(value) > 1
            }
            self.world.fail("doubled", f"{twice} in partition {self.index}")
        elif own_values != self.values:
            missing = [value for value in self.values if value not in own_values]
            self.world.fail(
                "reordered", f"partition {self.index}: missing {missing[:5]}, found {own_values[:50]}"
            )
