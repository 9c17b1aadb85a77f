"""Names of options after -X: a misspelt one is refused by every command, with the right one; librdkafka's are all known."""

from __future__ import annotations

import re
from pathlib import Path

import confluent_kafka
import pytest
from tests.unit.cli.test_help_style import ALL

from barnabas.cli.main import run
from barnabas.client.option_names import LIBRDKAFKA, is_known, nearest
from barnabas.client.options import ClientOptions
from barnabas.client.tls import JAVA_ONLY, STORE_NAMES, for_librdkafka
from barnabas.terminal.properties import librdkafka_knows

WITH_PROPERTIES = [command.path for command in ALL if any("-X" in option.names for option in command.options)]
NOT_FOR_USERS = {
    "enabled_events", "enable_sasl_queue", "internal.termination.signal", "opaque", "default_topic_conf", "interceptors",
    "msg_order_cmp", "ssl.ca.certificate.stores",
}  # fmt: skip
"""Options that only a program can set, or only on Windows."""


def test_many_commands_take_properties() -> None:
    assert {"topic list", "acl add", "produce", "group lag", "rest start"} <= set(WITH_PROPERTIES)


@pytest.mark.parametrize("command", WITH_PROPERTIES)
def test_every_command_refuses_a_misspelt_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "-X", "queue.bufering.max.ms=5"]) == 2
    assert capsys.readouterr().err == (
        f"barnabas {command}: -X queue.bufering.max.ms: there is no such option; did you mean queue.buffering.max.ms?\n"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sasl.mecanism", "sasl.mechanism"), ("security.protocoll", "security.protocol"),
        ("ssl.trustore.location", "ssl.truststore.location"), ("Client.Id", "client.id"), ("zzz", None),
        ("sasl.oauthbearer.client.secrets", "sasl.oauthbearer.client.secret"), ("error_cb", None), ("ssl_ca", None),
    ],
)  # fmt: skip
def test_the_name_that_is_meant(name: str, meant: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert nearest(name) == meant
    assert run(["topic", "list", "-X", f"{name}=x"]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"barnabas topic list: -X {name}: there is no such option; ")
    assert complaint.count("\n") == 1
    assert (f"did you mean {meant}?" if meant else "CONFIGURATION.md") in complaint


def test_a_profile_may_not_misspell_either(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "barnabas" / "profiles.toml"
    file.parent.mkdir()
    file.write_text('[far]\nproperties = { "sasl.usernam" = "me" }\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BARNABAS_PROFILE", "far")
    assert run(["topic", "list"]) == 2
    assert (
        "profile far: sasl.usernam: there is no such option; did you mean sasl.username?"
        in capsys.readouterr().err
    )


def test_the_names_are_those_of_the_installed_librdkafka() -> None:
    libraries = [
        file
        for file in Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka*/**/librdkafka*")
        if ".so" in file.name or file.suffix == ".dylib"
    ]
    if not libraries:
        pytest.skip("confluent-kafka brings no library of its own here")
    words = set()
    for file in libraries:
        for word in re.findall(rb"[a-z][a-z0-9_.]{2,59}(?=\0)", file.read_bytes()):
            # Linkers keep one text where another ends with it.
            words |= {
                word[i:].decode() for i in range(len(word)) if i == 0 or word[i - 1 : i] in (b".", b"_")
            }
    there = {word for word in words if librdkafka_knows(word) and not word.endswith("_cb")} - NOT_FOR_USERS
    assert {word for word in there if not is_known(word)} == set()
    if confluent_kafka.libversion() >= ("2.16",):
        assert {name for name in LIBRDKAFKA if not librdkafka_knows(name)} == STORE_NAMES & LIBRDKAFKA - there


def test_what_librdkafka_knows_is_accepted_for_administration() -> None:
    values = dict.fromkeys(LIBRDKAFKA, "1") | {"bootstrap.servers": "a:1", "security.protocol": "PLAINTEXT"}
    assert ClientOptions.from_kafka(values).bootstrap == (("a", 1),)


def test_names_of_java_are_not_handed_to_librdkafka() -> None:
    assert for_librdkafka(dict.fromkeys(STORE_NAMES | JAVA_ONLY, "x")).keys() <= LIBRDKAFKA
