"""A broker whose listeners ask for logins, and how librdkafka logs in to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from barnabas.security.sasl.oauthbearer import UNSECURED
from barnabas.testing import Broker
from tests.security.certificates import Certificates
from tests.security.issuer import Issuer
from tests.security.test_tls import PATIENCE_S

PASSWORD = 'correct horse; "battery" = staple'
QUOTED = PASSWORD.replace('"', '\\"')
PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="x" user_admin="x" user_alice="{QUOTED}";'
)
SCRAM = "SCRAM-SHA-256,SCRAM-SHA-512"

LISTENERS = {
    "FREE": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "CALLED": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT",
    "TRIAL": "SASL_PLAINTEXT",
}  # fmt: skip


@contextmanager
def sasl_broker(certificates: Certificates, issuer: Issuer) -> Iterator[Broker]:
    """A broker with LISTENERS and the user alice."""
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in LISTENERS.items()),
        "ssl.keystore.location": certificates.file("server-store.pem"),
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM},OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.both.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.short.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.short.connections.max.reauth.ms": "1500",
        "listener.name.called.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.called.plain.sasl.server.callback.handler.class": "tests.security.users:check",
        "listener.name.trial.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.trial.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.file}",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "0",
        "sasl.oauthbearer.expected.audience": "kafka,other",
        "sasl.oauthbearer.expected.issuer": "tests",
        "sasl.server.max.receive.size": "65536",
    }
    with Broker(options) as broker:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.ports['FREE']}"})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                "alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(PATIENCE_S)
        yield broker


def librdkafka(
    certificates: Certificates,
    address: str,
    mechanism: str,
    token: Callable[[], str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": address, "security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism,
        "sasl.username": "alice", "sasl.password": PASSWORD, "ssl.ca.location": certificates.file("ca.pem"),
        "log_level": 0, **more,
    }  # fmt: skip
    if token is not None:
        del options["sasl.username"], options["sasl.password"]
        options["oauth_cb"] = lambda _: (token(), time.time() + 600, "alice", {})
    return options
