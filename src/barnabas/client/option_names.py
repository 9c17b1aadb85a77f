"""The names of clients' options that are known here, so that a misspelt one is refused, and the right one is suggested."""

from __future__ import annotations

import difflib
from typing import Final

from barnabas.client.options import SECURITY_IGNORED, SECURITY_NAMES

TOPIC: Final = "topic."
"""librdkafka takes its options of topics with this prefix, too."""

LIBRDKAFKA: Final = frozenset(
    {
        "acks", "allow.auto.create.topics", "api.version.fallback.ms", "api.version.request",
        "api.version.request.timeout.ms", "auto.commit.enable", "auto.commit.interval.ms", "auto.offset.reset",
        "batch.num.messages", "batch.size", "bootstrap.servers", "broker.address.family", "broker.address.ttl",
        "broker.version.fallback", "builtin.features", "check.crcs", "client.dns.lookup", "client.id", "client.rack",
        "client.software.name", "client.software.version", "compression.codec", "compression.level",
        "compression.type", "connections.max.idle.ms", "consume.callback.max.messages",
        "coordinator.query.interval.ms", "debug", "delivery.timeout.ms", "enable.auto.commit",
        "enable.auto.offset.store", "enable.gapless.guarantee", "enable.idempotence", "enable.metrics.push",
        "enable.partition.eof", "enable.random.seed", "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.sparse.connections", "enable.ssl.certificate.verification", "fetch.error.backoff.ms",
        "fetch.max.bytes", "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms",
        "fetch.wait.max.ms", "group.id", "group.instance.id", "group.protocol", "group.protocol.type",
        "group.remote.assignor", "heartbeat.interval.ms", "https.ca.location", "https.ca.pem", "isolation.level",
        "linger.ms", "log.connection.close", "log.queue", "log.thread.name", "log_level", "max.in.flight",
        "max.in.flight.requests.per.connection", "max.partition.fetch.bytes", "max.poll.interval.ms",
        "max.poll.records", "message.copy.max.bytes", "message.max.bytes", "message.send.max.retries",
        "message.timeout.ms", "metadata.broker.list", "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metadata.request.timeout.ms",
        "offset.store.method", "offset.store.path", "offset.store.sync.interval.ms", "partition.assignment.strategy",
        "partitioner", "plugin.library.paths", "produce.offset.report", "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes", "queue.buffering.max.messages", "queue.buffering.max.ms",
        "queued.max.messages.kbytes", "queued.min.messages", "queuing.strategy", "receive.message.max.bytes",
        "reconnect.backoff.jitter.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.required.acks",
        "request.timeout.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.jaas.config",
        "sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal", "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms",
        "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file", "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions", "sasl.oauthbearer.grant.type", "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.method", "sasl.oauthbearer.scope", "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url", "sasl.password", "sasl.username", "security.protocol",
        "session.timeout.ms", "share.acknowledgement.mode", "socket.blocking.max.ms",
        "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable",
        "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "socket.timeout.ms", "ssl.ca.location",
        "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location",
        "ssl.curves.list", "ssl.endpoint.identification.algorithm", "ssl.engine.id", "ssl.engine.location",
        "ssl.key.location", "ssl.key.password", "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.password",
        "ssl.providers", "ssl.sigalgs.list", "ssl.truststore.location", "statistics.interval.ms",
        "sticky.partitioning.linger.ms", "test.mock.broker.rtt", "test.mock.num.brokers", "topic.blacklist",
        "topic.metadata.propagation.max.ms", "topic.metadata.refresh.fast.cnt",
        "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse", "transaction.timeout.ms", "transactional.id",
    }
)  # fmt: skip
"""The options of librdkafka 2.16 that have a text as their value. Most mean nothing when a cluster is administered."""

KNOWN: Final = LIBRDKAFKA | SECURITY_NAMES | SECURITY_IGNORED
"""Also Java's names of stores and logins, which are translated for librdkafka."""


def is_known(name: str) -> bool:
    """Whether some client has an option of this name."""
    return name in KNOWN or (name.startswith(TOPIC) and name.removeprefix(TOPIC) in LIBRDKAFKA)


def nearest(name: str) -> str | None:
    """The known name that is meant, if one is near."""
    return next(iter(difflib.get_close_matches(name.lower(), KNOWN, n=1, cutoff=0.75)), None)
