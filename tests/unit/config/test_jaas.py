"""JAAS files as Kafka's and ZooKeeper's documentation writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.options import jaas_values
from barnabas.config import jaas

BOOK = """
// Kafka broker
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="kafka-123"
    user_admin="kafka-123"  user_stocks="a \\"quoted\\" {word};";
};
/* Zookeeper client
   authentication */
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username=kafka
    # a comment of another kind
    password="x=y";
    com.sun.security.auth.module.Krb5LoginModule optional useKeyTab=true;
}
"""


def test_sections_modules_and_options() -> None:
    sections = jaas.parse(BOOK)
    assert list(sections) == ["KafkaServer", "Client"]
    (server,) = sections["KafkaServer"]
    assert server.module == "PlainLoginModule"
    assert server.options["user_stocks"] == 'a "quoted" {word};'
    digest, kerberos = sections["Client"]
    assert digest == ("DigestLoginModule", {"username": "kafka", "password": "x=y"})
    assert kerberos == ("Krb5LoginModule", {"useKeyTab": "true"})
    assert jaas.parse("") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Client", "line 1: { is missing"),
        ("Client {\n  M required\n  a=1\n}", "line 4: an option is missing"),
        ("Client {\n  M required a;\n};", "line 2: = is missing"),
        ("Client {\n  M;\n};", "line 2: required, requisite, sufficient or optional is missing"),
        ('Client {\n  M required a="1;\n};', "line 2: a quotation mark has no end"),
        ("Client {\n  M required a=1;\n", "line 3: a login module is missing"),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(text)
    with pytest.raises(jaas.JaasError) as refused:
        jaas.read_section(str(path), "Client")
    assert str(refused.value) == f"{path}, {why}"


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    java_options = jaas.java_properties({"KAFKA_OPTS": "-Xmx1g '-Da.b=with space' -Dempty -Dx=1=2"})
    assert java_options == {"a.b": "with space", "empty": "", "x": "1=2"}
    assert jaas.java_properties({}) == {}
    with pytest.raises(jaas.JaasError, match="KAFKA_OPTS cannot be read"):
        jaas.java_properties({"KAFKA_OPTS": "'open"})
    with pytest.raises(jaas.JaasError, match="cannot be read: No such file"):
        jaas.read_section(str(tmp_path / "none"), "Client")


def test_one_login_of_an_option() -> None:
    text = """org.apache.kafka.common.security.plain.PlainLoginModule required
    username='alice' password="a \\"b\\" c=d;" user_o'brien=x#y;"""
    assert jaas.parse_login(text) == (
        "PlainLoginModule",
        {"username": "alice", "password": 'a "b" c=d;', "user_o'brien": "x#y"},
    )
    # Clients take it without the semicolon, too.
    assert jaas_values(text.removesuffix(";"))["password"] == 'a "b" c=d;'
    assert jaas_values(" ") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("secret", "required, requisite, sufficient or optional is missing"),
        ("M secret a=1;", "required, requisite, sufficient or optional is missing"),
        ("M required secret;", "= is missing"),
        ("M required a=1; N required secret=1;", "something after its first semicolon"),
        ('M required a="secret;', "a quotation mark has no end"),
    ],
)
def test_an_error_does_not_quote_the_text(text: str, why: str) -> None:
    with pytest.raises(jaas.JaasError, match=why) as refused:
        jaas.parse_login(text)
    assert "secret" not in str(refused.value)
    with pytest.raises(ClientError, match=r"^sasl\.jaas\.config is not of the form .*") as error:
        jaas_values(text)
    assert "secret" not in str(error.value)
