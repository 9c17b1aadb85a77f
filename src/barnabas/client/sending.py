"""Sends the batches of one idempotent producer in the background, in order, until each is acknowledged or refused.

A few requests are in flight at a time. After a failure everything in flight is sent again, one batch after the other: a
broker recognizes a batch that it has by its sequence number. A batch whose number a broker does not take was not written;
it gets one of a new producer id, as do the batches behind one that was refused for good. Brokers that are away are waited
for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from barnabas.client.blocking import BlockingClient
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import BrokerError, BrokerUnavailable, ClientError, UnknownTopic
from barnabas.client.options import ClientOptions
from barnabas.client.producing import ACKS_ALL, IN_FLIGHT_MAX, produce_request
from barnabas.records.batch import sealed
from barnabas.records.batch_header import BatchHeader, add_sequence
from barnabas.records.compression import Codec, compress
from barnabas.records.record_block import RecordBlock
from barnabas.records.units import LeaderEpoch, Offset, ProducerEpoch
from barnabas.wire.errors import RETRIABLE, ErrorCode
from barnabas.wire.messages.produce import ProduceResponse

log = logging.getLogger("barnabas.client")

TIMEOUT_MS: Final = 30_000
PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0
TRY_SECONDS: Final = 1.0
GONE_SECONDS: Final = 10.0
"""How long a topic must be missing before it counts as deleted."""
CLOSE_SECONDS: Final = 1.0
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
NOT_IN_SEQUENCE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Answers that prove that a batch was not written, and that it never will be under its number."""


class Producer(NamedTuple):
    """Who a broker takes a batch's sender for."""

    id: int
    epoch: ProducerEpoch


@dataclass(slots=True, eq=False)
class Batch:
    """Records on their way to one partition. spans: what they are to the one who sends them."""

    topic: str
    partition: int
    block: RecordBlock = field(default_factory=RecordBlock)
    spans: list[Any] = field(default_factory=list)
    begun_at: float = field(default_factory=time.monotonic)
    packed: bytes | None = None
    producer: Producer | None = None
    sequence: int = 0


class Outcome(NamedTuple):
    """What became of a batch: its first offset (-1 if the broker does not say), or why it was refused."""

    batch: Batch
    offset: Offset
    error: BrokerError | None


@dataclass(slots=True, eq=False)
class Sender:
    """One producer with its thread. Its methods are for the thread that made it.

    split: makes smaller batches of one that is too large, given how many bytes may be in each; only called for several
    records. waiting_bytes: encoded records without an outcome. trouble: why nothing arrives at the moment; empty if it does.
    """

    options: ClientOptions
    codec: Codec
    split: Callable[[Batch, int], list[Batch]]
    batch_bytes: int
    outcomes: deque[Outcome] = field(default_factory=deque)
    waiting_bytes: int = 0
    trouble: str = ""
    failure: str = ""
    gone: bool = False
    """The cluster has no such topic any more."""
    _client: BlockingClient = field(init=False)
    _queue: deque[Batch] = field(default_factory=deque)
    _in_flight: deque[Batch] = field(default_factory=deque)
    _answering: deque[BrokerConnection] = field(default_factory=deque)
    """By request in flight: where its answer comes."""
    _lanes: dict[int, BrokerConnection] = field(default_factory=dict)
    _producer: Producer | None = None
    _sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        # What fails is tried again here, so that closing does not wait for it elsewhere.
        self._client = BlockingClient(replace(self.options, deadline_s=TRY_SECONDS, contact_timeout_s=0.0))

    # --- for the thread that made it --------------------------------------------------------------------

    def put(self, batch: Batch) -> None:
        """Send a batch behind all others."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="sender", daemon=True)
            self._thread.start()
        with self._changed:
            self.waiting_bytes += batch.block.size_bytes
            self._queue.append(batch)
            self._changed.notify_all()

    def is_idle(self) -> bool:
        """Whether everything has an outcome."""
        return not self.waiting_bytes

    def wait(self, seconds: float) -> None:
        """Wait until there is an outcome, with a time limit."""
        with self._changed:
            if not self.outcomes:
                self._changed.wait(seconds)

    def close(self) -> None:
        """Give up what has no outcome yet."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
        for connection in [*self._lanes.values()]:
            connection.abort()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    # --- in the background -------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._closed:
                self._step()
        except Exception as error:
            log.debug("the sender ends", exc_info=True)
            self.failure = f"{type(error).__name__}: {error}"
            with self._changed:
                self._changed.notify_all()
        finally:
            with contextlib.suppress(OSError):
                self._client.close()

    def _step(self) -> None:
        """Send a batch if there is one, or wait for an answer."""
        with self._changed:
            while not (self._queue or self._in_flight or self._closed):
                self._changed.wait()
            fresh = None
            if self._queue and len(self._in_flight) < IN_FLIGHT_MAX:
                fresh = self._queue.popleft()
                self._in_flight.append(fresh)
        if self._closed:
            return
        try:
            if fresh is not None:
                self._send(fresh)
            else:
                self._done(self._receive(self._in_flight[0]))
        except ClientError as error:
            self._send_again(error)

    def _send(self, batch: Batch) -> None:
        """Raises ClientError."""
        data = self._sealed(batch)
        leader = self._client.cluster.leader(batch.topic, batch.partition)
        # One connection per broker: requests on two could overtake each other.
        connection = self._lanes.get(leader)
        if connection is None:
            connection = self._lanes[leader] = self._client.cluster.node(leader)
        if self._closed:
            raise BrokerUnavailable("the sender was closed")
        request = produce_request(batch.topic, [(batch.partition, data)], ACKS_ALL, TIMEOUT_MS)
        connection.send(request, ProduceResponse)
        self._answering.append(connection)

    def _receive(self, batch: Batch) -> Offset:
        """The first offset in the answer for the oldest batch in flight. Raises ClientError."""
        answer = self._answering.popleft().receive()
        row = answer.responses[0].partition_responses[0]
        if row.error_code and row.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            raise BrokerError(row.error_code, f"{batch.topic}-{batch.partition}", row.error_message)
        return Offset(row.base_offset)

    def _sealed(self, batch: Batch) -> bytes:
        """The batch as it is sent, numbered when it is sent for the first time. Raises ClientError."""
        block = batch.block
        if batch.packed is None:
            batch.packed = compress(self.codec, block.encoded())
            block.release()
        if batch.producer is None:
            if self._producer is None:
                self._producer = Producer(*self._client.init_producer_id())
                self._sequences.clear()
            place = (batch.topic, batch.partition)
            batch.producer, batch.sequence = self._producer, self._sequences.get(place, 0)
            self._sequences[place] = add_sequence(batch.sequence, block.records)
        header = BatchHeader(
            Offset(0), 0, LeaderEpoch(-1), 2, 0, int(self.codec), block.records - 1, block.base_timestamp,
            block.max_timestamp, batch.producer.id, ProducerEpoch(batch.producer.epoch), batch.sequence, block.records,
        )  # fmt: skip
        return sealed(header, batch.packed)

    def _done(self, offset: Offset, error: BrokerError | None = None) -> None:
        """The oldest batch in flight has an outcome."""
        with self._changed:
            batch = self._in_flight.popleft()
            self.waiting_bytes -= batch.block.size_bytes
            self.outcomes.append(Outcome(batch, offset, error))
            self._changed.notify_all()
        self.trouble = ""

    def _send_again(self, error: ClientError) -> None:
        """After a failure: everything in flight is sent again, each batch when the one before has its outcome.

        error: of the oldest batch in flight, or of the connection.
        """
        pause, missing_since = PAUSE_SECONDS, 0.0
        # Answers that are still to come are not needed: each of these batches is sent again under its own number.
        self._hang_up()
        if not self._is_temporary(error):
            self._judge(error)
        while self._in_flight and not self._closed:
            if isinstance(error, UnknownTopic):
                missing_since = missing_since or time.monotonic()
                self.gone = self.gone or time.monotonic() - missing_since > GONE_SECONDS
            else:
                missing_since = 0.0
            if self._is_temporary(error):
                self.trouble = str(error)
                self._rest(pause)
                pause = min(pause * 2, PAUSE_SECONDS_MAX)
                self._hang_up()
            try:
                if self._is_temporary(error):
                    self._client.cluster.refresh([self._in_flight[0].topic])
                while self._in_flight and not self._closed:
                    batch = self._in_flight[0]
                    self._send(batch)
                    self._done(self._receive(batch))
                    pause = PAUSE_SECONDS
            except ClientError as another:
                error = another
                if not self._is_temporary(error):
                    self._judge(error)

    @staticmethod
    def _is_temporary(error: ClientError) -> bool:
        return not isinstance(error, BrokerError) or error.code in RETRIABLE

    def _judge(self, error: ClientError) -> None:
        """The oldest batch was answered with an error that does not pass by waiting."""
        assert isinstance(error, BrokerError)
        batch = self._in_flight[0]
        if error.code in NOT_IN_SEQUENCE:
            if batch.producer == self._producer:
                self._producer = None
            batch.producer = None
            self._rest(PAUSE_SECONDS)
            return
        self._producer = None  # the batches behind it have numbers that do not follow any more
        if error.code in TOO_LARGE and batch.block.records > 1:
            self._divide(batch)
            return
        batch.producer = None
        self._done(Offset(-1), error)

    def _divide(self, batch: Batch) -> None:
        """Put smaller batches in the place of the oldest one in flight."""
        limit = batch.block.size_bytes // 2
        with contextlib.suppress(ClientError, ValueError):
            limit = min(
                limit, int(self._client.topic_configs(batch.topic)["max.message.bytes"] or limit) - 100
            )
        limit = max(limit, 1)
        self.batch_bytes = min(self.batch_bytes, limit)
        parts = self.split(batch, limit)
        with self._changed:
            self._in_flight.popleft()
            self._in_flight.extendleft(reversed(parts))
            self.waiting_bytes += sum(part.block.size_bytes for part in parts) - batch.block.size_bytes

    def _hang_up(self) -> None:
        """Close all connections; answers that are still to come are given up."""
        self._client.cluster.close()
        self._lanes.clear()
        self._answering.clear()

    def _rest(self, seconds: float) -> None:
        with self._changed:
            if not self._closed:
                self._changed.wait_for(lambda: self._closed, seconds)
