"""What may not be seen of options: neither on a page nor in the audit."""

from __future__ import annotations

from barnabas.console.audit import shortened
from barnabas.console.pages.connectors.forms import HIDDEN, without_secrets


def test_passwords_are_hidden_on_pages_and_references_are_not() -> None:
    config = {
        "connection.url": "jdbc:postgresql://db/shop",
        "connection.uri": "mongodb://anna:secret@db",
        "connection.password": "secret",
        "sasl.jaas.config": "secret",
        "own": "secret",
        "ssl.key.password": "${file:/run/secrets:key}",
    }
    shown = without_secrets(config, frozenset({"own"}))
    assert shown["connection.url"] == config["connection.url"]
    assert shown["ssl.key.password"] == config["ssl.key.password"]
    assert {name for name, value in shown.items() if value == HIDDEN} == {
        "connection.uri", "connection.password", "sasl.jaas.config", "own",
    }  # fmt: skip


def test_the_audit_has_no_passwords() -> None:
    assert shortened("o.connection.password", "secret") == "(hidden)"
    assert "secret" not in shortened("more", "x=1\nsasl.jaas.config=secret\nkey.password = secret")
    assert "secret" not in shortened(
        "config", {"a": {"db.password": "secret"}, "uri": "mongodb://anna:secret@db"}
    )
    assert shortened("client", "security.protocol=SSL") == "security.protocol=SSL"
