"""Random topologies and histories, as lines that this module and tests/pipelines/streams/Generated.java build alike.

A step is `S id operator arguments...`, a record `I topic key value milliseconds`; parts are separated by tabs, null is `-`.
Keys and values are short texts; functions are made of `code`, the sum of a text's characters.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from barnabas.streams import (
    StreamsBuilder,
    TopologyTestDriver,
    Windowed,
    hopping,
    session,
    sliding,
    tumbling,
    until_time_limit,
    until_window_closes,
)

Lines = list[list[str]]
JOINS = ("merge", "stream_table", "tables", "foreign", "streams")
LENGTH_MAX = 24


def code(text: str) -> int:
    return sum(ord(sign) for sign in text)


def short(text: str) -> str:
    return text[-LENGTH_MAX:]


# --- topologies and histories -------------------------------------------------------------------------


def case(seed: int) -> tuple[Lines, Lines]:
    """Steps and records of a seed."""
    chance = random.Random(seed)
    steps: Lines = [["0", "stream", "s"], ["1", "stream", "r"], ["2", "table", "t"], ["3", "table", "u"]]
    kinds = {0: "stream", 1: "stream", 2: "table", 3: "table"}
    roots = {number: {number} for number in kinds}
    for number in range(4, 4 + chance.randrange(1, 6)):
        while True:
            step, kind = _step(chance, kinds)
            above = [int(step[1]), *([int(step[2])] if step[0] in JOINS else [])]
            # What is joined with itself, or with what is made of it, is another matter: see docs/streams.md.
            if len(above) == 1 or not roots[above[0]] & roots[above[1]]:
                break
        steps.append([str(number), *step])
        kinds[number] = kind
        roots[number] = set().union(*(roots[one] for one in above))
    calls = any(step[1] == "count_calls" for step in steps)
    records, at = [], 1_000
    for number in range(chance.randrange(4, 40)):
        at += chance.randrange(12)
        ms = max(0, at - chance.choice((0, 0, 0, chance.randrange(40))))
        # Java's driver has one task with one time for all topics, which calls by the times of records go by.
        topic = "s" if calls else chance.choice("srtu")
        value = (
            "-"
            if chance.random() < (0.2 if topic in "tu" else 0.05)
            else f"{chance.choice('abc')}{number % 7}"
        )
        key = "-" if chance.random() < 0.03 else f"k{chance.randrange(3)}"
        records.append([topic, key, value, str(ms)])
    records += [[topic, "end", "z", str(at + 1_000)] for topic in ("s" if calls else "srtu")]
    return steps, records


def _step(chance: random.Random, kinds: dict[int, str]) -> tuple[list[str], str]:
    def one(kind: str) -> str:
        return str(chance.choice([number for number, kind_of_step in kinds.items() if kind_of_step == kind]))

    def pick(*of: int) -> str:
        return str(chance.choice(of))

    window = [
        *chance.choice(
            (
                ["tumbling", pick(10, 25), "0"],
                ["hopping", "20", pick(5, 8)],
                ["session", pick(6, 15), "0"],
                ["sliding", pick(6, 15, 1100), "0"],  # the last one is longer than the first records' times
            )
        ),
        pick(0, 7, 30),
    ]
    aggregate = chance.choice(("count", "reduce", "aggregate"))
    table = pick(2, 3)  # whose keys are those of topics
    if chance.random() < 0.4 and len([kind for kind in kinds.values() if kind == "table"]) > 2:
        table = one("table")
    streams = [number for number, kind in kinds.items() if kind == "stream"]
    kinds_of = ("inner", "left", "outer")  # whose order differs, see docs/streams.md: nothing reads them
    choices: list[tuple[list[str], str]] = [
        (["filter", one("stream"), pick(2, 3), pick(0, 1)], "stream"),
        (["map_values", one("stream"), chance.choice("xyz")], "stream"),
        (["flat_map_values", one("stream")], "stream"),
        (["select_key", one("stream"), pick(2, 3)], "stream"),
        (["merge", *map(str, chance.sample(streams, 2))], "stream"),
        (["aggregate", one("stream"), aggregate], "table"),
        (["to_table", one("stream")], "table"),
        (["windows", one("stream"), aggregate, *window, chance.choice(("all", "final"))], "stream"),
        (["table_filter", table, pick(2, 3), pick(0, 1)], "table"),
        (["table_map", table, chance.choice("xyz")], "table"),
        (["table_group", table, pick(2, 3), chance.choice(("count", "sums"))], "table"),
        (["limit", table, pick(5, 20)], "stream"),
        (["stream_table", one("stream"), table, chance.choice(("inner", "left"))], "stream"),
        (["tables", table, one("table"), chance.choice(("inner", "left", "outer"))], "table"),
        (["foreign", table, one("table"), chance.choice(("inner", "left"))], "table"),
        (["streams", one("stream"), one("stream"), pick(5, 20), pick(0, 10), chance.choice(kinds_of)], "end"),
        (["count_calls", "0", pick(10, 25)], "stream"),
    ]  # fmt: skip
    return chance.choice(choices)


# --- built --------------------------------------------------------------------------------------------


class Counting:
    """Counts the records of each key in a store, and tells of all by the times of records."""

    store = ""
    every = 0

    def init(self, context: Any) -> None:
        self.context, self.kept = context, context.store(self.store)
        context.schedule(self.every, "stream_time", self.tell)

    def process(self, record: Any) -> None:
        if record.key is not None:
            self.kept.put(record.key, (self.kept.get(record.key) or 0) + 1)

    def tell(self, at: int) -> None:
        for key, count in sorted(self.kept.items()):
            self.context.forward(key, str(count), timestamp=at)


def aggregated(group: Any, how: str, *, merges: bool = False) -> Any:
    if how == "count":
        return group.count()
    if how == "reduce":
        return group.reduce(lambda one, other: short(f"{_plain(one)}+{_plain(other)}"))
    merge = (lambda one, other: short(f"{one}&{other}"),) if merges else ()
    return group.aggregate("", lambda total, value: short(f"{total},{_plain(value)}"), *merge)


def _key(key: Any, value: Any) -> str:
    return f"{key.key}@{key.start}/{key.end}" if isinstance(key, Windowed) else key


def _plain(value: Any) -> str:
    return "-" if value is None else str(value)


def _text(value: Any) -> Any:
    return None if value is None else str(value)


def _joined(one: Any, other: Any) -> str:
    return short(f"({'-' if one is None else one} {'-' if other is None else other})")


def build(steps: Lines, builder: StreamsBuilder | None = None, prefix: str = "") -> StreamsBuilder:
    """The topology of these steps; what step n makes is written to out-n. prefix: of the names of topics and stores."""
    builder = builder or StreamsBuilder()
    built: dict[str, Any] = {}
    for number, operator, *arguments in steps:
        if operator in ("stream", "table"):
            arguments = [prefix + arguments[0]]
        step = built[number] = _built(builder, built, prefix + number, operator, arguments)
        stream = step.to_stream() if hasattr(step, "to_stream") else step
        if int(number) > 3:
            stream.to(f"{prefix}out-{number}")
    return builder


def _built(
    builder: StreamsBuilder, built: dict[str, Any], number: str, operator: str, arguments: list[str]
) -> Any:
    if operator == "stream":
        return builder.stream(arguments[0])
    if operator == "table":
        return builder.table(arguments[0])
    one, *rest = built[arguments[0]], *arguments[1:]
    if operator in ("filter", "table_filter"):
        return one.filter(lambda v: v is None or code(v) % int(rest[0]) != int(rest[1]))
    if operator in ("map_values", "table_map"):
        return one.map_values(lambda v: None if v is None else short(v + rest[0]))
    if operator == "flat_map_values":
        return one.flat_map_values(lambda v: [v, short(f"{v}'")] if v is not None and code(v) % 2 else [])
    if operator == "select_key":
        return one.select_key(lambda k, v: k if v is None else f"n{code(v) % int(rest[0])}")
    if operator == "merge":
        return one.merge(built[rest[0]])
    if operator == "aggregate":
        table = aggregated(one.group_by_key(), rest[0])
        return table.map_values(_text) if rest[0] == "count" else table
    if operator == "to_table":
        return one.to_table()
    if operator == "windows":
        return _windowed(one, *rest)
    if operator == "table_group":
        return _grouped(one, *rest)
    if operator == "limit":
        return one.suppress(until_time_limit(int(rest[0]))).to_stream()
    if operator == "count_calls":
        builder.add_state_store(f"calls-{number}")
        every, store = int(rest[0]), f"calls-{number}"
        own = type("Calls", (Counting,), {"every": every, "store": store})
        return one.process(own, stores=store)
    other, kind = built[rest[0]], rest[-1]
    join = {"inner": one.join, "left": one.left_join, "outer": getattr(one, "outer_join", None)}[kind]
    if operator == "foreign":
        return join(other, _joined, on=lambda v: None if code(v) % 4 == 0 else f"k{code(v) % 3}")
    if operator == "streams":
        return join(other, _joined, within=int(rest[1]), grace=int(rest[2]))
    return join(other, _joined)


def _windowed(stream: Any, how: str, kind: str, size: str, advance: str, grace: str, which: str) -> Any:
    windows = {
        "tumbling": lambda: tumbling(int(size), int(grace)),
        "hopping": lambda: hopping(int(size), int(advance), int(grace)),
        "session": lambda: session(int(size), int(grace)),
        "sliding": lambda: sliding(int(size), int(grace)),
    }[kind]()
    table = aggregated(stream.group_by_key().windowed_by(windows), how, merges=kind == "session")
    if which == "final":
        table = table.suppress(until_window_closes())
    return table.to_stream(_key).map_values(_text)


def _grouped(table: Any, modulus: str, how: str) -> Any:
    groups = table.group_by(lambda k, v: (f"g{code(v) % int(modulus)}", v))
    if how == "count":
        return groups.count().map_values(_text)
    return groups.aggregate(0, lambda n, v: n + code(v), lambda n, v: n - code(v)).map_values(_text)


def told(steps: Lines, records: Lines) -> str:
    """Steps and records as Generated.java reads them."""
    lines = [["S", *step] for step in steps] + [["I", *record] for record in records]
    return "".join("\t".join(line) + "\n" for line in lines) + "END\n"


def alike(steps: Lines, rows: Lines) -> Lines:
    """Rows of topic, key, value and timestamp as they are compared: in order, but for outer joins of streams."""
    loose = {f"out-{step[0]}" for step in steps if step[1] == "streams" and step[-1] != "inner"}
    return sorted(rows, key=lambda row: (row[0], row if row[0] in loose else []))


def played(steps: Lines, records: Lines) -> Iterator[list[str]]:
    """What the driver has written at the end: topic, key, value and timestamp, topic by topic."""
    with TopologyTestDriver(build(steps).build()) as driver:
        for topic, key, value, at in records:
            if topic in driver.topology.topics:
                driver.pipe_input(topic, *(None if x == "-" else x for x in (key, value)), timestamp=int(at))
        assert not driver.dead_letters, driver.dead_letters[0].reason
        for number in range(4, len(steps)):
            for record in driver.read_output(f"out-{number}"):
                key, value = ("-" if x is None else str(x) for x in (record.key, record.value))
                yield [f"out-{number}", key, value, str(record.timestamp)]
