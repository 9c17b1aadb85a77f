"""Logins on SASL listeners of one broker, by clients that somebody else wrote and by raw bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.security.certificates import Certificates
from tests.security.issuer import Issuer
from tests.security.sasl_broker import librdkafka
from tests.security.test_tls import PATIENCE_S, round_trip

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_tls(
    certificates: Certificates, issuer: Issuer, address: Callable[[str], str], mechanism: str
) -> None:
    """test_matrix.py has the same through TLS, with other clients as well."""
    token = (lambda: issuer.token(kid="ec")) if mechanism == "OAUTHBEARER" else None
    options = librdkafka(certificates, address("SASL"), mechanism, token)
    round_trip(options, f"librdkafka-{mechanism}", [b"%d" % number for number in range(200)])


def test_a_function_decides(
    certificates: Certificates, address: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    options = librdkafka(certificates, address("CALLED"), "PLAIN")
    options |= {"sasl.username": "called-bob", "sasl.password": "bob-dellac"}
    round_trip(options, "called", [b"x"])
    refused(options | {"sasl.password": "wrong"})
    refused(options | {"sasl.username": "breaks"})
    assert not any(
        "wrong" in str(vars(record)) or "bob-dellac" in str(vars(record)) for record in caplog.records
    )


def refused(options: dict[str, Any]) -> str:
    """What the client is told."""
    errors: list[KafkaError] = []
    admin = AdminClient({**options, "error_cb": errors.append})
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        admin.poll(0.1)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            return next(
                str(error).partition(" (after")[0]
                for error in errors
                if error.code() == KafkaError._AUTHENTICATION
            )
    raise AssertionError(f"no refusal of the login: {errors}")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    certificates: Certificates, address: Callable[[str], str], mechanism: str
) -> None:
    options = librdkafka(certificates, address("SASL"), mechanism)
    wrong = refused(options | {"sasl.password": "wrong"})
    unknown = refused(options | {"sasl.username": "nobody"})
    assert wrong.replace("alice", "nobody") == unknown
    assert "Authentication failed" in wrong


def test_scram_credentials_are_described_and_deleted(
    certificates: Certificates, address: Callable[[str], str]
) -> None:
    admin = AdminClient({"bootstrap.servers": address("FREE")})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    change = UserScramCredentialUpsertion("carol/ö", info, b"her password")
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(PATIENCE_S)
    described = admin.describe_user_scram_credentials(["carol/ö"])["carol/ö"].result(PATIENCE_S)
    assert [(row.mechanism, row.iterations) for row in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    options = librdkafka(certificates, address("SASL"), "SCRAM-SHA-256")
    options |= {"sasl.username": "carol/ö", "sasl.password": "her password"}
    round_trip(options, "carol", [b"x"])
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("carol/ö", ScramMechanism.SCRAM_SHA_256)]
    ).values():
        future.result(PATIENCE_S)
    refused(options)
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["carol/ö"])["carol/ö"].result(PATIENCE_S)
    low = UserScramCredentialUpsertion("dave", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), b"p")
    with pytest.raises(KafkaException, match="Too few iterations"):
        next(iter(admin.alter_user_scram_credentials([low]).values())).result(PATIENCE_S)


def test_a_login_is_renewed_while_records_flow(
    certificates: Certificates, address: Callable[[str], str]
) -> None:
    """KIP-368: librdkafka renews on its connections; nothing is lost and nobody notices."""
    options = librdkafka(certificates, address("SHORT"), "SCRAM-SHA-256")
    producer = Producer({**options, "linger.ms": 0})
    consumer = Consumer({**options, "group.id": "renewed", "auto.offset.reset": "earliest"})
    consumer.subscribe(["renewed"])
    end_s, sent, received = time.monotonic() + 4.5, 0, 0
    failed: list[object] = []
    while time.monotonic() < end_s:
        producer.produce(
            "renewed", b"%d" % sent, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        sent += 1
        producer.poll(0.01)
        received += sum(message.error() is None for message in consumer.consume(100, 0.02))
    assert producer.flush(PATIENCE_S) == 0
    deadline_s = time.monotonic() + PATIENCE_S
    while received < sent and time.monotonic() < deadline_s:
        received += sum(message.error() is None for message in consumer.consume(100, 0.5))
    consumer.close()
    assert (received, failed) == (sent, [])
