"""Stages that take all that a micro-batch has for a task make what the driver makes record by record."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from barnabas.pipelines.plan.processing import State
from barnabas.pipelines.processing.packed import BUCKETS, FEWEST, Buckets, Entry, Origin, TaskOutput, in_order
from barnabas.pipelines.processing.processor import Timers
from barnabas.pipelines.processing.testing import MemoryStore
from barnabas.pipelines.processing.values import EPOCH
from barnabas.pipelines.spark.packed import entries_in, hash_of, pieces_of, spread_over
from barnabas.streams import App, StreamsBuilder, TopologyTestDriver, tumbling
from barnabas.streams.running.run import OUT
from barnabas.streams.stages import stage_class
from barnabas.streams.topology import Topology
from tests.support.generated_streams import Lines, build, case, played

STATES = {BUCKETS: State("map", "string", "string")}


class Cluster:
    """The stages of a topology on memory, as Spark runs them. rows: what was made for topics. failed: reasons."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.stores: dict[tuple[int, int], MemoryStore] = {}
        self.rows: list[dict[str, Any]] = []
        self.failed: list[str] = []

    def micro_batch(self, origins: list[Origin]) -> None:
        waiting: dict[tuple[int, int], list[Entry]] = {}
        for number, origin in enumerate(origins):
            waiting.setdefault((0, number % self.topology.tasks), []).append(Entry(origin, (), []))
        for stage in range(self.topology.stages):
            for task in range(self.topology.tasks):
                packed = self._worked(stage, task, waiting.pop((stage, task), []))
                for place, entries in packed.onward.items():
                    waiting.setdefault(place, []).extend(
                        entry for piece in pieces_of(entries) for entry in entries_in(piece)
                    )
                self.rows += [row for row, _ in packed.rows if row["stage"] == OUT]
                self.failed += [reason for _, reason in packed.failed]
        assert not waiting

    def _worked(self, number: int, task: int, entries: list[Entry]) -> TaskOutput:
        if not entries:
            return TaskOutput()
        stage: Any = stage_class(self.topology, number)()
        stage.timers, stage.key, stage.now = Timers(), task, EPOCH
        stage.init()
        buckets = Buckets(self.stores.setdefault((number, task), MemoryStore(STATES)))
        stage.cells = {"kept": buckets}
        packed = stage.process_entries(in_order(entries))
        buckets.flush()
        return packed


def origins_of(records: Lines) -> list[Origin]:
    offsets: dict[str, int] = {}
    reached: dict[str, int] = {}
    origins = []
    for topic, key, value, at in records:
        offset = offsets[topic] = offsets.get(topic, -1) + 1
        texts = (None if text == "-" else text.encode() for text in (key, value))
        origins.append(Origin(topic, 0, offset, int(at) * 1000, *texts, reached_us=reached.get(topic, 0)))
        reached[topic] = max(reached.get(topic, 0), int(at) * 1000)
    return origins


def at_once(records: Lines) -> Lines:
    return [
        [origin.topic, *("-" if p is None else p.decode() for p in (origin.key, origin.value)), str(at)]
        for entry in in_order([Entry(origin, (), []) for origin in origins_of(records)])
        if (origin := entry.origin) is not None
        for at in [origin.at_us // 1000]
    ]


def shown(rows: list[dict[str, Any]], topic: str) -> list[list[str]]:
    return [
        [*("-" if row[p] is None else row[p].decode() for p in ("out_key", "out_value")), str(row["at"])]
        for row in rows
        if row["to"] == topic
    ]


@pytest.mark.parametrize("cached", [False, True])
def test_random_topologies_in_one_task(cached):
    for seed in (*range(25), 1013):
        steps, records = case(seed)
        topology = replace(build(steps).build(), tasks=1)
        cluster = Cluster(topology if cached else replace(topology, cached=frozenset()))
        cluster.micro_batch([o for o in origins_of(records) if o.topic in topology.topics])
        assert cluster.failed == []
        wanted: dict[str, list[list[str]]] = {}
        for topic, *rest in played(steps, at_once(records)):
            wanted.setdefault(topic, []).append(rest)
        for topic, rows in wanted.items():
            rows_of_cluster = shown(cluster.rows, topic)
            if not cached:
                assert rows_of_cluster == rows, (seed, topic)
                continue
            assert {row[0]: row for row in rows_of_cluster} == {row[0]: row for row in rows}, (seed, topic)
            assert all(row in rows for row in rows_of_cluster), (seed, topic)


def counting(builder: StreamsBuilder) -> None:
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda k, v: v)
    words.count(name="counts").to_stream().to("counts")
    words.windowed_by(tumbling("1 hour")).count().to_stream(lambda k, v: k.key).to("hours")


def test_words_are_counted_in_several_tasks_and_micro_batches_with_one_result_for_each():
    app = App("words", tasks=3)
    counting(app)
    chance = random.Random(7)
    cluster, totals = Cluster(app.topology), {}
    for batch in range(3):
        lines = [" ".join(f"w{chance.randrange(400)}" for _ in range(5)) for _ in range(300)]
        for word in " ".join(lines).split():
            totals[word] = totals.get(word, 0) + 1
        cluster.rows.clear()
        cluster.micro_batch(
            [Origin("lines", 0, batch * 1000 + n, n, None, line.encode()) for n, line in enumerate(lines)]
        )
        for topic in ("counts", "hours"):
            counts = [(key, int(count)) for key, count, _ in shown(cluster.rows, topic)]
            assert sorted(key for key, _ in counts) == sorted(
                {word for line in lines for word in line.split()}
            )
            assert all(totals[key] == count for key, count in counts)


def test_a_record_that_fails_leaves_no_trace_and_others_go_on():
    builder = StreamsBuilder()
    lines = builder.stream("lines").group_by(lambda k, v: v[0])
    table = lines.aggregate(0, lambda total, v: total + len(v)).to_stream()
    table.peek(lambda k, v: 1 // (v % 7)).to("lengths")
    topology = replace(builder.build(), tasks=1, cached=frozenset())
    cluster = Cluster(topology)
    texts = [b"abc", b"abcd", b"", b"ab"]
    cluster.micro_batch([Origin("lines", 0, n, n, None, text) for n, text in enumerate(texts)])
    assert [row["out_value"] for row in cluster.rows] == [b"3", b"5"]
    assert [reason.split(":")[0] for reason in cluster.failed] == ["IndexError", "ZeroDivisionError"]


def test_a_topic_that_two_sources_read_goes_to_both():
    builder = StreamsBuilder()
    builder.stream("a", "b").to("both")
    builder.stream("b").map_values(str.upper).to("one")
    cluster = Cluster(replace(builder.build(), tasks=1))
    cluster.micro_batch([Origin(topic, 0, 0, 0, None, topic.encode()) for topic in "ab"])
    assert [(row["to"], row["out_value"]) for row in cluster.rows] == [
        ("both", b"a"),
        ("both", b"b"),
        ("one", b"B"),
    ]


def test_buckets_are_what_a_dict_is():
    chance = random.Random(3)
    store, wanted = MemoryStore(STATES), {}
    for _ in range(6):
        buckets = Buckets(store)
        for _ in range(3000):
            name = f"n{chance.randrange(9000)}"
            keeps, before = chance.random() < 0.8, wanted.get(name)
            if chance.random() < 0.7:
                buckets[name] = text = str(chance.random())
                after: str | None = text
            else:
                assert buckets.pop(name, None) == before
                after = None
            if keeps:
                buckets.settle()
                wanted.pop(name, None)
                wanted |= {} if after is None else {name: after}
            else:
                buckets.back()
            assert buckets.get(name) == wanted.get(name)
        assert dict(buckets.items()) == wanted
        assert len(buckets) == len(wanted)
        buckets.flush()
    assert dict(Buckets(store).items()) == wanted
    assert len(store.kept[None, BUCKETS]) > FEWEST + 1


def test_each_task_has_a_partition_of_spark():
    assert (hash_of(0), hash_of(1)) == (933211791, -559580957)  # as Spark's function hash
    for tasks in range(1, 9):
        assert sorted(hash_of(number) % tasks for number in spread_over(tasks)) == list(range(tasks))


def test_the_test_driver_makes_one_result_for_each_record():
    app = App("words")
    counting(app)
    with TopologyTestDriver(app.topology) as driver:
        driver.pipe_input("lines", None, "to be to")
        assert [(r.key, r.value) for r in driver.read_output("counts")] == [("to", 1), ("be", 1), ("to", 2)]
