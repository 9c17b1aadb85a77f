"""Functions that are called for many records at once, handlers of failures, and serdes of a registry."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from barnabas.schemas.framing import Schema, frame
from barnabas.streams import App, StreamsBuilder, StreamsError, TopologyTestDriver, avro, protobuf, registered
from barnabas.streams.ahead import Awaited, Batched


class Service:
    """What async functions ask: counts the calls in progress."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[tuple[str, int]] = []

    async def ask(self, key: str, value: int) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.order.append((key, value))
        self.now -= 1
        if value < 0:
            raise ValueError("it is negative")
        return f"{key}{value}"


def test_calls_in_flight_are_bounded_and_those_of_a_key_in_order() -> None:
    service = Service()
    pairs = [(f"k{number % 5}", number) for number in range(50)] + [("k0", -1)]
    outcomes = Awaited(service.ask, in_flight=3).ahead(pairs)
    assert [outcome.value for outcome in outcomes[:-1]] == [f"{key}{value}" for key, value in pairs[:-1]]
    assert str(outcomes[-1].error) == "it is negative"
    assert service.most == 3
    for key in ("k0", "k4"):
        assert [one for one in service.order if one[0] == key] == [one for one in pairs if one[0] == key]


def test_async_functions_in_a_topology() -> None:
    async def named(value: str) -> str:
        await asyncio.sleep(0)
        return value.upper() if value != "bad" else str(1 // 0)

    app = App("names")

    @app.stream("lines")
    async def upper(value: str) -> str | None:
        return None if value == "none" else await named(value)

    upper.to("names")
    with TopologyTestDriver(app.build()) as driver:
        for line in ("ada", "none", "bad", "eve"):
            driver.pipe_input("lines", "k", line)
        assert driver.read_values("names") == ["ADA", "EVE"]
        assert [letter.value for letter in driver.dead_letters] == [b"bad"]
    with pytest.raises(StreamsError, match="peek takes no async function"):
        app.stream("more").peek(named)


def doubled(table: pa.Table) -> pa.Table:
    if pc.any(pc.equal(table["n"], 13)).as_py():
        raise ValueError("13 is unlucky")
    return pa.table({"twice": pc.multiply(table["n"], 2), "key": table["_key"]})


def test_a_batch_that_fails_fails_for_the_bad_records_only() -> None:
    pairs = [(f"k{number}", {"n": number}) for number in range(20)] + [("k", None)]
    outcomes = Batched(doubled, size=8).ahead(pairs)
    assert [outcome.value for outcome in outcomes[:2]] == [
        {"twice": 0, "key": "k0"},
        {"twice": 2, "key": "k1"},
    ]
    assert [number for number, outcome in enumerate(outcomes) if outcome.error is not None] == [13]
    assert outcomes[20].value is None


def test_batches_of_other_libraries() -> None:
    pytest.importorskip("pandas")
    builder = StreamsBuilder()
    stream = builder.stream("numbers", value=int)
    stream.map_batches(lambda frame: frame["value"] + 1, of="pandas").to("one more")
    stream.map_batches(lambda table: table.append_column("n", table["value"])).to("rows")
    stream.map_batches(lambda table: table.slice(1)).to("short")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("numbers", "k", 1)
        assert driver.read_values("one more") == [2]
        assert driver.read_values("rows") == [{"value": 1, "n": 1}]
        assert driver.dead_letters[0].reason.startswith(
            "StreamsError: the function returned 0 rows for 1 records"
        )
    with pytest.raises(StreamsError, match="of='arrow'"):
        stream.map_batches(len, of="spark")


def test_batches_of_polars() -> None:
    polars = pytest.importorskip("polars")
    outcomes = Batched(lambda frame: frame.select(n=polars.col("n") + 1), of="polars").ahead(
        [("k", {"n": 1})]
    )
    assert [outcome.value for outcome in outcomes] == [{"n": 2}]


def test_handlers_choose_what_becomes_of_a_failure() -> None:
    seen: list[Any] = []

    def choose(failure: Any) -> str:
        seen.append((failure.kind, failure.topic, str(failure.error)))
        return "skip" if failure.value == b"0" else "dead_letter"

    app = App("handled", on_unreadable="skip", on_failed=choose)
    counts = app.stream("in", value=int).map_values(lambda v: 1 // v)
    counts.to("out", value="integer")
    with TopologyTestDriver(app.build()) as driver:
        for text in (b"no", b"0", b"1"):
            driver.pipe_input("in", "k", text)
        assert driver.read_values("out") == [1]
        assert driver.dead_letters == []
    assert [(kind, topic) for kind, topic, _ in seen] == [("failed", "in")]
    with pytest.raises(StreamsError, match="on_failed is 'drop'"):
        App("handled", on_failed="drop")  # type: ignore[arg-type]


@dataclass
class Order:
    """An order."""

    id: int
    note: str | None
    at: datetime


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


class Known:
    """A registry with a schema of each kind."""

    schemas = (
        Schema(0, "AVRO", json.dumps(AVRO)),
        Schema(1, "PROTOBUF", 'syntax = "proto3"; message Word { string text = 1; }'),
    )

    def by_id(self, number: int) -> Schema:
        return self.schemas[number]

    def newest(self, subject: str) -> Schema:
        return self.schemas[subject == "words-value"]


def test_values_with_schemas_of_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "_registry", lambda url: Known())
    builder = StreamsBuilder()
    orders = builder.stream("in", value=avro("http://registry:1", Order))
    orders.map_values(lambda order: Order(order.id + 1, None, order.at)).to(
        "orders", value=avro("http://registry:1", Order)
    )
    orders.map_values(lambda order: {"text": order.note}).to("words", value=protobuf("http://registry:1"))
    at = datetime(2026, 1, 31, tzinfo=UTC)
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("in", "k", Order(1, "paid", at))
        assert driver.read_values("orders") == [Order(2, None, at)]
        assert driver.read_values("words") == [{"text": "paid"}]
        driver.pipe_input("in", "k", frame(1, b"\0"))
        driver.pipe_input("in", "k", b"{}")
        reasons = [letter.reason for letter in driver.dead_letters]
    assert "schema 1 is PROTOBUF, not AVRO" in reasons[0]
    assert "do not begin with the id of a schema" in reasons[1]
