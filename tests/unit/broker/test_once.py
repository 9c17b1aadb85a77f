"""Topics and partitions that are named more than once."""

from __future__ import annotations

from barnabas.broker.api.handlers.once import by_topic, once


def test_the_last_row_counts_where_the_first_stood() -> None:
    assert once(["a1", "b1", "a2"], lambda row: row[0]) == ["a2", "b1"]


def test_rows_of_one_topic_are_put_together() -> None:
    rows = [("t", [1, 2]), ("u", []), ("t", [2, 3])]
    rows_by_topic = by_topic(rows, lambda row: row[0], lambda row: row[1], lambda index: index)
    assert rows_by_topic == [(("t", [1, 2]), [1, 2, 3]), (("u", []), [])]
