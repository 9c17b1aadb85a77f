"""Broker options: where the cluster's metadata is stored if the broker does not store it itself."""

from __future__ import annotations

import re
from typing import Final

from barnabas.config.option import Mark, OptionTable

ZOOKEEPER: Final = OptionTable("ZooKeeper")

_CONNECT: Final = re.compile(r"[^\s,/:]+(:\d{1,5})?(,[^\s,/:]+(:\d{1,5})?)*(/[^\s,/]+)*/?")


def connect_string(value: str | None) -> str | None:
    """Checks HOST:PORT,HOST:PORT/CHROOT; returns what is wrong, or None."""
    if value and not _CONNECT.fullmatch(value):
        return "HOST:PORT[,HOST:PORT...][/CHROOT] must be given, for example zoo1:2181,zoo2:2181/kafka"
    return None


def _digest_login(value: str | None) -> str | None:
    if value is not None and not all(value.partition(":")):
        return "USER:PASSWORD must be given"
    return None


ZOOKEEPER_CONNECT: Final = ZOOKEEPER.string_or_null(
    "zookeeper.connect",
    "Stores the cluster's metadata in this ZooKeeper ensemble: HOST:PORT,HOST:PORT and optionally /CHROOT, which is "
    "created if it does not exist. Without it the broker stores the metadata itself, beside its log.",
    check=connect_string,
    mark=Mark.WORKS,
)
ZNODES_SERVE: Final = ZOOKEEPER.string_or_null(
    "znodes.serve",
    "Serves the metadata that this broker stores to other brokers on the machine, at this Unix socket. Barnabas's own "
    "option; `barnabas start --workers` sets it.",
    mark=Mark.WORKS,
)
ZNODES_CONNECT: Final = ZOOKEEPER.string_or_null(
    "znodes.connect",
    "Uses the metadata that another broker serves at this Unix socket. Barnabas's own option; `barnabas start --workers` "
    "sets it.",
    mark=Mark.WORKS,
)
ZOOKEEPER_SESSION_TIMEOUT_MS: Final = ZOOKEEPER.integer(
    "zookeeper.session.timeout.ms",
    18_000,
    "Silence after which ZooKeeper considers a broker dead.",
    lo=100,
    mark=Mark.WORKS,
)
ZOOKEEPER_CONNECTION_TIMEOUT_MS: Final = ZOOKEEPER.integer_or_null(
    "zookeeper.connection.timeout.ms",
    "How long a starting broker waits for ZooKeeper; zookeeper.session.timeout.ms if it is not set.",
    lo=1,
    mark=Mark.WORKS,
)
ZOOKEEPER.integer(
    "zookeeper.max.in.flight.requests",
    10,
    "Requests that Kafka sends to ZooKeeper before it waits for answers; Barnabas reads many nodes in one request.",
    lo=1,
    mark=Mark.IGNORED,
)
ZOOKEEPER_SET_ACL: Final = ZOOKEEPER.boolean(
    "zookeeper.set.acl",
    False,
    "Allow only brokers with this login to change the nodes that they create in ZooKeeper; all may read them, except those "
    "with secrets. Needs a login: zookeeper.digest.login, a JAAS file's Client section, or a certificate.",
    mark=Mark.WORKS,
)
ZOOKEEPER_DIGEST_LOGIN: Final = ZOOKEEPER.password(
    "zookeeper.digest.login",
    "USER:PASSWORD of ZooKeeper's digest scheme. Barnabas's own option; for SASL, name a JAAS file in KAFKA_OPTS "
    "(-Djava.security.auth.login.config=FILE), whose section Client is used.",
    check=_digest_login,
    mark=Mark.WORKS,
)

ZOOKEEPER_SSL_CLIENT_ENABLE: Final = ZOOKEEPER.boolean(
    "zookeeper.ssl.client.enable", False, "Whether connections to ZooKeeper use TLS.", mark=Mark.WORKS
)
ZOOKEEPER_SSL_KEYSTORE_LOCATION: Final = ZOOKEEPER.string_or_null(
    "zookeeper.ssl.keystore.location",
    "File with the certificate that the broker shows to ZooKeeper, and its key: PEM, PKCS12 or JKS.",
    mark=Mark.WORKS,
)
ZOOKEEPER_SSL_KEYSTORE_PASSWORD: Final = ZOOKEEPER.password(
    "zookeeper.ssl.keystore.password", "Password of that file and of its key.", mark=Mark.WORKS
)
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION: Final = ZOOKEEPER.string_or_null(
    "zookeeper.ssl.truststore.location",
    "File with the certificates that ZooKeeper's servers are checked against; the system's own if it is not set.",
    mark=Mark.WORKS,
)
ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD: Final = ZOOKEEPER.password(
    "zookeeper.ssl.truststore.password", "Password of that file.", mark=Mark.WORKS
)
ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: Final = ZOOKEEPER.string(
    "zookeeper.ssl.endpoint.identification.algorithm",
    "HTTPS",
    "HTTPS checks that the server's certificate is for the requested host; empty does not.",
    mark=Mark.WORKS,
)
ZOOKEEPER_SSL_ENABLED_PROTOCOLS: Final = ZOOKEEPER.strings(
    "zookeeper.ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"), "TLS versions that are used.", mark=Mark.WORKS
)
_FILE_TELLS: Final = "Format of that file; in any case it is determined from the first bytes."
for _name, _doc in (
    ("zookeeper.ssl.keystore.type", _FILE_TELLS),
    ("zookeeper.ssl.truststore.type", _FILE_TELLS),
    ("zookeeper.clientCnxnSocket", "Java class of connections; Barnabas's client needs none for TLS."),
    ("zookeeper.ssl.protocol", "Highest TLS version; zookeeper.ssl.enabled.protocols says which are used."),
):
    ZOOKEEPER.string_or_null(_name, _doc, mark=Mark.IGNORED)
for _name, _doc in (
    (
        "zookeeper.ssl.crl.enable",
        "Whether revocation lists are requested; those in the truststore are always used.",
    ),
    ("zookeeper.ssl.ocsp.enable", "Whether servers' certificates are checked with OCSP."),
):
    ZOOKEEPER.boolean(_name, False, _doc, mark=Mark.IGNORED)
ZOOKEEPER.strings_or_null(
    "zookeeper.ssl.cipher.suites", "Cipher suites; OpenSSL's own choice is used.", mark=Mark.IGNORED
)
