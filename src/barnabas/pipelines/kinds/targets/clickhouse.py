"""Writes to ClickHouse over HTTP, as JSONEachRow.

    clickhouse: {url: "http://user:password@host:8123", table: db.access}

Each insert has a deduplication token made of query, batch, part and the ids of its records: a repeated batch is dropped
by tables that keep such tokens (Replicated engines, or `non_replicated_deduplication_window`); by others it is stored
again, unless the engine itself replaces rows (ReplacingMergeTree). A row that ClickHouse cannot read, or that violates
a constraint of the table, goes to the dead letters. Inserts are synchronous, whatever the server's default, so every
insert that the server acknowledges is stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from barnabas.http_client import Answer
from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Group, Number, Text
from barnabas.pipelines.kinds.targets.base import (
    DeliveryError,
    Refused,
    TargetKind,
    Task,
    documents,
    identities,
)
from barnabas.pipelines.kinds.targets.http import HttpTarget, short_text
from barnabas.pipelines.plan.errors import PipelineError, TargetAway

SHAPE: Final = Group(
    {
        "url": Text("like http://user:password@host:8123", hides="passwords"),
        "table": Text("a table, or database.table"),
        "ca_file": Text("certificates to trust (PEM)"),
        "deadline_s": Number("how long requests to a busy server are retried, in seconds; default 120"),
    },
    "a table of ClickHouse",
    required=("url", "table"),
)
_UNREADABLE: Final = re.compile(r"\(at row (\d+)\)")
_VIOLATED: Final = re.compile(r"is violated at row (\d+)\.")
REFUSED_ROWS_MAX: Final = 1000


def _check(item: Item) -> Mapping[str, Any]:
    entries = SHAPE.open(item)
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", entries["table"].text()):
        entries["table"].fail(f"table is {entries['table'].text()!r}, not a name like access or db.access")
    options: dict[str, Any] = {name: entry.text() for name, entry in entries.items()}
    options["deadline_s"] = entries["deadline_s"].number() if "deadline_s" in entries else 120
    try:
        HttpTarget(options["url"], ca_file=options.get("ca_file"))
    except (DeliveryError, OSError) as error:
        entries["url"].fail(str(error))
    return options


def _server(options: Mapping[str, Any], deadline_s: float | None = None) -> HttpTarget:
    deadline = options["deadline_s"] if deadline_s is None else deadline_s
    return HttpTarget(options["url"], deadline_s=deadline, ca_file=options.get("ca_file"))


def _reach(options: Mapping[str, Any]) -> None:
    server = _server(options, deadline_s=2)
    try:
        answer = server.request("GET", "/?query=" + quote(f"DESCRIBE TABLE {options['table']}"))
    except DeliveryError as error:
        raise TargetAway(f"clickhouse: {error}") from error
    finally:
        server.close()
    if answer.status != 200:
        raise PipelineError(f"clickhouse: {server.name} answered: {short_text(answer.body)}")


def _deliver(
    options: Mapping[str, Any], task: Task, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, list[Refused]]]:
    server = _server(options)
    try:
        for number, batch in enumerate(batches):
            rows = list(zip(identities(batch), documents(batch), strict=True))
            yield batch, _insert(server, options["table"], f"{task.label}-{number}", rows)
    finally:
        server.close()


def _insert(server: HttpTarget, table: str, label: str, rows: list[tuple[str | None, str]]) -> list[Refused]:
    """Inserts all rows (identity, document) at once; without a row that ClickHouse refuses, the rest is sent again."""
    left = list(enumerate(rows))
    refused: list[Refused] = []
    while left:
        token = _token(label, [identity or "" for _, (identity, _) in left])
        answer = _send(server, table, token, [document for _, (_, document) in left])
        if answer.status == 200:
            return refused
        bad = _bad_row(answer.body.decode("utf-8", "replace"))
        if bad is None or not 1 <= bad <= len(left) or len(refused) >= REFUSED_ROWS_MAX:
            raise DeliveryError(f"{server.name} answered {answer.status}: {short_text(answer.body)}")
        place, _ = left.pop(bad - 1)
        refused.append(Refused(place, short_text(answer.body)))
    return refused


def _token(label: str, ids: list[str]) -> str:
    """Identifies an insert by its label and its records, in any order. Other records under the same label (rows split
    into batches differently, refused ones left out) get another token, and are never dropped as duplicates."""
    digest = hashlib.blake2b("\0".join(sorted(ids)).encode(), digest_size=12)
    return f"{label}-{digest.hexdigest()}"


def _bad_row(text: str) -> int | None:
    """The row (from 1) that an error is about; None when it is about the whole insert.

    The text quotes rows, which may contain anything, before the number of an unreadable row, but after that of a row
    that violates a constraint.
    """
    violated = _VIOLATED.search(text)
    if text.startswith("Code: 469.") and violated:
        return int(violated[1])
    unreadable = _UNREADABLE.findall(text)
    return int(unreadable[-1]) if unreadable else None


def _send(server: HttpTarget, table: str, token: str, rows: list[str]) -> Answer:
    settings = {
        "query": f"INSERT INTO {table} FORMAT JSONEachRow",
        "insert_deduplication_token": token,
        "async_insert": "0",
        "input_format_skip_unknown_fields": "1",
        "date_time_input_format": "best_effort",
    }
    path = "/?" + "&".join(f"{name}={quote(value)}" for name, value in settings.items())
    return server.request("POST", path, ("\n".join(rows) + "\n").encode())


CLICKHOUSE: Final = TargetKind(
    "clickhouse",
    "a repeated batch is dropped by tables that keep deduplication tokens, and stored again by others",
    SHAPE,
    _check,
    _reach,
    deliver=_deliver,
)
