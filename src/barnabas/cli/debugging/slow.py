"""`barnabas debug slow`: the last requests that took long, and where their time went."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from barnabas.cli.debugging.debug import app
from barnabas.terminal.beans import DEFAULT_URL, ask
from barnabas.terminal.errors import EXIT_OK
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.runner import example

PARTS: Final = {
    "QUEUE": "queue_ms",
    "LOCAL": "local_ms",
    "REMOTE": "remote_ms",
    "THROTTLE": "throttle_ms",
    "RESPONSE": "response_queue_ms",
    "SEND": "response_send_ms",
}
"""The parts of a request's time, as Kafka's RequestMetrics have them, in milliseconds."""


@app.command(
    epilog=example("barnabas debug slow", "barnabas debug slow --client billing -u http://broker2:9644")
)
def slow(
    client: Annotated[
        str | None,
        typer.Option("-c", "--client", metavar="ID", help="Only of this client.id.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("-t", "--topic", metavar="TOPIC", help="Only about this topic.", show_default=False),
    ] = None,
    url: Annotated[
        str,
        typer.Option(
            "-u", "--url", envvar="BARNABAS_METRICS", metavar="URL", help="The broker's metrics service."
        ),
    ] = DEFAULT_URL,
    json: AsJson = False,
) -> int:
    """Show the last slow requests of a broker, the newest first, with the parts of their time in milliseconds.

    The broker must show its metrics: `barnabas start --with metrics`.
    """
    requests = [
        row
        for row in ask(url, "slow")["requests"]
        if client in (None, row["client_id"]) and (topic is None or topic in row["topics"])
    ]
    if json:
        print_json(requests)
    else:
        print_table(
            ("TIME", "REQUEST", "CLIENT", "FROM", "TOPICS", "TOTAL", *PARTS),
            [_cells(row) for row in requests],
        )
    return EXIT_OK


def _cells(row: dict[str, Any]) -> list[Any]:
    when = time.strftime("%H:%M:%S", time.localtime(row["when_s"]))
    times = [round(row[name], 1) for name in ("total_ms", *PARTS.values())]
    return [when, row["request"], row["client_id"], row["peer"], row["topics"], *times]
