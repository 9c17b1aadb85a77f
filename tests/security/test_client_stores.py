"""Client tools with Java's stores, as the property files of security lessons name them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.admin import Admin
from barnabas.client.errors import AuthenticationFailed, ClientError
from barnabas.testing import Broker
from tests.clients.cli_support import Cli
from tests.security.certificates import PASSWORD, Certificates
from tests.support import preloaded
from tests.support.examples import one_in

LESSON = """\
# As in a lesson: Java's names, continued lines, settings that mean nothing here.
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="alice" \\
  password="alice-secret";
ssl.enabled.protocols=TLSv1.2,TLSv1.3
ssl.protocol=TLSv1.3
ssl.endpoint.identification.algorithm=
"""


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[Broker]:
    listeners = ("SSL", "LOGIN")
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in listeners),
        "listener.security.protocol.map": "SSL:SSL,LOGIN:SASL_SSL",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.location": certificates.file("server-store.pem"),
        "ssl.truststore.location": certificates.file("ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="admin" password="a" user_alice="alice-secret";'
        ),
    }
    with Broker(options) as broker:
        yield broker


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    """Writes a client's property file; its path."""

    def write(text: str) -> str:
        (tmp_path / "client.properties").write_text(text)
        return str(tmp_path / "client.properties")

    return write


def run(cli: Cli, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return preloaded.run(
        cli.command(*words), input=stdin, capture_output=True, env=cli.environment(), timeout=120
    )


def stores(certificates: Certificates, kind: str) -> dict[str, str]:
    """The options of a client with stores of one kind, which wants a certificate of its own."""
    if kind == "PEM":
        return {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": certificates.file("ca.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates.file("client-store.pem"),
        }
    if kind == "TEXT":
        read = certificates.folder
        return {
            "ssl.truststore.certificates": (read / "ca.pem").read_text().replace("\n", " "),
            "ssl.keystore.key": (read / "client-key.pem").read_text().replace("\n", " "),
            "ssl.keystore.certificate.chain": (read / "client.pem").read_text().replace("\n", " "),
        }
    return {
        "ssl.truststore.type": kind,
        "ssl.truststore.location": certificates.keytool_trust(kind)
        if not Path(certificates.file(f"trust.{kind.lower()}")).exists()
        else certificates.file(f"trust.{kind.lower()}"),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.type": kind,
        "ssl.keystore.location": certificates.keytool_keys("client", kind),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM", "TEXT"])
def test_every_tool_reads_the_stores(
    secured: Broker, certificates: Certificates, written: Callable[[str], str], kind: str
) -> None:
    cli, topic = Cli(f"127.0.0.1:{secured.ports['SSL']}"), f"stored-{kind.lower()}"
    options = {"security.protocol": "SSL", **stores(certificates, kind)}
    file = written("".join(f"{name}={value}\n" for name, value in options.items()))
    to = ("--bootstrap-server", cli.bootstrap)
    extra = [word for name, value in options.items() for word in ("-X", f"{name}={value}")]
    for words, stdin, wanted in (
        (("kafka", "topics", *to, "--command-config", file, "--create", "--topic", topic), b"", b"Created"),
        (("kafka", "console-producer", *to, "--producer.config", file, "--topic", topic), b"one\n", b""),
        (("produce", topic, *extra), b"two\n", b""),
        (
            ("kafka", "console-consumer", *to, "--consumer.config", file, "--topic", topic, "--from-beginning",
             "--max-messages", "2"), b"", b"one\ntwo\n",
        ),
        (("consume", topic, "-e", *extra), b"", b"one\ntwo\n"),
        (("topic", "list", "--names", *extra), b"", topic.encode()),
        (("topic", "offsets", topic, *extra), b"", topic.encode()),
    ):  # fmt: skip
        done = run(cli, *words, stdin=stdin)
        assert done.returncode == 0, (words, done.stderr)
        assert wanted in done.stdout, (words, done.stdout)


def test_a_lesson_with_a_login(
    secured: Broker, certificates: Certificates, written: Callable[[str], str]
) -> None:
    cli = Cli(f"localhost:{secured.ports['LOGIN']}")
    trust = {n: v for n, v in stores(certificates, "JKS").items() if "truststore" in n}
    trust.pop("ssl.truststore.password")  # Java opens a JKS truststore without it, too
    file = written(LESSON + "".join(f"{name}={value}\n" for name, value in trust.items()))
    to = ("--bootstrap-server", cli.bootstrap)
    done = run(cli, "kafka", "topics", *to, "--command-config", file, "--create", "--topic", "lesson")
    assert done.returncode == 0, done.stderr
    done = run(
        cli, "kafka", "console-producer", *to, "--producer.config", file, "--topic", "lesson", stdin=b"x\n"
    )
    assert done.returncode == 0, done.stderr


NOT_TRUSTED = (
    "the certificate of 127.0.0.1:{port} is not trusted: self-signed certificate in certificate chain; "
)


REFUSALS = [
    (
        {"ssl.truststore.location": "stranger-ca.pem"},
        NOT_TRUSTED + "the authority that issued it must be in ssl.truststore.location={file}",
    ),
    ({"ssl.truststore.location": None}, "neither is set"),
    ({"ssl.truststore.location": "nowhere.jks"}, "ssl.truststore.location: cannot read {file}: No such file"),
    (
        {"ssl.keystore.location": "stranger-store.pem"},
        "not take the certificate in ssl.keystore.location={file}",
    ),
    ({"ssl.keystore.location": None}, "does it ask for a certificate (ssl.keystore.location"),
]


@pytest.mark.parametrize(("changed", "reason"), REFUSALS)
@pytest.mark.parametrize(
    "tool", one_in(2, ["topics", "console-producer", "console-consumer", "produce", "topic"])
)
def test_a_refused_handshake_names_the_file(
    secured: Broker,
    certificates: Certificates,
    written: Callable[[str], str],
    tool: str,
    changed: dict[str, str | None],
    reason: str,
) -> None:
    """At once: librdkafka would try again for as long as a request may take."""
    port = secured.ports["SSL"]
    cli, file = Cli(f"127.0.0.1:{port}"), ""
    options = {"security.protocol": "SSL", **stores(certificates, "PEM")}
    for name, value in changed.items():
        del options[name]
        if value is not None:
            file = options[name] = certificates.file(value)
    named = written("".join(f"{name}={value}\n" for name, value in options.items()))
    to = ("--bootstrap-server", cli.bootstrap)
    extra = [word for name, value in options.items() for word in ("-X", f"{name}={value}")]
    words = {
        "topics": ("kafka", "topics", *to, "--command-config", named, "--list"),
        "console-producer": ("kafka", "console-producer", *to, "--producer.config", named, "--topic", "t"),
        "console-consumer": ("kafka", "console-consumer", *to, "--consumer.config", named, "--topic", "t"),
        "produce": ("produce", "t", *extra),
        "topic": ("topic", "list", *extra),
    }[tool]
    done = preloaded.run(cli.command(*words), capture_output=True, env=cli.environment(), timeout=30)
    assert done.returncode == 1
    assert not done.stdout
    assert reason.format(port=port, file=file) in done.stderr.decode()


def test_a_broker_whose_certificate_is_revoked(secured: Broker, certificates: Certificates) -> None:
    """ssl.crl.location, for the connections of our own client as for librdkafka's."""
    options = {
        "bootstrap.servers": f"127.0.0.1:{secured.ports['SSL']}",
        "security.protocol": "SSL",
        "ssl.ca.location": certificates.file("ca.pem"),
        "ssl.certificate.location": certificates.file("client.pem"),
        "ssl.key.location": certificates.file("client-key.pem"),
        "ssl.crl.location": certificates.file("crl.pem"),
    }
    crl = Path(options["ssl.crl.location"])
    with (
        Admin(options) as admin,
        pytest.raises(ClientError, match="no list of revoked certificates can be read"),
    ):
        admin.topics.list()
    crl.write_bytes(certificates.authority.revoke([Path(certificates.file("revoked.pem")).read_bytes()]))
    with Admin(options) as admin:
        admin.topics.list()
    crl.write_bytes(certificates.authority.revoke([Path(certificates.file("server.pem")).read_bytes()]))
    with Admin(options) as admin, pytest.raises(AuthenticationFailed, match="certificate revoked"):
        admin.topics.list()
