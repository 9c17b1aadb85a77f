"""Links to a source that asks for TLS and a login: the password is kept encrypted, and a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.admin import Admin, ResourceError
from barnabas.cli.main import run as barnabas
from barnabas.cores.links import LinkSpec
from barnabas.testing import Broker
from tests.security.certificates import Certificates
from tests.security.sasl_broker import PASSWORD
from tests.support.cluster import until


def reached_by(certificates: Certificates, where: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "bootstrap.servers": where,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": password,
        "ssl.truststore.location": certificates.file("ca.pem"),
        "ssl.truststore.type": "PEM",
    }


def test_a_link_logs_in_with_tls_and_its_password_stays_hidden(
    secured: Broker, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free, both = (f"127.0.0.1:{secured.ports[name]}" for name in ("FREE", "BOTH"))
    admin = AdminClient({"bootstrap.servers": free})
    admin.create_topics([NewTopic("hidden", 1, 1, config={"retention.ms": "-1"})])["hidden"].result(60)
    producer = Producer({"bootstrap.servers": free})
    producer.produce("hidden", "secret", partition=0)
    assert producer.flush(60) == 0
    right = reached_by(certificates, both)
    spec = LinkSpec("safe", right, "hidden", interval_ms=100)
    with (
        Broker() as bare,
        Admin(bare.bootstrap) as library,
        pytest.raises(ResourceError, match=r"password\.encoder\.secret"),
    ):
        library.links.create("safe", spec.texts())
    with Broker({"password.encoder.secret": "a secret of the brokers"}) as target:
        file = tmp_path / "source.properties"
        for password, code in (("wrong", 1), (PASSWORD.replace("\\", "\\\\"), 0)):
            lines = reached_by(certificates, both, password)
            file.write_text(
                "".join(f"{name}={text}\n" for name, text in lines.items() if name != "bootstrap.servers")
            )
            words = ("--from", both, "--topics", "hidden", "--config", str(file), "--interval-ms", "100")
            assert barnabas(["mirror", "link", "create", "safe", *words, "-b", target.bootstrap]) == code
        printed = capsys.readouterr()
        assert "sasl.password" in printed.err
        with Admin(target.bootstrap) as library:
            until(lambda: library.links.describe()[0].partitions[0].log_end == 1, "the record")
            wrong = LinkSpec("other", reached_by(certificates, both, "wrong"), "nothing", interval_ms=100)
            library.links.create("other", wrong.texts())
            until(lambda: "alice" in library.links.describe(["other"])[0].unreachable, "the refusal")
            assert PASSWORD not in str(library.links.describe())
        assert barnabas(["mirror", "link", "status", "--json", "-b", target.bootstrap]) == 0
        assert PASSWORD not in capsys.readouterr().out
