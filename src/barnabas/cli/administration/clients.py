"""`barnabas clients`: who is connected, which versions they use, whose records are converted, and the metrics that
clients push.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from barnabas.admin import ClientInstance, ConnectedClient, Conversion
from barnabas.terminal.administering import administer
from barnabas.terminal.errors import EXIT_OK, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import print_json, print_table, size_text
from barnabas.terminal.runner import example, new_app

app = new_app(
    "Show connected clients, their versions, whose records are converted, and the metrics they push."
)


@app.command(
    epilog=example(
        "barnabas clients",
        "barnabas clients --json | jq '.clients[].client_id'",
        "barnabas config set metrics mine 'metrics=*' interval.ms=10000",
        "barnabas clients --metrics org.apache.kafka.producer",
    )
)
def clients(
    metrics: Annotated[
        bool,
        typer.Option("-m", "--metrics", help="Show what clients have pushed of their own metrics instead."),
    ] = False,
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="[PREFIX]",
            help="With --metrics: how their names begin. Default: all.",
            show_default=False,
        ),
    ] = "",
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Show connected clients, their versions, and whose records are converted.

    Clients older than 2019 do not name their software. The broker converts records for clients older than 0.11, which
    takes time; the second table names these clients.

    Metrics are pushed by clients that a subscription matches (`barnabas config set metrics`).
    """
    if metrics:
        return _show_metrics(prefix, bootstrap, properties, json)
    if prefix:
        raise UsageError(f"{prefix!r} is the beginning of metrics' names, and needs --metrics")
    shown: dict[str, list[dict[str, Any]]] = {"clients": [], "conversions": []}
    with administer(bootstrap, properties) as admin:
        for broker, answer in admin.inspection.clients().require().items():
            shown["clients"] += [client_row(broker, client) for client in answer.clients]
            shown["conversions"] += [conversion_row(broker, conversion) for conversion in answer.conversions]
    shown["clients"].sort(key=lambda client: (client["client_id"] or "", client["broker"], client["address"]))
    if json:
        print_json(shown)
    else:
        _print_tables(shown)
    return EXIT_OK


def _print_tables(shown: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    print_table(
        (
            "CLIENT ID",
            "SOFTWARE",
            "ADDRESS",
            "PRINCIPAL",
            "BROKER",
            "SECONDS",
            "RECEIVED",
            "SENT",
            "API VERSIONS",
        ),
        [
            (
                row["client_id"],
                row["software"] or None,
                row["address"],
                row["principal"],
                row["broker"],
                row["connected_ms"] // 1000,
                None if row["received_bytes"] is None else size_text(row["received_bytes"]),
                None if row["sent_bytes"] is None else size_text(row["sent_bytes"]),
                " ".join(f"{name}:{version}" for name, version in row["apis"].items()),
            )
            for row in shown["clients"]
        ],
    )
    if shown["conversions"]:
        print()
        print_table(
            ("CONVERTED FOR", "SOFTWARE", "DIRECTION", "BROKER", "REQUESTS", "RECORDS", "SIZE"),
            [
                (
                    row["client_id"], row["software"] or None, row["direction"], row["broker"], row["requests"],
                    row["records"], size_text(row["bytes"]),
                )
                for row in shown["conversions"]
            ],
        )  # fmt: skip


def _show_metrics(prefix: str, bootstrap: str | None, properties: list[str] | None, json: bool) -> int:
    client_rows: list[dict[str, Any]] = []
    with administer(bootstrap, properties) as admin:
        for broker, instances in admin.inspection.client_metrics(prefix).require().items():
            client_rows += [instance_row(broker, client) for client in instances]
    client_rows.sort(key=lambda client: (client["client_id"], client["instance_id"], client["broker"]))
    if json:
        print_json(client_rows)
        return EXIT_OK
    print_table(
        ("CLIENT ID", "SOFTWARE", "METRIC", "LABELS", "VALUE"),
        [
            (
                item["client_id"],
                item["software"] or None,
                metric["name"],
                ",".join(f"{key}={value}" for key, value in metric["labels"].items()) or None,
                f"{metric['value']:.6g}",
            )
            for item in client_rows
            for metric in item["metrics"]
        ],
    )
    return EXIT_OK


def instance_row(broker: int, one: ClientInstance) -> dict[str, Any]:
    """What a client has pushed, as a JSON object."""
    return {
        "instance_id": str(one.instance_id),
        "client_id": one.client_id,
        "software": one.software,
        "address": one.address,
        "broker": broker,
        "received_ms": one.received_ms,
        "pushes": one.pushes,
        "metrics": [
            {"name": metric.name, "labels": dict(metric.labels), "value": metric.value}
            for metric in one.metrics
        ],
    }


def client_row(broker: int, one: ConnectedClient) -> dict[str, Any]:
    """A connected client, as a JSON object."""
    return {
        "client_id": one.client_id,
        "software": one.software,
        "address": one.address,
        "listener": one.listener,
        "principal": one.principal,
        "broker": broker,
        "connected_ms": one.connected_ms,
        "idle_ms": one.idle_ms,
        "received_bytes": one.received_bytes,
        "sent_bytes": one.sent_bytes,
        "apis": dict(one.apis),
    }


def conversion_row(broker: int, one: Conversion) -> dict[str, Any]:
    """The records converted for a client, as a JSON object."""
    return {
        "client_id": one.client_id,
        "software": one.software,
        "direction": one.direction,
        "broker": broker,
        "requests": one.requests,
        "records": one.records,
        "bytes": one.size_bytes,
    }
