"""To ClickHouse over HTTP, as JSONEachRow.

    clickhouse: {url: "http://user:password@host:8123", table: db.access}

Each insert carries a deduplication token made of query, batch and part: a repeated batch is dropped by tables that
keep such tokens (Replicated engines, or `non_replicated_deduplication_window`); by others it is stored again, unless
the engine itself replaces rows (ReplacingMergeTree). A row that does not fit the table goes to the dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from barnabas.pipelines.delivery.base import DeliveryError, Refused, TargetKind, Task, documents
from barnabas.pipelines.delivery.http import Answer, HttpTarget, short_text
from barnabas.pipelines.document import Item
from barnabas.pipelines.errors import PipelineError

NAMES: Final = ("url", "table", "ca_file", "deadline_s")
_BAD_ROW: Final = re.compile(r"\(at row (\d+)\)")
"""ClickHouse names the row (from 1) of the text at which it gave up."""
REFUSED_ROWS_MAX: Final = 1000


def _check(item: Item) -> Mapping[str, Any]:
    found = item.mapping(NAMES, required=("url", "table"))
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", found["table"].text()):
        found["table"].fail(f"table is {found['table'].text()!r}, not a name like access or db.access")
    options: dict[str, Any] = {name: entry.text() for name, entry in found.items()}
    options["deadline_s"] = found["deadline_s"].number() if "deadline_s" in found else 120
    try:
        HttpTarget(options["url"], ca_file=options.get("ca_file"))
    except (DeliveryError, OSError) as error:
        found["url"].fail(str(error))
    return options


def _server(options: Mapping[str, Any], deadline_s: float | None = None) -> HttpTarget:
    deadline = options["deadline_s"] if deadline_s is None else deadline_s
    return HttpTarget(options["url"], deadline_s=deadline, ca_file=options.get("ca_file"))


def _reach(options: Mapping[str, Any]) -> None:
    server = _server(options, deadline_s=2)
    try:
        answer = server.request("GET", "/?query=" + quote(f"DESCRIBE TABLE {options['table']}"))
    except DeliveryError as error:
        raise PipelineError(f"clickhouse: {error}") from error
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
            yield batch, _insert(server, options["table"], f"{task.label}-{number}", documents(batch))
    finally:
        server.close()


def _insert(server: HttpTarget, table: str, token: str, rows: list[str]) -> list[Refused]:
    """Inserts all rows at once; a row that ClickHouse cannot read is taken out and the rest sent again."""
    left = list(enumerate(rows))
    refused: list[Refused] = []
    while left:
        answer = _send(server, table, token, [row for _, row in left])
        if answer.status == 200:
            return refused
        bad = _BAD_ROW.search(answer.body.decode("utf-8", "replace"))
        if bad is None or not 1 <= int(bad[1]) <= len(left) or len(refused) >= REFUSED_ROWS_MAX:
            raise DeliveryError(f"{server.name} answered {answer.status}: {short_text(answer.body)}")
        place, _ = left.pop(int(bad[1]) - 1)
        refused.append(Refused(place, short_text(answer.body)))
        token += "."  # another set of rows is another insert
    return refused


def _send(server: HttpTarget, table: str, token: str, rows: list[str]) -> Answer:
    settings = {
        "query": f"INSERT INTO {table} FORMAT JSONEachRow",
        "insert_deduplication_token": token,
        "input_format_skip_unknown_fields": "1",
        "date_time_input_format": "best_effort",
    }
    path = "/?" + "&".join(f"{name}={quote(value)}" for name, value in settings.items())
    return server.request("POST", path, ("\n".join(rows) + "\n").encode())


CLICKHOUSE: Final = TargetKind(
    "clickhouse",
    "a repeated batch is dropped by tables that keep deduplication tokens, and stored again by others",
    _check,
    _reach,
    deliver=_deliver,
)
