"""Topologies in the test driver: what users write, and what comes out."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.streams import (
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    TopologyTestDriver,
    Windowed,
    hopping,
    session,
    tumbling,
    until_time_limit,
    until_window_closes,
)

MINUTE = 60_000


def word_counts() -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(lambda line: line.lower().split())
    words.group_by(lambda k, v: v).count(name="counts").to_stream().to("word-counts")
    return builder


def pairs(driver: TopologyTestDriver, topic: str = "out") -> list[tuple[object, object]]:
    return [(record.key, record.value) for record in driver.read_output(topic)]


def timed(driver: TopologyTestDriver, topic: str = "out") -> list[tuple[object, object, int]]:
    rows = []
    for record in driver.read_output(topic):
        key = record.key
        if isinstance(key, Windowed):
            key = (key.key, key.start, key.end)
        rows.append((key, record.value, record.timestamp))
    return rows


def test_words_are_counted_with_timestamps_headers_and_state() -> None:
    with TopologyTestDriver(word_counts().build()) as driver:
        driver.pipe_input("lines", None, "To be or not to be", timestamp=5, headers={"from": "Hamlet"})
        records = driver.read_output("word-counts")
        assert [(r.key, r.value) for r in records][-2:] == [("to", 2), ("be", 2)]
        assert records[0] == Record("to", 1, 5, (("from", b"Hamlet"),))
        assert driver.read_output("word-counts") == []
        driver.pipe_input("lines", None, "be", timestamp=3)
        assert timed(driver, "word-counts") == [("be", 3, 5)]
        assert driver.store("counts").get("be") == 3
        assert dict(driver.store("counts").items()) == {"be": 3, "not": 1, "or": 1, "to": 2}
        assert list(driver.stores()) == ["counts"]


def test_a_driver_imports_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, barnabas.streams; print([m for m in ('pyspark', 'pyarrow', 'py4j') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_steps_of_streams() -> None:
    builder = StreamsBuilder()
    seen: list[object] = []
    numbers = builder.stream("in", value=int)
    numbers.filter(lambda v: v > 0).to("positive")
    numbers.filter_not(lambda k, v: v > 0).to("other")
    numbers.map(lambda k, v: (v, k)).to("turned")
    numbers.map_values(lambda k, v: f"{k}{v}").to("texts")
    numbers.flat_map(lambda k, v: [(k, n) for n in range(v)]).to("ranges")
    numbers.select_key(lambda k, v: v % 2).to("parities")
    numbers.peek(lambda k, v: seen.append(v)).merge(builder.stream("more", value=int)).to("merged")
    numbers.for_each(lambda k, v: seen.append(k))
    numbers.to(lambda k, v: f"topic-{k}")
    even, odd = numbers.split(lambda k, v: v % 2 == 0)
    even.to("even")
    odd.to("odd")
    named = numbers.split(big=lambda v: v > 2)
    named["big"].to("big")
    named["default"].to("small")
    wanted = {
        "positive": [("a", 3)],
        "other": [("b", 0)],
        "turned": [(3, "a"), (0, "b")],
        "texts": [("a", "a3"), ("b", "b0")],
        "ranges": [("a", 0), ("a", 1), ("a", 2)],
        "parities": [(1, 3), (0, 0)],
        "merged": [("a", 3), ("b", 0), ("c", 9)],
        "topic-a": [("a", 3)],
        "even": [("b", 0)],
        "odd": [("a", 3)],
        "big": [("a", 3)],
        "small": [("b", 0)],
    }
    with TopologyTestDriver(builder.build()) as driver:
        for key, value in (("a", 3), ("b", 0)):
            driver.pipe_input("in", key, value)
        driver.pipe_input("more", "c", 9)
        by_topic = {topic: pairs(driver, topic) for topic in wanted}
    assert by_topic == wanted
    assert seen == [3, "a", 0, "b"]


def test_aggregates_of_streams_and_of_tables() -> None:
    builder = StreamsBuilder()
    bids = builder.stream("bids", value=int).group_by_key()
    bids.reduce(lambda one, other: max(one, other)).to_stream().to("highest")
    bids.aggregate(list, lambda k, v, bids_so_far: [*bids_so_far, v]).to_stream().to("lists")
    rows = builder.table("people")
    rows.group_by(lambda k, v: (v, k)).count().to_stream().to("cities")
    rows.group_by(lambda k, v: (v, 1)).aggregate(0, lambda n, v: n + v, lambda n, v: n - v).to_stream().to(
        "sums"
    )
    with TopologyTestDriver(builder.build()) as driver:
        for value in (2, 5, 3):
            driver.pipe_input("bids", "x", value)
        assert driver.read_values("highest") == [2, 5, 5]
        assert driver.read_values("lists") == [[2], [2, 5], [2, 5, 3]]
        for key, city in (("ann", "Rome"), ("bob", "Rome"), ("ann", "Oslo"), ("bob", None)):
            driver.pipe_input("people", key, city)
        assert pairs(driver, "cities") == [("Rome", 1), ("Rome", 2), ("Rome", 1), ("Oslo", 1), ("Rome", 0)]
        assert pairs(driver, "sums") == [("Rome", 1), ("Rome", 2), ("Rome", 1), ("Oslo", 1), ("Rome", 0)]


def test_several_streams_become_one_aggregate() -> None:
    builder = StreamsBuilder()
    paid = builder.stream("paid", value=int).group_by_key()
    spent = builder.stream("spent", value=int).group_by_key()
    both = paid.cogroup(lambda k, v, total: total + v).cogroup(spent, lambda k, v, total: total - v)
    both.aggregate(0, name="balance").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("paid", "ann", 10)
        driver.pipe_input("spent", "ann", 4)
        driver.pipe_input("spent", "bob", 1)
        assert pairs(driver) == [("ann", 10), ("ann", 6), ("bob", -1)]


def test_windows_take_late_records_for_as_long_as_their_grace() -> None:
    builder = StreamsBuilder()
    groups = builder.stream("in").group_by_key()
    groups.windowed_by(tumbling("1 minute", grace="30 seconds")).count(name="per-minute").to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build()) as driver:
        for at in (0, 59_999, 60_000, 10_000, 90_000, 20_000):
            driver.pipe_input("in", "k", "v", timestamp=at)
        first, second = ("k", 0, MINUTE), ("k", MINUTE, 2 * MINUTE)
        assert timed(driver) == [
            (first, 1, 0),
            (first, 2, 59_999),
            (second, 1, 60_000),
            (first, 3, 59_999),
            (second, 2, 90_000),
        ]
        assert [(w.start, n) for w, n in driver.store("per-minute").fetch("k")] == [(MINUTE, 2)]


def test_hopping_windows_overlap_and_sessions_grow_together() -> None:
    builder = StreamsBuilder()
    groups = builder.stream("in").group_by_key()
    groups.windowed_by(hopping(10, 5)).count().to_stream().to("hops")
    groups.windowed_by(session(5, grace=100)).count().to_stream().to("sessions")
    with TopologyTestDriver(builder.build()) as driver:
        for at in (7, 15, 11):
            driver.pipe_input("in", "k", "v", timestamp=at)
        assert timed(driver, "hops")[:4] == [
            (("k", 0, 10), 1, 7),
            (("k", 5, 15), 1, 7),
            (("k", 10, 20), 1, 15),
            (("k", 15, 25), 1, 15),
        ]
        assert timed(driver, "sessions") == [
            (("k", 7, 7), 1, 7),
            (("k", 15, 15), 1, 15),
            (("k", 7, 7), None, 7),
            (("k", 15, 15), None, 15),
            (("k", 7, 15), 3, 15),
        ]


def test_suppressed_windows_have_one_result_each() -> None:
    builder = StreamsBuilder()
    windows = builder.stream("in").group_by_key().windowed_by(tumbling(10, grace=5))
    windows.count().suppress(until_window_closes()).to_stream().to("out")
    final = builder.stream("in").group_by_key().windowed_by(tumbling(10, grace=5), emit="on_window_close")
    final.count().to_stream().to("final")
    with TopologyTestDriver(builder.build()) as driver:
        for at in (1, 9, 12, 3, 14, 15, 40):
            driver.pipe_input("in", "k", "v", timestamp=at)
        wanted = [(("k", 0, 10), 3, 9), (("k", 10, 20), 3, 15)]
        assert timed(driver) == wanted
        assert timed(driver, "final") == wanted


def test_changes_are_held_back_for_a_time() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().suppress(until_time_limit(10)).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for at in (0, 3, 5, 11, 22, 33):
            driver.pipe_input("in", "k", "v", timestamp=at)
        assert timed(driver) == [("k", 4, 11), ("k", 6, 33)]


def test_joins_with_tables() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders")
    names = builder.table("names")
    orders.join(names, lambda order, name: f"{order} {name}").to("inner")
    orders.left_join(names, lambda k, order, name: f"{k} {order} {name}").to("left")
    shops = builder.global_table("shops")
    orders.join(shops, lambda order, shop: f"{order} at {shop}", on=lambda k, v: v).to("global")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("orders", "a", "o1", timestamp=9)
        driver.pipe_input("names", "a", "Ann", timestamp=20)
        driver.pipe_input("shops", "o2", "Main Street")
        driver.pipe_input("orders", "a", "o2", timestamp=10)
        assert timed(driver, "inner") == [("a", "o2 Ann", 10)]
        assert timed(driver, "left") == [("a", "a o1 None", 9), ("a", "a o2 Ann", 10)]
        assert timed(driver, "global") == [("a", "o2 at Main Street", 10)]


def test_joins_of_tables() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    left.join(right, lambda a, b: f"{a}{b}").to_stream().to("inner")
    left.left_join(right, lambda a, b: f"{a}{b}").to_stream().to("lefts")
    left.outer_join(right, lambda a, b: f"{a}{b}", name="all").to_stream().to("outer")
    with TopologyTestDriver(builder.build()) as driver:
        for topic, value in (("left", "l"), ("right", "r"), ("left", None), ("right", None)):
            driver.pipe_input(topic, "k", value)
        assert driver.read_values("inner") == ["lr", None]
        assert driver.read_values("lefts") == ["lNone", "lr", None]
        assert driver.read_values("outer") == ["lNone", "lr", "Noner", None]
        assert driver.store("all").get("k") is None


def test_joins_by_a_foreign_key() -> None:
    builder = StreamsBuilder()
    albums = builder.table("albums", value="json")
    artists = builder.table("artists")
    albums.join(artists, lambda album, artist: [album["title"], artist], on=lambda v: v["by"]).to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("albums", "1", {"title": "Blue", "by": "j"})
        driver.pipe_input("artists", "j", "Joni")
        driver.pipe_input("albums", "2", {"title": "Hejira", "by": "j"})
        driver.pipe_input("artists", "j", "Joni Mitchell")
        driver.pipe_input("albums", "1", {"title": "Blue", "by": "x"})
        assert pairs(driver) == [
            ("1", ["Blue", "Joni"]),
            ("2", ["Hejira", "Joni"]),
            ("1", ["Blue", "Joni Mitchell"]),
            ("2", ["Hejira", "Joni Mitchell"]),
            ("1", None),
        ]


def test_joins_of_streams_wait_for_partners() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, lambda a, b: f"{a}{b}", within=10).to("inner")
    left.left_join(right, lambda a, b: f"{a}{b}", within=10, grace=5).to("lefts")
    left.outer_join(right, lambda a, b: f"{a}{b}", within=10, grace=5).to("outer")
    with TopologyTestDriver(builder.build()) as driver:
        for topic, value, at in (("left", "a", 0), ("right", "x", 10), ("right", "y", 30), ("left", "b", 60)):
            driver.pipe_input(topic, "k", value, timestamp=at)
        assert timed(driver, "inner") == [("k", "ax", 10)]
        assert timed(driver, "lefts") == [("k", "ax", 10)]
        assert timed(driver, "outer") == [("k", "ax", 10), ("k", "Noney", 30)]


def test_versioned_tables_are_joined_as_they_were() -> None:
    builder = StreamsBuilder()
    prices = builder.table("prices", versioned="1 hour")
    builder.stream("orders").join(prices, lambda order, price: f"{order} {price}").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("prices", "k", "low", timestamp=10)
        driver.pipe_input("prices", "k", "high", timestamp=20)
        for at in (5, 15, 25):
            driver.pipe_input("orders", "k", "o", timestamp=at)
        assert timed(driver) == [("k", "o low", 15), ("k", "o high", 25)]


@dataclass
class Order:
    customer: str
    amount: float


def test_values_of_dataclasses_are_read_kept_and_written() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=Order)
    orders.group_by(lambda v: v.customer).reduce(lambda a, b: a if a.amount > b.amount else b).to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("orders", "1", b'{"customer": "ann", "amount": 3}')
        driver.pipe_input("orders", "2", Order("ann", 2.5))
        driver.pipe_input("orders", "3", b'{"customer": "ann"}')
        driver.pipe_input("orders", "4", b"no json")
        assert driver.read_values("out") == [Order("ann", 3.0), Order("ann", 3.0)]
        reasons = [letter.reason for letter in driver.dead_letters]
    assert "it has no amount" in reasons[0]
    assert "the value is not Order" in reasons[1]


def test_a_function_that_raises_makes_a_dead_letter_and_changes_nothing() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in", value=int)
    numbers.group_by_key().aggregate(0, lambda n, v: n + 1 // v).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for value in (1, 0, 1):
            driver.pipe_input("in", "k", value)
        assert driver.read_values("out") == [1, 2]
        assert [letter.value for letter in driver.dead_letters] == [b"0"]
        assert driver.dead_letters[0].reason.startswith("ZeroDivisionError")


class Quiet(Processor):
    """Remembers the last value of each key; tells of it by the clock and by the times of records."""

    def init(self, context):
        self.kept = context.store("last")
        context.schedule(10, "stream_time", self.by_time)
        context.schedule("1 minute", "wall_clock", self.by_clock)

    def process(self, record):
        self.kept[record.key] = record.value
        if record.value == "now":
            self.context.forward(record.key, "seen")

    def by_time(self, at):
        self.context.forward("stream", len(self.kept), timestamp=at)

    def by_clock(self, at):
        yield from ((key, f"still {value}") for key, value in self.kept.items())


def test_processors_keep_state_and_are_called_by_time() -> None:
    builder = StreamsBuilder()
    builder.add_state_store("last")
    builder.stream("in").process(Quiet, stores="last", wall_clock=True).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("in", "a", "now", timestamp=1)
        driver.pipe_input("in", "b", "x", timestamp=12)
        assert timed(driver) == [("a", "seen", 1), ("stream", 1, 1), ("stream", 2, 12)]
        driver.advance_time("59 seconds")
        assert timed(driver) == []
        driver.advance_time("1 second")
        assert timed(driver) == [("a", "still now", MINUTE), ("b", "still x", MINUTE)]
        assert driver.store("last").get("b") == "x"


def test_entries_with_a_ttl_are_forgotten_by_the_clock() -> None:
    builder = StreamsBuilder()
    builder.add_state_store("seen", ttl="1 minute")

    def first(record, context):
        if context.store("seen").put_if_absent(record.key, True) is None:
            yield record

    builder.stream("in").process_values(first, stores=["seen"]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for wait in ("0 seconds", "59 seconds", "1 second"):
            driver.advance_time(wait)
            driver.pipe_input("in", "k", wait)
        assert driver.read_values("out") == ["0 seconds", "1 second"]


def test_a_topic_that_the_topology_writes_itself_is_read_without_a_broker() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(str.upper).through("middle").map_values(lambda v: f"{v}!").to("out")
    topology = builder.build()
    assert topology.topics == ("in",)
    with TopologyTestDriver(topology) as driver:
        driver.pipe_input("in", "k", "v")
        assert driver.read_values("middle") == ["V"]
        assert driver.read_values("out") == ["V!"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: b.stream("a").join(b.stream("b"), lambda x, y: x), "needs a span of time"),
        (
            lambda b: b.stream("a").filter(lambda: True),
            "takes 0 arguments: write lambda v: ... or lambda k, v: ...",
        ),
        (lambda b: b.stream("a", value="jason"), "there is no serde 'jason'"),
        (lambda b: b.stream("a").process(Quiet, stores="last"), "declare it with builder.add_state_store"),
        (
            lambda b: b.stream("a").group_by_key().count().suppress(until_window_closes()),
            "use until_time_limit",
        ),
        (lambda b: b.stream(), "needs the names of topics"),
    ],
)
def test_mistakes_are_told_where_they_are_made(make, message) -> None:
    with pytest.raises(StreamsError, match=message.replace("(", r"\(").replace("...", r"\.\.\.")):
        make(StreamsBuilder())


def test_a_topic_that_nothing_reads_is_told() -> None:
    driver = TopologyTestDriver(word_counts().build())
    with pytest.raises(StreamsError, match="does not read 'other'; it reads lines"):
        driver.pipe_input("other", None, "x")
    with pytest.raises(StreamsError, match="there is no store 'count'"):
        driver.store("count")


def test_a_topology_is_described_as_text_and_as_a_picture() -> None:
    topology = word_counts().build()
    text = topology.describe()
    assert text.startswith(
        "Topologies:\n   Sub-topology: 0\n    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])\n"
    )
    assert "(stores: [counts])" in text
    assert "Sink: KSTREAM-SINK-0000000006 (topic: word-counts)" in text
    assert topology.svg().startswith("<svg ")


def test_the_examples_do_what_their_tests_say(tmp_path) -> None:
    folder = Path(__file__).parents[3] / "examples" / "streams"
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
