"""Nothing secret leaves in a bundle."""

from __future__ import annotations

import pytest

from barnabas.terminal.redaction import (
    HIDDEN,
    is_secret,
    text_without_secrets,
    without_secrets,
    words_without_secrets,
)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password", "ssl.key.password", "sasl.jaas.config", "sasl.password", "password.encoder.secret",
        "listener.name.external.plain.sasl.jaas.config", "sasl.oauthbearer.token", "delegation.token.secret.key",
        "ssl.keystore.key", "BARNABAS_PASSWORD", "AWS_SECRET_ACCESS_KEY", "basic.auth.credentials.source", "api_key",
        "basic.auth.user.info",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["log.dirs", "group.id", "key.serializer", "num.partitions", "sasl.mechanism"]
)
def test_names_of_what_is_no_secret(name: str) -> None:
    assert not is_secret(name)


def test_property_files() -> None:
    text = (
        "log.dirs=/var/lib/barnabas\n"
        "# ssl.keystore.password=old-hidden\n"
        "ssl.keystore.password = new-hidden\n"
        "listener.name.a.plain.sasl.jaas.config: org.apache... required \\\n"
        '    password="continued-hidden";\n'
        "schema.registry.url=https://me:url-hidden@registry:8081\n"
        "node.id=1\n"
    )
    shown = text_without_secrets(text)
    assert "hidden\n" not in shown.replace(HIDDEN, "")
    assert "-hidden" not in shown
    assert "log.dirs=/var/lib/barnabas\n" in shown
    assert "https://me:[hidden]@registry:8081" in shown
    assert shown.endswith("node.id=1\n")


def test_command_lines_and_options() -> None:
    words = ["barnabas", "start", "-o", "ssl.key.password=x1", "--token", "x2", "-o", "log.dirs=/d"]
    assert words_without_secrets(words) == [
        "barnabas", "start", "-o", f"ssl.key.password={HIDDEN}", "--token", HIDDEN, "-o", "log.dirs=/d",
    ]  # fmt: skip
    assert without_secrets({"sasl.password": "x", "sasl.username": "me", "a": None}) == {
        "sasl.password": HIDDEN,
        "sasl.username": "me",
        "a": None,
    }
