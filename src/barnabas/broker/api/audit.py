"""The audit log as a topic: what the authorizer denies, and optionally what it allows, as JSON records.

No request waits for it. Events are queued up to a limit, and one task writes them a few times a second. While the topic
cannot be written, the task keeps trying; events that do not fit into the queue are counted, and the count is written to the
topic. The broker appends these records itself, not through a request, so writing the audit log is not audited.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.net.peers import PeerLost
from barnabas.config import broker_security
from barnabas.config.option import ConfigError
from barnabas.cores import topic_names
from barnabas.cores.cluster_image import NO_LEADER
from barnabas.records.batch import Record, build_batch
from barnabas.storage.errors import StorageError
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.net.peers import Peers
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.audit.topic")

QUEUED_MAX: Final = 10_000
BATCH_RECORDS_MAX: Final = 200
"""Events encoded and appended in one turn of the loop: this takes a few milliseconds."""
TEXT_MAX: Final = 256
"""Clients choose names and ids; longer ones are cut, to bound the memory of the queue and the size of records."""
LINGER_S: Final = 0.1
RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 30.0
STOP_S_MAX: Final = 5.0
ACKS_LEADER: Final = 1


class Event(NamedTuple):
    """One decision. when_ms: wall-clock time."""

    when_ms: int
    fields: Mapping[str, object]


def check_name(config: BrokerConfig) -> None:
    """Raises ConfigError when audit.topic is not a valid topic name."""
    name = config.get(broker_security.AUDIT_TOPIC)
    why = topic_names.refusal(name) if name else None
    if why is not None:
        raise ConfigError(f"{broker_security.AUDIT_TOPIC.name}={name}: {why}")


class AuditTopic:
    """See the module. All methods belong to the broker's loop."""

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        clock: Clock,
        controller: Controller,
        partitions: Partitions,
        peers: Peers,
    ) -> None:
        self.takes_grants = config.get(broker_security.AUDIT_TOPIC_GRANTS)
        self._name = name
        self._clock = clock
        self._controller = controller
        self._partitions = partitions
        self._peers = peers
        self._queue: deque[Event] = deque()
        self._dropped = 0
        """Events dropped since the last record that reported a count."""
        self._task: asyncio.Task[None] | None = None
        self._failure = ""
        """The last logged reason why the topic cannot be written."""
        self._turns = itertools.count()
        self._batch_records_max = BATCH_RECORDS_MAX
        """Smaller when the topic takes only small batches."""
        self._is_closed = False

    def add(self, fields: Mapping[str, object]) -> None:
        """Queue one event. Never waits and never fails."""
        if self._is_closed or len(self._queue) >= QUEUED_MAX:
            self._drop(1)
            return
        cut = {name: value[:TEXT_MAX] if isinstance(value, str) else value for name, value in fields.items()}
        self._queue.append(Event(self._clock.now_ms(), cut))
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(self._done)

    async def close(self) -> None:
        """Write what is queued, for a limited time; later events are lost."""
        self._is_closed = True
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        try:
            async with asyncio.timeout(STOP_S_MAX):
                while self._queue:
                    await self._write_some()
        except (ApiError, PeerLost, StorageError, OSError, TimeoutError) as error:
            log.warning(
                "denials and grants were not all written",
                extra={"topic": self._name, "lost": len(self._queue), "reason": str(error)},
            )
            self._queue.clear()

    def _drop(self, count: int) -> None:
        if not self._dropped:
            log.warning(
                "denials and grants are lost: they come faster than the topic is written",
                extra={"topic": self._name},
            )
        self._dropped += count

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            log.error("the audit topic met a bug", exc_info=task.exception())

    async def _run(self) -> None:
        """Write until the queue is empty; the next event starts a new task."""
        wait_s = RETRY_S
        await asyncio.sleep(LINGER_S)
        while self._queue:
            try:
                await self._write_some()
            except (ApiError, PeerLost, StorageError, OSError) as error:
                if isinstance(error, ApiError) and error.code == ErrorCode.MESSAGE_TOO_LARGE:
                    if self._batch_records_max > 1:
                        self._batch_records_max //= 2
                        continue
                    self._queue.popleft()
                    self._drop(1)
                self._note_failure(str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_S_MAX)
                continue
            except Exception:
                lost = min(BATCH_RECORDS_MAX, len(self._queue))
                log.exception("the audit topic met a bug; some events are lost", extra={"events": lost})
                for _ in range(lost):
                    self._queue.popleft()
                self._drop(lost)
            else:
                wait_s = RETRY_S
                self._note_failure("")
            await asyncio.sleep(LINGER_S)

    def _note_failure(self, reason: str) -> None:
        if reason and reason != self._failure:
            log.error(
                "the audit topic cannot be written; it is tried again",
                extra={"topic": self._name, "reason": reason},
            )
        elif self._failure and not reason:
            log.info("the audit topic is written again", extra={"topic": self._name})
        self._failure = reason

    async def _write_some(self) -> None:
        """Append the oldest events. Raises ApiError or PeerLost, with the queue unchanged."""
        events = list(itertools.islice(self._queue, self._batch_records_max))
        dropped = self._dropped
        if dropped:
            events.append(Event(self._clock.now_ms(), {"decision": "lost", "events": dropped}))
        await self._append(build_batch(_records(events, self._controller.node_id)))
        for _ in range(len(events) - bool(dropped)):
            self._queue.popleft()
        self._dropped -= dropped

    async def _append(self, batch: bytes) -> None:
        if self._name not in self._controller.image.topics:
            await self._controller.topics.auto_create(self._name)
        served = self._partitions.of_topic(self._name).values()
        led = [partition for partition in served if partition.is_leader and partition.offline is None]
        turn = next(self._turns)
        if led:
            records = memoryview(bytearray(batch))
            led[turn % len(led)].append(records, acks_all=False, zstd_allowed=True)
            return
        topic = self._controller.image.topics.get(self._name)
        elsewhere = [
            (index, partition.leader)
            for index, partition in sorted(topic.partitions.items() if topic is not None else ())
            if partition.leader not in (NO_LEADER, self._controller.node_id)
        ]
        if not elsewhere:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of {self._name} has a leader")
        index, leader = elsewhere[turn % len(elsewhere)]
        await self._peers.append(leader, self._name, index, batch, ACKS_LEADER)


def _records(events: Sequence[Event], broker: int) -> list[Record]:
    """One record per event: the principal as key, JSON as value, the time of the decision as timestamp."""
    records = []
    for event in events:
        principal = event.fields.get("principal")
        value = json.dumps({"time_ms": event.when_ms, "broker": broker, **event.fields}).encode()
        key = principal.encode() if isinstance(principal, str) else None
        records.append(Record(0, event.when_ms, key, value))
    return records
