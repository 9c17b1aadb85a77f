"""Java's client properties as librdkafka's: most have the same name, some have no meaning there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.security.tls import openssl_name
from barnabas.terminal.connection import ClusterAddress

JAVA_ONLY: Final = (
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "buffer.memory",
    "max.block.ms",
    "metadata.max.idle.ms",
    "partitioner.class",
    "partitioner.ignore.keys",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "interceptor.classes",
    "max.poll.records",
    "exclude.internal.topics",
    "default.api.timeout.ms",
    "auto.include.jmx.reporter",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.provider",
    "ssl.client.auth",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
)
RENAMED: Final = {
    "sasl.mechanism": "sasl.mechanism",
    "max.request.size": "message.max.bytes",
    "request.timeout.ms": "request.timeout.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "partition.assignment.strategy": "partition.assignment.strategy",
}
CONSUMER_LACKS: Final = ("request.timeout.ms",)


def translate(properties: Mapping[str, str], producing: bool) -> dict[str, str]:
    """Properties that librdkafka understands; those of stores and logins are translated by the connection."""
    translated: dict[str, str] = {}
    for name, value in properties.items():
        if name == "ssl.cipher.suites":
            translated[name] = ":".join(openssl_name(suite.strip()) for suite in value.split(","))
        elif name not in JAVA_ONLY and (producing or name not in CONSUMER_LACKS):
            translated[RENAMED.get(name, name)] = value
    return translated


def connection(servers: str, properties: Mapping[str, str], producing: bool) -> ClusterAddress:
    """A connection for librdkafka with Java's properties."""
    return ClusterAddress(servers, translate(properties, producing))


def consumer_defaults(group: str) -> dict[str, Any]:
    """The settings of every consumer of these tools: fast, and without creating topics."""
    return {
        "group.id": group,
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 200_000,
        "allow.auto.create.topics": False,
    }
