"""mypy knows the types of keys and values after each step: `make check` reads this file, where `assert_type` says them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_type

from barnabas.streams import App, KStream, KTable, StreamsBuilder, TopologyTestDriver, Windowed, tumbling


@dataclass
class Order:
    customer: str
    amount: float


def test_types_are_known_after_each_step() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines")
    assert_type(lines, KStream[str, str])
    assert_type(lines.map_values(lambda v: len(v)), KStream[str, int])
    assert_type(lines.map_values(lambda k, v: (k, v)), KStream[str, tuple[str, str]])
    assert_type(lines.flat_map_values(lambda v: v.split()), KStream[str, str])
    assert_type(lines.map(lambda k, v: (len(v), v)), KStream[int, str])
    assert_type(lines.filter(lambda v: bool(v)), KStream[str, str])
    assert_type(lines.select_key(lambda k, v: len(v)), KStream[int, str])
    assert_type(lines.group_by(lambda k, v: v).count(), KTable[str, int])
    orders = builder.stream("orders", value=Order)
    assert_type(orders, KStream[str, Order])
    amounts = orders.map_values(lambda order: order.amount)
    assert_type(amounts, KStream[str, float])
    assert_type(amounts.group_by_key().reduce(lambda a, b: a + b), KTable[str, float])
    windows = orders.group_by(lambda order: order.customer).windowed_by(tumbling("1 hour"))
    assert_type(windows.count(), KTable[Windowed[str], int])
    assert_type(windows.count().to_stream(), KStream[Windowed[str], int])
    names = builder.table("names", key=int, value=str)
    assert_type(names, KTable[int, str])
    assert_type(names.map_values(lambda v: len(v)), KTable[int, int])


def test_functions_become_steps() -> None:
    app = App("shop")

    @app.table("people", value=dict)
    def names(person: dict[str, str]) -> str | None:
        return person.get("name")

    @app.stream("orders", value=Order)
    def large(order: Order) -> Order | None:
        return order if order.amount > 100 else None

    @app.stream("lines")
    def words(line: str) -> Iterator[str]:
        yield from line.split()

    large.join(names, lambda order, name: f"{name} {order.amount}").to("large-orders")
    words.to("words")
    with TopologyTestDriver(app.topology) as driver:
        driver.pipe_input("people", "a", {"name": "Ann"})
        for amount in (99.0, 101.0):
            driver.pipe_input("orders", "a", Order("a", amount))
        driver.pipe_input("lines", None, "to be")
        assert driver.read_values("large-orders") == ["Ann 101.0"]
        assert driver.read_values("words") == ["to", "be"]
