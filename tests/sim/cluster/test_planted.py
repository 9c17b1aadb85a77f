"""Known bugs of replication, planted into the broker: some early history must find each of them, and by the right rule."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.cluster import controller
from barnabas.broker.cluster.executor import Executor
from barnabas.broker.partitions.acknowledgement import Acknowledgement
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.partitions.replicating import Replication
from barnabas.coordination.tree import Event, EventKind
from barnabas.cores import elections
from barnabas.cores.cluster_image import PartitionImage
from barnabas.cores.epochs import EpochEnd
from barnabas.cores.partition import PartitionCore
from barnabas.cores.producers import Producers, ProducerSnapshot
from barnabas.cores.replication import InSyncReplicas
from barnabas.records.batch import check_batch
from barnabas.records.units import Offset
from barnabas.storage.dirs import log_manager
from barnabas.storage.dirs.log_dir import LogDir
from barnabas.storage.errors import LogDirOffline, StorageError
from barnabas.storage.logs.log import Log
from tests.sim.cluster.test_holes import HoleWorld
from tests.sim.cluster.world import Failed, World, run_seed
from tests.support.examples import one_in

SEEDS_MAX = 150
LONG_RUN = 1_000

Plant = Callable[[pytest.MonkeyPatch], None]


def _cut_no_log(patch: pytest.MonkeyPatch) -> None:
    """Followers are not told where their log went another way."""
    patch.setattr(Partition, "end_of_epoch", lambda self, epoch: EpochEnd(epoch, self.log_end_offset))


def _cut_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """As it was before KIP-101: whoever gets a new leader drops what it does not know to be committed."""
    real = Replication._mend

    def mend(self: Replication, partition: Partition) -> None:
        real(self, partition)
        if partition.offline is None:
            partition.log.truncate_to(partition.high_watermark, self.clock.now_ms())

    patch.setattr(Replication, "_mend", mend)


def _commit_what_one_follower_has(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is ahead of the in-sync set."""

    def high_watermark(self: InSyncReplicas, leader_end: Offset) -> Offset:
        ends = [self.end_of(node) for node in self.followers]
        return min(leader_end, max(ends)) if ends else leader_end

    patch.setattr(InSyncReplicas, "high_watermark", high_watermark)


def _shrink_at_once(patch: pytest.MonkeyPatch) -> None:
    """A leader goes by the in-sync set that it wants, before the metadata have it."""
    patch.setattr(InSyncReplicas, "want", lambda self, in_sync: self.set(in_sync))


def _commit_all_at_election(patch: pytest.MonkeyPatch) -> None:
    """A new leader believes that its followers have what it has."""
    real = InSyncReplicas.begin

    def begin(self: InSyncReplicas, in_sync: Iterable[int], now_ms: float) -> None:
        real(self, in_sync, now_ms)
        for known in self._known.values():
            known.end = Offset(1 << 60)

    patch.setattr(InSyncReplicas, "begin", begin)


def _let_anybody_join(patch: pytest.MonkeyPatch) -> None:
    """A follower counts as in sync as soon as it fetches."""
    patch.setattr(
        InSyncReplicas,
        "may_join",
        lambda self, node, high_watermark, epoch_start: node in self._known and node not in self.followers,
    )


def _count_fetches_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    """A follower's offset counts although its log went another way."""
    patch.setattr(
        Partition,
        "note_replica_fetch",
        lambda self, follower, asked: (
            self.is_leader and self.note_fetch(follower, Offset(asked.fetch_offset))
        ),
    )


def _elect_anybody(patch: pytest.MonkeyPatch) -> None:
    """Replicas that are not in sync are elected as well."""
    real = elections.elect
    patch.setattr(elections, "elect", lambda partition, live, unclean: real(partition, live, True))


def _trust_a_disk_that_lost_its_power(patch: pytest.MonkeyPatch) -> None:
    """Who comes back without a clean stop leads as if it had all that it ever had."""
    patch.setattr(controller, "decide_unclean_restart", lambda image, broker_id: ())


def _acknowledge_at_once(patch: pytest.MonkeyPatch) -> None:
    """acks=all waits for nobody."""
    patch.setattr(Partition, "_holds", lambda self, promise: True)


def _forget_sequences(patch: pytest.MonkeyPatch) -> None:
    """What is sent again is written again."""
    patch.setattr(PartitionCore, "decide_append", lambda self, *args, **kwargs: None)


def _keep_no_producers(patch: pytest.MonkeyPatch) -> None:
    """A broker that starts knows of no producer what it has written."""
    real = Partition.__init__

    def init(
        self: Partition, surroundings: Any, topic: str, index: int, topic_id: Any, log: Any, image: Any
    ) -> None:
        log.core.forget_producers([producer.producer_id for producer in log.core.producers])
        real(self, surroundings, topic, index, topic_id, log, image)

    patch.setattr(Partition, "__init__", init)


def _keep_one_batch_of_a_producer(patch: pytest.MonkeyPatch) -> None:
    """As it was once, and is in Kafka: of the batches in flight a snapshot has only the last."""
    real = Producers.snapshot

    def snapshot(self: Producers) -> list[ProducerSnapshot]:
        return list({row.producer_id: row for row in real(self)}.values())

    patch.setattr(Producers, "snapshot", snapshot)


def _miss_events(patch: pytest.MonkeyPatch) -> None:
    """Nothing is read again after the connection to the tree was lost."""
    real = Executor.on_event

    def on_event(self: Executor, event: Event) -> None:
        if event.kind is not EventKind.RECONNECTED:
            real(self, event)

    patch.setattr(Executor, "on_event", on_event)


def _note_first_numbers_only(patch: pytest.MonkeyPatch) -> None:
    """A follower notes the numbers of what it copies first, and of nothing that follows."""
    real = Log.append_replicated

    def append_replicated(self: Log, records: memoryview, now_ms: int) -> int:
        before = self.core.producers.snapshot()
        end = real(self, records, now_ms)
        if before:
            self.core.producers.load(before)
        return end

    patch.setattr(Log, "append_replicated", append_replicated)


def _keep_the_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """Another leader is elected, and the epoch stays what it was."""
    real = elections.elect

    def elect(partition: PartitionImage, live: Collection[int], unclean: bool) -> PartitionImage:
        return replace(real(partition, live, unclean), leader_epoch=partition.leader_epoch)

    patch.setattr(elections, "elect", elect)


def _write_over_a_gap(patch: pytest.MonkeyPatch) -> None:
    """A numbered batch is lost now and then, and those after it are written."""
    patch.setattr(
        PartitionCore, "decide_append", lambda self, header, **_: self.producers.find_duplicate(header)
    )
    real = Partition.append
    calls = itertools.count(1)

    def append(self: Partition, records: memoryview, **options: Any) -> Acknowledgement:
        if check_batch(records).producer_id < 0 or next(calls) % 10:
            return real(self, records, **options)
        lost = Acknowledgement(-1, -1, -1, -1, True)
        lost.is_ready = False
        return lost

    patch.setattr(Partition, "append", append)


def _flip_a_bit(patch: pytest.MonkeyPatch) -> None:
    """A follower writes something else than it has checked."""
    real = Log.append_replicated

    def append_replicated(self: Log, records: memoryview, now_ms: int) -> int:
        flipped = bytearray(records)
        if self.log_end_offset > 20:
            flipped[-2] ^= 1
        return real(self, flipped, now_ms)

    patch.setattr(Log, "append_replicated", append_replicated)


def _start_only_after_a_clean_stop(patch: pytest.MonkeyPatch) -> None:
    """What a process has left that was killed keeps the next one from starting."""
    real = log_manager.load_dir

    def load_dir(log_dir: LogDir, *args: Any) -> Any:
        loaded = real(log_dir, *args)
        if log_dir.had_logs and not log_dir.clean:
            raise StorageError(f"{log_dir.path} is in use")
        return loaded

    patch.setattr(log_manager, "load_dir", load_dir)


def _fail_at_an_event(patch: pytest.MonkeyPatch) -> None:
    """What is called when the tree can be reached again raises."""
    real = Executor.on_event

    def on_event(self: Executor, event: Event) -> None:
        real(self, event)
        assert event.kind is not EventKind.RECONNECTED, "planted"

    patch.setattr(Executor, "on_event", on_event)


def _fail_to_read(patch: pytest.MonkeyPatch) -> None:
    """A log of some length cannot be read, although its disk is well."""
    real = Log.read

    def read(self: Log, offset: Offset, *args: Any, **options: Any) -> Any:
        if offset > 20:
            raise LogDirOffline(self.log_dir, OSError("planted"))
        return real(self, offset, *args, **options)

    patch.setattr(Log, "read", read)


def _stumble_now_and_then(patch: pytest.MonkeyPatch) -> None:
    """A follower meets a bug, which is logged, and succeeds when it tries again."""
    real = Log.append_replicated
    calls = itertools.count(1)

    def append_replicated(self: Log, records: memoryview, now_ms: int) -> int:
        if next(calls) % 20 == 0:
            raise KeyError("planted")
        return real(self, records, now_ms)

    patch.setattr(Log, "append_replicated", append_replicated)


def _acknowledge_nothing(patch: pytest.MonkeyPatch) -> None:
    """acks=all waits for ever."""
    real = Partition._promise

    def promise(self: Partition, *args: Any) -> Acknowledgement:
        promise_made = real(self, *args)
        promise_made.is_ready = not promise_made.wants_replicas
        return promise_made

    patch.setattr(Partition, "_promise", promise)
    patch.setattr(Partition, "_finish_pending", lambda self: None)


def _let_nobody_join(patch: pytest.MonkeyPatch) -> None:
    """Who has left the in-sync set stays out of it."""
    patch.setattr(InSyncReplicas, "may_join", lambda *args: False)


PLANTS: list[tuple[Plant, set[str]]] = [
    (_cut_no_log, {"differ", "changed", "lost"}),
    (_cut_to_the_high_watermark, {"lost", "changed", "watermark"}),
    (_commit_what_one_follower_has, {"lost", "changed", "watermark"}),
    (_shrink_at_once, {"lost", "changed", "watermark"}),
    (_commit_all_at_election, {"lost", "changed", "watermark"}),
    (_let_anybody_join, {"lost", "changed", "watermark"}),
    (_elect_anybody, {"lost", "changed", "watermark"}),
    (_acknowledge_at_once, {"lost", "changed"}),
    (_forget_sequences, {"doubled"}),
    (_keep_no_producers, {"doubled"}),
    (_note_first_numbers_only, {"refused"}),
    (_keep_the_leader_epoch, {"leaders"}),
    (_write_over_a_gap, {"reordered"}),
    (_flip_a_bit, {"foreign"}),
    (_start_only_after_a_clean_stop, {"start"}),
    (_fail_at_an_event, {"failed"}),
    (_fail_to_read, {"failed"}),
    (_stumble_now_and_then, {"logged"}),
    (_acknowledge_nothing, {"silent"}),
    (_let_nobody_join, {"stuck"}),
]
RARE: list[tuple[Plant, set[str]]] = [
    (_keep_one_batch_of_a_producer, {"refused", "doubled"}),
    (_miss_events, {"stuck"}),
    (_count_fetches_from_anywhere, {"lost", "changed", "watermark"}),
    (_trust_a_disk_that_lost_its_power, {"lost", "changed", "watermark"}),
]


def name_of(value: object) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("plant", "rules"), one_in(2, PLANTS), ids=name_of)
def test_a_planted_bug_is_found(plant: Plant, rules: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    find(rules, SEEDS_MAX)


def test_a_hole_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower goes on at the end of its log although records are missing in the middle."""
    monkeypatch.setattr(Log, "drop_damaged", lambda self, now_ms: self.forget_missing())
    find({"hole"}, 2, HoleWorld)


@pytest.mark.soak
@pytest.mark.parametrize(("plant", "rules"), RARE, ids=name_of)
def test_a_planted_bug_is_found_in_the_long_run(
    plant: Plant, rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    find(rules, LONG_RUN)


def find(rules: set[str], seeds: int, world: type[World] = World) -> None:
    for seed in range(seeds):
        broken = rules_broken(seed, world)
        if "failed" in broken and "failed" not in rules:
            pytest.fail(f"seed {seed}: the plant does not do what it says: it breaks {sorted(broken)}")
        if broken & rules:
            return
    pytest.fail(f"{seeds} seeds ran and none has found it")


def rules_broken(seed: int, world: type[World]) -> set[str]:
    gc.collect()  # the history before this one left files open, in objects that refer to one another
    try:
        run_seed(seed, world=world)
    except Failed as failed:
        print(failed)
        return {line.strip().partition(":")[0] for line in str(failed).splitlines()[1:]}
    return set()
