"""Connected clients, the metrics that they push, and delegation tokens."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from barnabas.admin import Admin
from barnabas.testing import Broker
from tests.console.conftest import WAIT_S, ConsoleProcess, running
from tests.security.test_admin_library import OPTIONS


def await_value(read: Callable[[], Any]) -> Any:
    limit_s = time.monotonic() + WAIT_S
    while not (outcome := read()):
        assert time.monotonic() < limit_s
        time.sleep(0.1)
    return outcome


def test_clients_are_listed_and_their_metrics_shown(console: ConsoleProcess) -> None:
    name = f"pushes-{uuid.uuid4().hex[:8]}"
    assert "is missing" in console.send("/clients/metrics", {"name": name}, 400).text
    console.send(
        "/clients/metrics",
        {"name": name, "metrics": "*", "interval.ms": "1000", "match": f"client_id={name}"},
    )
    [mine] = [row for row in console.data("/clients/metrics")["subscriptions"] if row["name"] == name]
    assert {option["name"]: option["value"] for option in mine["options"]}["match"] == f"client_id={name}"
    producer = Producer(
        {"bootstrap.servers": console.bootstrap, "client.id": name, "enable.metrics.push": True}
    )
    producer.produce(f"{name}-topic", b"x")
    producer.flush()
    [client] = await_value(
        lambda: [row for row in console.data("/clients", q=name)["clients"] if row["software"]][:1]
    )
    assert client["software"].startswith("confluent-kafka-python")
    assert name in console.page("/clients", q=name)

    def pushed() -> list[dict[str, Any]]:
        return [
            row
            for row in console.data("/clients/metrics")["instances"]
            if row["client_id"] == name and row["metrics"]
        ]

    [instance] = await_value(pushed)
    path = f"/clients/metrics/{instance['instance']}"
    metrics = console.data(path, q="producer.connection.creation.total")["metrics"]
    assert [metric["name"].endswith("producer.connection.creation.total") for metric in metrics] == [True]
    assert "producer.connection.creation.total" in console.page(path)
    console.page("/clients/metrics/unknown", 404)
    console.send("/clients/metrics/remove", {"name": name})
    assert [row for row in console.data("/clients/metrics")["subscriptions"] if row["name"] == name] == []


def test_tokens_are_shown_without_their_secrets_renewed_and_ended(tmp_path: Path) -> None:
    with Broker(OPTIONS) as broker:
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "admin-pw",
        }
        with Admin({"bootstrap.servers": broker.bootstrap, **login}) as admin:
            token = admin.tokens.create()
        words = [word for name, value in login.items() for word in ("-X", f"{name}={value}")]
        with running(broker.bootstrap, tmp_path / "log", *words) as console:
            [row] = console.data("/access/tokens")["tokens"]
            assert (row["id"], row["owner"]) == (token.id, "User:admin")
            page = console.page("/access/tokens")
            assert token.id in page
            assert base64.b64encode(token.hmac).decode() not in page
            until = console.post("/access/tokens/renew", {"id": token.id, "hours": 1})["expires_ms"]
            assert until != row["expires_ms"]
            console.send("/access/tokens/expire", {"id": token.id})
            assert console.data("/access/tokens")["tokens"] == []
            console.send("/access/tokens/expire", {"id": token.id}, 404)


def test_without_logins_there_are_no_tokens(console: ConsoleProcess) -> None:
    assert "Tokens cannot be listed" in console.page("/access/tokens")
