"""Apache Kafka with listeners that ask for passwords and certificates, for tests of the client's side."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bench.brokers import ApacheKafka, Unavailable, free_port

from tests.clients.foreign import locked, need

PASSWORD = 'correct horse; "battery" = staple'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Certificates:
    """An authority, a certificate for 127.0.0.1 and one for a client, as PEM; another authority that signed none."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._openssl = folder, need("openssl")
        for name in ("ca", "stranger"):
            self._run(
                "req",
                "-x509",
                *self._key(name),
                "-subj",
                f"/CN={name}",
                "-days",
                "2",
                "-out",
                self.file(name),
            )
        for name, extra in (
            ("server", "subjectAltName=IP:127.0.0.1"),
            ("client", "subjectAltName=DNS:client"),
        ):
            request = self.file(f"{name}-request")
            self._run("req", *self._key(name), "-subj", f"/CN={name}", "-out", request)
            (folder / "extensions").write_text(extra)
            self._run("x509", "-req", "-in", request, "-CA", self.file("ca"), "-CAkey", self.file("ca-key"),
                      "-CAcreateserial", "-days", "2", "-extfile", str(folder / "extensions"),
                      "-out", self.file(name))  # fmt: skip
            both = (folder / f"{name}-key.pem").read_text() + (folder / f"{name}.pem").read_text()
            (folder / f"{name}-store.pem").write_text(both)

    def _key(self, name: str) -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        return [*curve, "-keyout", self.file(f"{name}-key")]

    def file(self, name: str) -> str:
        return str(self.folder / f"{name}.pem")

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._openssl, *arguments], check=True, capture_output=True)


class SecuredKafka(ApacheKafka):
    """Listeners: plain (for setting up), SASL_SSL, and SSL that asks for a client's certificate."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.sasl_port, self.tls_port = free_port(), free_port()
        folder = directory / "certificates"
        folder.mkdir(parents=True)
        self.certificates = Certificates(folder)

    def _properties(self) -> str:
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        plain = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password="x" user_alice="{quoted}";'
        )
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        listeners = {"PLAINTEXT": self.port, "SASL_SSL": self.sasl_port, "SSL": self.tls_port}
        lines = []
        for line in super()._properties().splitlines():
            name, _, value = line.partition("=")
            if name in ("listeners", "advertised.listeners"):
                more = [
                    f"{kind}://127.0.0.1:{port}" for kind, port in listeners.items() if kind != "PLAINTEXT"
                ]
                line = f"{name}={','.join([value, *more])}"
            lines.append(line)
        security = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificates.file("server-store"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.file("ca"),
            "listener.name.ssl.ssl.client.auth": "required",
            "log.retention.ms": "-1",  # the records of tests carry old times
        }
        escaped = {name: value.replace("\\", "\\\\") for name, value in security.items()}
        return "\n".join([*lines, *(f"{name}={value}" for name, value in escaped.items()), ""])

    def command(self) -> list[str]:
        """For a short life: the quick compiler only and the small collector."""
        return [*self._java("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"), "kafka.Kafka",
                str(self.directory / "kafka.properties")]  # fmt: skip

    def prepare(self) -> None:
        with locked("maven"):
            super().prepare()

    def start(self) -> None:
        super().start()
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        wanted = [
            UserScramCredentialUpsertion("alice", ScramCredentialInfo(kind, 4096), PASSWORD.encode())
            for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in wanted:
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(30)


def secured_kafka(folder: Path) -> SecuredKafka:
    """A running one; skips the test where Apache Kafka cannot be had."""
    try:
        kafka_started = SecuredKafka(folder)
        kafka_started.start()
    except Unavailable as reason:
        pytest.skip(str(reason))
    return kafka_started
