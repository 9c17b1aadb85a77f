"""Known bugs, planted into the broker: some early history must find each of them, and by the right rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.coordinators import loading
from barnabas.broker.coordinators.markers import MarkerWriter
from barnabas.broker.net.connection import Connection
from barnabas.broker.net.turn import Turn
from barnabas.broker.partitions import plain_append
from barnabas.broker.partitions.partition import Partition
from barnabas.cores.decision import Decision
from barnabas.cores.group import GroupCoordinatorCore
from barnabas.cores.partition import PartitionCore
from barnabas.storage.logs import log_writer
from barnabas.storage.logs.log import Log
from barnabas.storage.segments.segment import Segment
from tests.sim.broker.world import Failed, World, run_seed
from tests.support.examples import one_in

SEEDS_MAX = 60

Plant = Callable[[pytest.MonkeyPatch], None]


def _acknowledge_before_writing(patch: pytest.MonkeyPatch) -> None:
    """What is appended lies in memory until the next append writes it."""
    write = log_writer.os.pwrite
    late: list[tuple[int, bytes, int]] = []

    class LateOs:
        def __getattr__(self, name: str) -> Any:
            return getattr(log_writer_os, name)

        def pwrite(self, fd: int, data: Any, position: int) -> int:
            del write_later[:-1]
            for item in write_later:
                log_writer_os.pwrite(*item)
            write_later[:] = [(fd, bytes(data), position)]
            return len(data)

    log_writer_os, write_later = log_writer.os, late
    assert write is not None
    for module in (log_writer, plain_append):
        patch.setattr(module, "os", LateOs())


def _forget_the_sequence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionCore, "decide_append", lambda self, *args, **kwargs: None)


def _sync_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "sync", lambda self: None)


def _wake_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turn, "to_wake", lambda self, partition: None)


def _end_no_turn_after_an_error(patch: pytest.MonkeyPatch) -> None:
    """As it was once: what one waiter raised left all connections silent."""
    real = Turn._end
    turns = {"count": 0}

    def end(self: Turn) -> None:
        turns["count"] += 1
        if turns["count"] % 150:
            real(self)

    patch.setattr(Turn, "_end", end)


def _lose_a_request(patch: pytest.MonkeyPatch) -> None:
    """The frames of one read are forgotten, the connection stays open."""
    real = Connection.take_frames
    reads = {"count": 0}

    def take(self: Connection, buffer: memoryview, end: int) -> None:
        reads["count"] += 1
        if reads["count"] % 300:
            real(self, buffer, end)

    patch.setattr(Connection, "take_frames", take)


def _skip_records(patch: pytest.MonkeyPatch) -> None:
    """A read begins one batch too late when it begins at the start of a segment's second half."""
    real = Log.read

    def read(self: Log, offset: int, *args: Any, **kwargs: Any) -> Any:
        further = offset + 1 if offset % 7 == 5 and offset + 1 < self.log_end_offset else offset
        return real(self, further, *args, **kwargs)

    patch.setattr(Log, "read", read)


def _load_no_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loading, "_replay_record", lambda partition, core, record, producer_id: True)


def _keep_no_producers(patch: pytest.MonkeyPatch) -> None:
    """Recovery forgets which sequences were written last."""
    real = Partition.__init__

    def init(
        self: Partition, surroundings: Any, topic: str, index: int, topic_id: Any, log: Log, image: Any
    ) -> None:
        log.core.forget_producers([producer.producer_id for producer in log.core.producers])
        real(self, surroundings, topic, index, topic_id, log, image)

    patch.setattr(Partition, "__init__", init)


def _tell_of_no_aborts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "aborted", lambda self, *_: [])


def _end_transactions_in_one_partition(patch: pytest.MonkeyPatch) -> None:
    """The markers of the other partitions are thought to be written."""
    real = MarkerWriter.write_one
    patch.setattr(
        MarkerWriter,
        "_write_one",
        lambda self, job, where: real(self, job, where) if where[1] == 0 else job.left.discard(where),
    )


def _change_memory_without_an_entry(patch: pytest.MonkeyPatch) -> None:
    """The group coordinator remembers of an offset what its log does not say."""
    real = GroupCoordinatorCore.apply

    def apply(self: GroupCoordinatorCore, decision: Decision) -> None:
        real(self, decision)
        for offsets in self.state.committed.values():
            for partition, committed in offsets.items():
                offsets[partition] = committed._replace(metadata="not from the log")

    patch.setattr(GroupCoordinatorCore, "apply", apply)


PLANTS: list[tuple[Plant, set[str]]] = [
    (_acknowledge_before_writing, {"lost", "changed", "unseen", "stuck", "back", "failed"}),
    (_forget_the_sequence, {"doubled"}),
    (_sync_nothing, {"lost"}),
    (_wake_nobody, {"late"}),
    (_end_no_turn_after_an_error, {"stuck"}),
    (_lose_a_request, {"stuck"}),
    (_skip_records, {"skipped"}),
    (_load_no_groups, {"commit"}),
    (_keep_no_producers, {"doubled", "lost"}),
    (_tell_of_no_aborts, {"aborted"}),
    (_end_transactions_in_one_partition, {"stuck"}),
    (_change_memory_without_an_entry, {"coordinators"}),
]


@pytest.mark.parametrize(
    ("plant", "rules"), one_in(4, PLANTS), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_bug_is_found(plant: Plant, rules: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    seen: list[World] = []
    for seed in range(SEEDS_MAX):
        try:
            seen.append(run_seed(seed))
        except Failed as failed:
            broken = {line.strip().partition(":")[0] for line in str(failed).splitlines()[1:]}
            if broken & rules:
                print(failed)
                return
    pytest.fail(f"{SEEDS_MAX} seeds ran and none has found it")
