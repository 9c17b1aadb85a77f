"""One flow from a source to a target: what a connector's configuration says about both clusters and their topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer

from barnabas.admin import NewTopic
from barnabas.admin.blocking import Admin
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.connect.errors import ConnectError, OptionError, RetriableError
from barnabas.connect.mirror.naming import Filter, IdentityPolicy, Policy
from barnabas.connect.mirror.options import BYTES, IDENTITY_POLICY
from barnabas.connect.options import Config
from barnabas.connect.worker.settings import QUIET, librdkafka
from barnabas.wire.errors import ErrorCode

SOURCE, TARGET = "source", "target"
SERVERS: Final = "bootstrap.servers"
DEADLINE_S: Final = 30.0
CONSUMER: Final = {
    "group.id": "barnabas-mirror",  # it is never joined
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,
    "queued.max.messages.kbytes": 4 << 10,  # of each task
}


class Flow:
    """Options of a connector, ready to use. Clients are made when they are first needed."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.source = str(config["source.cluster.alias"])
        self.target = str(config["target.cluster.alias"])

    # --- names ----------------------------------------------------------------------------------------

    @cached_property
    def policy(self) -> Policy:
        """How copies are called."""
        separator = self.config["replication.policy.separator"]
        internal = separator if self.config["replication.policy.internal.topic.separator.enabled"] else "."
        if self.config["replication.policy.class"] == IDENTITY_POLICY:
            return IdentityPolicy(separator, internal)
        return Policy(separator, internal)

    @cached_property
    def topics(self) -> Filter:
        """Which topics are copied."""
        return self._filter("topics")

    @cached_property
    def groups(self) -> Filter:
        """Which groups have checkpoints."""
        return self._filter("groups")

    def _filter(self, name: str) -> Filter:
        excluded = self.config[f"{name}.blacklist"] or self.config[f"{name}.exclude"]
        return Filter.of(self.config[name], excluded)

    def takes(self, topic: str) -> bool:
        """Whether a topic of the source is copied."""
        policy = self.policy
        if policy.is_heartbeats(topic):
            chosen = self.config["heartbeats.replication.enabled"] and self._copies_bytes
        else:
            chosen = self.topics.takes(topic)
        return chosen and not policy.is_internal(topic) and not policy.is_cycle(topic, self.target)

    @property
    def _copies_bytes(self) -> bool:
        """Whether records are copied as they are: heartbeats can be copied in no other way."""
        changed = any(self.config[f"{part}.converter"] != BYTES for part in ("key", "value"))
        return not changed and not self.config.get("transforms")

    @property
    def syncs_side(self) -> str:
        """The cluster that has the topic of offset syncs."""
        return SOURCE if self.config["offset-syncs.topic.location"] == SOURCE else TARGET

    @property
    def syncs_alias(self) -> str:
        """The alias of that cluster."""
        return self.source if self.syncs_side == SOURCE else self.target

    @property
    def syncs_topic(self) -> str:
        """The topic of offset syncs, which is named after the other cluster."""
        return self.policy.syncs_topic(self.target if self.syncs_side == SOURCE else self.source)

    # --- clients --------------------------------------------------------------------------------------

    def properties(self, side: str, kind: str) -> dict[str, str]:
        """The properties of a client. kind: consumer, producer, admin. Raises OptionError without brokers."""
        properties: dict[str, str] = {}
        for prefix in (f"{side}.cluster.", f"{kind}.", f"{side}.{kind}."):
            for name, value in self.config.items():
                rest = name.removeprefix(prefix)
                if rest != name and value is not None and not rest.startswith(("override.", "poll.")):
                    properties[rest] = str(value)
        properties.pop("alias", None)
        if not properties.get(SERVERS, "").strip():
            raise OptionError(
                f"{side}.cluster.bootstrap.servers is not set: name the brokers of the {side}",
                f"{side}.cluster.bootstrap.servers",
            )
        return properties

    def admin(self, side: str) -> Admin:
        """A new admin, to be closed. Raises OptionError."""
        try:
            options = ClientOptions.from_kafka(
                {"client.id": "barnabas-mirror", **self.properties(side, "admin")}
            )
        except ClientError as error:
            raise OptionError(f"{side}.cluster: {error}", f"{side}.cluster.bootstrap.servers") from error
        return Admin(replace(options, deadline_s=min(options.deadline_s, DEADLINE_S)))

    def consumer(
        self, side: str, more: Mapping[str, Any] | None = None, always: Mapping[str, Any] | None = None
    ) -> Consumer:
        """A consumer of committed records that joins no group. always: properties that no given one replaces. Raises
        OptionError."""
        return self._new_client(Consumer, {**CONSUMER, **(more or {})}, side, "consumer", always or {})

    def producer(self, side: str) -> Producer:
        """A producer of internal records. Raises OptionError."""
        own = {"enable.idempotence": True, "linger.ms": 5, "acks": "all"}
        return self._new_client(Producer, own, side, "producer")

    def _new_client(
        self, kind: Any, own: Mapping[str, Any], side: str, part: str, always: Mapping[str, Any] | None = None
    ) -> Any:
        properties = self.properties(side, part)
        try:
            return kind({**QUIET, **own, **librdkafka(properties), **(always or {})})
        except (KafkaException, ClientError, ValueError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise OptionError(f"the properties of the {side}'s {part} cannot be used: {reason}") from error


def require_topic(admin: Admin, cluster: str, name: str, replication: int) -> None:
    """Creates an internal topic with one partition, if there is none. cluster: its alias. Raises RetriableError."""
    try:
        if name in admin.topics.describe([name]).done:
            return
        new = NewTopic(name, 1, replicas_of(admin, replication), {"cleanup.policy": "compact"})
        admin.topics.create([new]).except_for(ErrorCode.TOPIC_ALREADY_EXISTS).require()
    except ClientError as error:
        raise RetriableError(f"topic {name} cannot be created in {cluster}: {error}") from error


def replicas_of(admin: Admin, wanted: int) -> int:
    """As many replicas as are wanted, or as there are brokers. Raises ClientError."""
    return wanted if wanted < 0 else min(wanted, len(admin.cluster.describe().brokers))


def message_of(error: Exception) -> str:
    """What a client's error says."""
    return error.args[0].str() if isinstance(error, KafkaException) else str(error)


__all__ = ["SOURCE", "TARGET", "ConnectError", "Flow", "message_of", "replicas_of", "require_topic"]
