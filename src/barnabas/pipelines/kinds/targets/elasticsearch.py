"""Writes to Elasticsearch and OpenSearch through their bulk API.

    elasticsearch: {url: "http://user:password@host:9200", index: access, id: request_id}

A document's id is `id` (Spark SQL over the fields), else the record's place: the beginning of the topic's id, the topic,
the partition and the offset. A repeated batch overwrites what it wrote. A document that the server refuses (a field of the
wrong type) goes to the dead letters with the server's reason; overload (429, 502, 503, 504) is retried with growing
pauses. With an `id`, a record that stands for a delete deletes its document.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Group, Number, Text
from barnabas.pipelines.kinds.targets.base import (
    DeliveryError,
    Refused,
    TargetKind,
    Task,
    deletions,
    documents,
    identities,
)
from barnabas.pipelines.kinds.targets.http import BACKOFF_MAX_S, BACKOFF_S, RETRIED, HttpTarget, short_text
from barnabas.pipelines.plan.errors import PipelineError, TargetAway

BULK_BYTES_MAX: Final = 5 << 20
SHAPE: Final = Group(
    {
        "url": Text("like http://user:password@host:9200", hides="passwords"),
        "index": Text("the index"),
        "id": Text("Spark SQL for the document's id; default the record's place"),
        "api_key": Text("instead of user and password", hides="all"),
        "ca_file": Text("certificates to trust (PEM)"),
        "deadline_s": Number("how long requests to a busy server are retried, in seconds; default 120"),
    },
    "an index of Elasticsearch or OpenSearch",
    required=("url", "index"),
)


def _check(item: Item) -> Mapping[str, Any]:
    entries = SHAPE.open(item)
    index = entries["index"].text()
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,254}", index):
        entries["index"].fail(
            f"index is {index!r}; an index name is lower case letters, digits, dots, dashes and underscores"
        )
    options: dict[str, Any] = {name: entry.text() for name, entry in entries.items()}
    options["deadline_s"] = entries["deadline_s"].number() if "deadline_s" in entries else 120
    _server_or_fail(options, entries["url"])
    return options


def _server_or_fail(options: Mapping[str, Any], item: Item) -> None:
    try:
        server_of(options)
    except (DeliveryError, OSError) as error:
        item.fail(str(error))


def server_of(options: Mapping[str, Any], deadline_s: float | None = None) -> HttpTarget:
    headers = {"Authorization": f"ApiKey {options['api_key']}"} if "api_key" in options else {}
    return HttpTarget(
        options["url"],
        headers=headers,
        deadline_s=options["deadline_s"] if deadline_s is None else deadline_s,
        ca_file=options.get("ca_file"),
    )


def _reach(options: Mapping[str, Any]) -> None:
    server = server_of(options, deadline_s=2)
    try:
        answer = server.request("GET", "/")
    except DeliveryError as error:
        raise TargetAway(f"elasticsearch: {error}") from error
    finally:
        server.close()
    if answer.status != 200:
        raise PipelineError(
            f"elasticsearch: {server.name} answered {answer.status} to GET /: {short_text(answer.body)}"
        )


def _deliver(
    options: Mapping[str, Any], task: Task, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, list[Refused]]]:
    server = server_of(options)
    try:
        for batch in batches:
            yield batch, send_batch(server, options, batch)
    finally:
        server.close()


def send_batch(server: HttpTarget, options: Mapping[str, Any], batch: pa.RecordBatch) -> list[Refused]:
    lines: dict[int, bytes] = {}
    refused: list[Refused] = []
    rows = zip(identities(batch), documents(batch), deletions(batch), strict=True)
    for row, (identity, document, gone) in enumerate(rows):
        named = {"_index": options["index"], **({} if identity is None else {"_id": identity})}
        if gone and identity is None:
            refused.append(Refused(row, f"a delete needs the document's id, and {options['id']} is null"))
        elif gone:
            lines[row] = f"{json.dumps({'delete': named})}\n".encode()
        else:
            lines[row] = f"{json.dumps({'index': named})}\n{document}\n".encode()
    waiting: dict[int, bytes] = {}
    size = 0
    for row, line in lines.items():
        if waiting and size + len(line) > BULK_BYTES_MAX:
            refused += _send(server, waiting, options["deadline_s"])
            waiting, size = {}, 0
        waiting[row] = line
        size += len(line)
    return refused + (_send(server, waiting, options["deadline_s"]) if waiting else [])


def _send(server: HttpTarget, waiting: dict[int, bytes], deadline_s: float) -> list[Refused]:
    """Sends documents in bulk; those that the server was too busy for are sent again. Raises DeliveryError."""
    refused: list[Refused] = []
    give_up = time.monotonic() + deadline_s
    pause_s = BACKOFF_S
    while waiting:
        body = b"".join(waiting.values())
        answer = server.request("POST", "/_bulk", body, {"Content-Type": "application/x-ndjson"})
        if answer.status != 200:
            raise DeliveryError(
                f"{server.name} answered {answer.status} to a bulk: {short_text(answer.body)}"
            )
        again: dict[int, bytes] = {}
        for (row, line), item in zip(list(waiting.items()), json.loads(answer.body)["items"], strict=True):
            ((action, result),) = item.items()
            if result["status"] in RETRIED:
                again[row] = line
            elif action == "delete" and result["status"] == 404 and "error" not in result:
                pass  # there is nothing to delete any more
            elif result["status"] >= 400:
                refused.append(Refused(row, _reason(result)))
        if again and time.monotonic() + pause_s > give_up:
            raise DeliveryError(
                f"{server.name} is too busy: {len(again)} documents were not accepted before the deadline"
            )
        waiting = again
        if waiting:
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, BACKOFF_MAX_S)
    return refused


def _reason(result: Mapping[str, Any]) -> str:
    error = result.get("error")
    if not isinstance(error, dict):
        return f"status {result['status']}: {error}"
    cause = (error.get("caused_by") or {}).get("reason")
    return f"{error.get('type')}: {error.get('reason')}" + (f" ({cause})" if cause else "")


ELASTICSEARCH: Final = TargetKind(
    "elasticsearch",
    "a repeated batch overwrites its documents: ids are the same",
    SHAPE,
    _check,
    _reach,
    deliver=_deliver,
    by_place=lambda options: "id" not in options,
    deletes=lambda options: "id" in options,
)
