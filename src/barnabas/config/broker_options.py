"""All broker options as one table, their synonyms, and the options that Kafka has retired."""

from __future__ import annotations

import re
from typing import Final

from barnabas.config.broker_groups import GROUPS
from barnabas.config.broker_identity import IDENTITY
from barnabas.config.broker_log import LOG
from barnabas.config.broker_metrics import METRICS
from barnabas.config.broker_network import NETWORK
from barnabas.config.broker_replication import REPLICATION
from barnabas.config.broker_schemas import SCHEMAS
from barnabas.config.broker_security import SECURITY
from barnabas.config.broker_share import SHARE
from barnabas.config.broker_streams import STREAMS
from barnabas.config.broker_zookeeper import ZOOKEEPER
from barnabas.config.option import OptionTable

AREAS: Final = (
    IDENTITY,
    NETWORK,
    LOG,
    REPLICATION,
    GROUPS,
    SHARE,
    STREAMS,
    SECURITY,
    SCHEMAS,
    METRICS,
    ZOOKEEPER,
)
BROKER: Final = OptionTable("Broker options", *AREAS)

# Topic config -> the broker option that is its default.
TOPIC_SYNONYM: Final = {option.topic: option.name for option in BROKER if option.topic is not None}

# The first one that is set wins; the last one has the default.
SYNONYM_CHAINS: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
FLUSH_CHAIN: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")

_LISTENER_OVERRIDE: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
_PER_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def listener_base_name(name: str) -> str | None:
    """The option that `listener.name.X.[mechanism.]option` overrides; None for other names."""
    match = _LISTENER_OVERRIDE.fullmatch(name)
    if match is None:
        return None
    base = match.group(1)
    return next((option for option in _PER_MECHANISM if base.endswith(option)), base)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The names under which a broker option may be set, highest precedence first.

    Source: Kafka's DynamicBrokerConfig.brokerConfigSynonyms.
    """
    for chain in SYNONYM_CHAINS:
        if name in chain:
            return chain
    if name == FLUSH_CHAIN[0]:
        return FLUSH_CHAIN
    base = listener_base_name(name)
    return (name,) if base is None else (name, base)


_ZOOKEEPER: Final = "the options of docs/configuration.md are known, and this is none of them"
_OLD_FORMAT: Final = "batches are always kept in format 2"

# Options of older Kafka versions that still occur in property files, with an explanation of each.
RETIRED: Final = {
    "log.message.format.version": _OLD_FORMAT,
    "message.format.version": _OLD_FORMAT,
    "inter.broker.protocol.version": "brokers agree on versions by themselves",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and .after.max.ms",
    "control.plane.listener.name": "the controller uses the brokers' listener",
    "reserved.broker.max.id": "any node.id may be used",
    "broker.id.generation.enable": "set node.id",
    "offsets.commit.required.acks": "offset commits always wait for all in-sync replicas",
    "delegation.token.master.key": "use delegation.token.secret.key",
    "leader.imbalance.per.broker.percentage": "leadership is moved back whenever it is not balanced",
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "quota.producer.default": "use `barnabas` quota commands or kafka-configs --entity-default",
    "quota.consumer.default": "use `barnabas` quota commands or kafka-configs --entity-default",
    "auto.include.jmx.reporter": "there is no JMX",
    "eligible.leader.replicas.enable": "it is a feature of the cluster, not an option",
    "kafka.csv.metrics.reporter.enabled": "there is no CSV reporter",
    "kafka.csv.metrics.dir": "there is no CSV reporter",
    "group.coordinator.new.enable": "there is only the new coordinator",
    "group.share.enable": "it is a feature of the cluster, not an option",
}
RETIRED_PREFIXES: Final = {
    "zookeeper.": _ZOOKEEPER,
    "password.encoder.": "passwords are encrypted as Kafka does by default: AES/CBC/PKCS5Padding, PBKDF2WithHmacSHA512",
}


def retired_reason(name: str) -> str | None:
    """Why an option of older Kafka versions has no effect, and what to do instead; None for other names."""
    if name in RETIRED:
        return RETIRED[name]
    return next((why for prefix, why in RETIRED_PREFIXES.items() if name.startswith(prefix)), None)
