"""Log search: what queries mean, the index of words, tables by day and hour, patterns."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cli.log_search.watching import saved_searches
from barnabas.logs.patterns import Patterns
from barnabas.logs.query import BadQuery, parse
from barnabas.logs.rows import Row, row_of
from barnabas.logs.searching import Search, coarser, step_for
from barnabas.monitor.alerts.rules import parse_rules
from barnabas.terminal.errors import UsageError

pa = pytest.importorskip("pyarrow")
deltalake = pytest.importorskip("deltalake")

from barnabas.logs.index import BLOCK_ROWS, build, index_path, index_texts, words_of  # noqa: E402
from barnabas.logs.tables import LogTable, normal  # noqa: E402
from barnabas.logs.words import Words  # noqa: E402

HOUR = 3_600_000
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


def row(message: str, level: str = "", at: int = 0, **more: str) -> Row:
    return Row(
        BEGIN + at, level, message, more.get("host", "h1"), more.get("path", ""), more.get("fields", "")
    )


ROWS = [
    row("connection timeout for user=anna", "ERROR", 1),
    row("timeouts are rare", "INFO", 2, host="h2"),
    row("retry after timeout, user: bob", "ERROR", 3),
    row("Timeout of 10.0.0.1:9092", "WARN", 4, fields='{"user":"anna","trace":{"id":"ab12"}}'),
    row("größer als 100%_sicher\n at a.B.c(D.java:1)", "", 5, path="/var/log/a.log"),
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("timeout", [0, 2, 3]),
        ("timeout -retry", [0, 3]),
        ("timeout -retry user:anna", [0, 3]),
        ("timeout*", [0, 1, 2, 3]),
        ('"timeout for"', [0]),
        ("10.0.0.1", [3]),
        ("level:error", [0, 2]),
        ("level:error OR host:h2", [0, 1, 2]),
        ("(rare OR retry) timeouts", [1]),
        ("NOT timeout", [1, 4]),
        ("id:ab12", [3]),
        ("host:h*", [0, 1, 2, 3, 4]),
        ("größer", [4]),
        ("level = 'ERROR' AND message LIKE '%timeout%'", [0, 2]),
        ("level = 'error' and message like '%for%'", [0]),
        ("message LIKE '%imeou%' AND NOT level IN ('ERROR', 'INFO')", [3]),
        ("message ILIKE 'TIMEOUT%'", [1, 3]),
        ("message LIKE '%java%'", [4]),
        ("user = 'bob' OR path LIKE '/var/%'", [2, 4]),
        ("level IS NULL", [4]),
        ("time >= '2026-01-01T00:00:00.003Z' AND level != 'ERROR'", [3, 4]),
        ("time BETWEEN '2026-01-01T00:00:00.001Z' AND '2026-01-01T00:00:00.002Z'", [0, 1]),
    ],
)
def test_queries_mean_the_same_for_rows_and_for_tables(query: str, expected: list[int]) -> None:
    node = parse(query)
    assert [number for number, one in enumerate(ROWS) if node.matches(one)] == expected
    columns = {name: [getattr(one, name) or None for one in ROWS] for name in Row._fields}
    columns["time"] = pa.array([one.time for one in ROWS], pa.timestamp("ms", tz="UTC"))
    table = normal(pa.table(columns), {*Row._fields})
    assert [number for number, hit in enumerate(node.mask(table).to_pylist()) if hit] == expected


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("(a", "not closed"),
        ("a)", "too much"),
        ('"a', "quotation mark"),
        ("OR", "nothing to search for"),
        ("level = ERROR", "single quotes: 'ERROR'"),
        ("'a' = level", "no field"),
        ("level = 'a' AND", "not a condition in SQL"),
        ("time > 'soon'", "no time"),
        ("bytes > 10", "no column"),
        ("time LIKE '2026%'", "LIKE is for"),
        ("level = 'a'; DROP TABLE x", "SQL"),
    ],
)
def test_wrong_queries_are_explained(query: str, what: str) -> None:
    with pytest.raises(BadQuery, match=what):
        parse(query)


def test_rows_of_records() -> None:
    event = {
        "@timestamp": "2026-01-01T00:00:01Z",
        "message": "x",
        "log": {"level": "warn"},
        "fields": {"a": 1},
    }
    log_row = row_of(json.dumps(event).encode(), 5, (), 1, 2)
    assert log_row == Row(BEGIN + 1000, "WARN", "x", "", "", '{"fields":{"a":1}}', 1, 2)
    log_row = row_of(b"12:00 ERROR no\r", 7, [("file", b"/a.log"), ("position", b"id:0"), ("env", b"p")])
    assert log_row == Row(7, "ERROR", "12:00 ERROR no", "", "/a.log", '{"env":"p"}')
    assert row_of(b"{no json", 7).message == "{no json"


def lines(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    words = ["alpha", "beta", "gamma", "delta", "größe", "x_1"]
    return [f"{chance.choice(words)} request {chance.getrandbits(32):08x} took {i} ms" for i in range(count)]


def written(folder: Path, hours: int = 3, per_hour: int = 3 * BLOCK_ROWS + 100) -> list[Row]:
    rows = []
    for hour in range(hours):
        texts = lines(per_hour, hour)
        texts[per_hour // 2] += f" needle_{hour}"
        levels = ["ERROR" if i == per_hour - 1 else "INFO" for i in range(per_hour)]
        times = [BEGIN + hour * HOUR + i * 1000 for i in range(per_hour)]
        offsets = [hour * per_hour + i for i in range(per_hour)]
        table = pa.table(
            {
                "time": pa.array([at * 1000 for at in times], pa.timestamp("us", tz="UTC")),
                "level": levels,
                "message": texts,
                "host": ["h1"] * per_hour,
                "partition": pa.array([0] * per_hour, pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "day": ["2026-01-01"] * per_hour,
                "hour": pa.array([hour] * per_hour, pa.int32()),
            }
        )
        deltalake.write_deltalake(str(folder), table, mode="append", partition_by=["day", "hour"])
        rows += [
            Row(at, level, text, "h1", "", "", 0, offset)
            for at, level, text, offset in zip(times, levels, texts, offsets, strict=True)
        ]
    return rows


def test_an_index_changes_the_cost_and_not_the_answer(tmp_path: Path) -> None:
    rows = written(tmp_path)
    queries = [
        "needle_1",
        "needle_*",
        "größe",
        "level:error",
        "alpha level:error",
        "message LIKE '%edle_2%'",
        "nowhere",
    ]
    queries += ["alpha -request", "gamma needle_0 OR level:error"]
    for indexed in (False, True):
        if indexed:
            assert len([*LogTable(tmp_path).build_indexes()]) == 3
            assert [*LogTable(tmp_path).build_indexes()] == []
        for query in queries:
            node = parse(query)
            expected = [one for one in reversed(rows) if node.matches(one)]
            table = LogTable(tmp_path)
            assert [*Search(node, None, table).rows(None)] == expected, query
            assert sum(table.histogram(node, None, None, 1000).values()) == len(expected)
            if indexed and query == "needle_1":
                assert (table.looked.files, table.looked.files_read) == (6, 2)
    assert LogTable(tmp_path).offsets() == {0: len(rows)}


def test_hours_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    rows = written(tmp_path, per_hour=10)
    table = LogTable(tmp_path)
    rows_found = [*Search(parse("request"), None, table, BEGIN + HOUR, BEGIN + 2 * HOUR).rows(None)]
    assert rows_found == rows[10:20][::-1]
    assert table.looked.files == 1
    assert [*Search(parse("request"), None, table).rows(3)] == rows[:-4:-1]


def test_a_damaged_index_is_no_index(tmp_path: Path) -> None:
    written(tmp_path, hours=1, per_hour=10)
    (file,) = LogTable(tmp_path).files()
    assert build(file.path) == index_path(file.path).stat().st_size
    index_path(file.path).write_bytes(b"PAR1 nonsense")
    assert len([*Search(parse("needle_0"), None, LogTable(tmp_path)).rows(None)]) == 1


def test_steps_of_histograms() -> None:
    assert (step_for(60_000), step_for(7 * 24 * HOUR)) == (1000, 10_800_000)
    counts = Counter({BEGIN: 1, BEGIN + 1000: 2, BEGIN + 24 * HOUR: 3})
    merged, step = coarser(counts, 1000)
    assert step == 1_800_000
    assert merged == {BEGIN: 3, BEGIN + 24 * HOUR: 3}


def test_saved_searches_count_lines_in_a_window() -> None:
    file = parse_rules(
        "notify: {log: {kind: topic, topic: alerts}}\n"
        "rules: [{name: errors, kind: search, topic: app, query: 'level:error', above: 1, window: 1m}]\n"
    )
    (search,) = saved_searches(file)
    assert search.findings(0) == []
    for second in (0, 30, 40):
        search.note(row("ERROR of disk", "ERROR"), second)
        search.note(row("fine", "INFO"), second)
    (finding,) = search.findings(45)
    assert (finding.value, "ERROR of disk" in finding.text) == (3, True)
    assert [one.value for one in search.findings(61)] == [2]
    assert search.findings(95) == []
    wrong = parse_rules(
        "notify: {log: {kind: topic, topic: alerts}}\n"
        "rules:\n- {name: errors, kind: search, topic: app, query: '('}\n"
    )
    with pytest.raises(UsageError, match="line 3: rule errors: "):
        saved_searches(wrong)


def test_patterns_of_lines() -> None:
    counted = Patterns()
    for i in range(50):
        counted.add(f"user {i} logged in from 10.0.0.{i}", i, "INFO", is_before=i < 10)
        counted.add(f"request {i:032x} took {i} ms at 2026-01-01T00:00:{i % 60:02}Z", i)
    counted.add("disk full on sda", 1)
    counted.add("disk full on sdb", 2)
    common = counted.common()
    assert [(one.text, one.count, one.before) for one in common] == [
        ("request <*> took <*> ms at <*>", 50, 0),
        ("user <*> logged in from <*>", 40, 10),
        ("disk full on <*>", 2, 0),
    ]
    assert (common[2].first, common[2].last) == (1, 2)
    began = time.process_time()
    counted.add("0" * 100_000 + "x" + "a" * 100_000, 0)
    assert time.process_time() - began < 60


def test_histograms_by_level_need_no_rows(tmp_path: Path) -> None:
    rows = written(tmp_path)
    table = LogTable(tmp_path)
    for query in ("", "level:error", "NOT level:error", "level = 'ERROR' OR level = 'INFO'"):
        node, first = parse(query), min(row.time for row in rows)
        for since in (None, first // 60_000 * 60_000 + 600_000, first + 61_234):
            expected = Counter(
                row.time // 120_000 * 120_000
                for row in rows
                if node.matches(row) and (since is None or row.time >= since)
            )
            assert table.histogram(node, since, None, 120_000) == expected  # by reading
    [*table.build_indexes()]
    for query in ("", "level:error", "NOT level:error", "level = 'ERROR' OR level = 'INFO'"):
        node = parse(query)
        looked = LogTable(tmp_path)
        expected = Counter(row.time // 120_000 * 120_000 for row in rows if node.matches(row))
        assert looked.histogram(node, None, None, 120_000) == expected
        assert looked.looked.files_read == 0
        since = first // 60_000 * 60_000 + 61_234
        counted = looked.histogram(node, since, None, 120_000)
        assert counted.total() == sum(node.matches(row) and row.time >= since for row in rows)
        assert looked.looked.files_read <= 1  # the hour that the time cuts


@given(st.lists(st.text("aB_9 -=\u00e9\u4e2d\u0130\U0001f600\n", max_size=90), max_size=30))
@settings(max_examples=60, deadline=None)
def test_words_are_those_of_the_texts(texts: list[str]) -> None:
    words, number = Words(64), 3
    array = pa.array(texts, pa.string())
    if array.buffers()[2] is not None:
        index_texts(words, number, array)
    offsets, data = words.texts()
    words_written = pa.StringArray.from_buffers(
        len(words), pa.py_buffer(offsets), pa.py_buffer(data)
    ).to_pylist()
    assert sorted(words_written) == sorted({word[:64] for text in texts for word in words_of(text)})
