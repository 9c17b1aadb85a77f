"""The options of a worker, under the names of Kafka Connect's property files.

What is not set has the defaults of Kafka Connect, but for the converters (JSON without schemas), how often sinks commit, and
that offsets of sources are committed in the transactions of their records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.options import ClientOptions
from barnabas.client.tls import for_librdkafka
from barnabas.config.option import ConfigError
from barnabas.config.providers import Providers
from barnabas.connect.errors import OptionError
from barnabas.connect.options import ConfigDef, ConnectorOption, Importance, Type

POLICIES: Final = ("All", "None", "Principal", "Allowlist")


def policy_name(value: str) -> str:
    """The short name of a policy that is given as such or as one of Kafka's classes; the value itself if it is neither."""
    short = value.rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy")
    return next((name for name in POLICIES if name.lower() == short.lower()), value)


def _is_policy(value: Any) -> str | None:
    return None if policy_name(str(value)) in POLICIES else f"must be one of: {', '.join(POLICIES)}"


JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
OPTIONS: Final = ConfigDef(
    (
        ConnectorOption("group.id", default="connect-cluster", doc="The workers that share the work"),
        ConnectorOption("config.storage.topic", default="connect-configs"),
        ConnectorOption("offset.storage.topic", default="connect-offsets"),
        ConnectorOption("status.storage.topic", default="connect-status"),
        ConnectorOption("config.storage.replication.factor", Type.SHORT, -1),
        ConnectorOption("offset.storage.replication.factor", Type.SHORT, -1),
        ConnectorOption("status.storage.replication.factor", Type.SHORT, -1),
        ConnectorOption("offset.storage.partitions", Type.INT, 25),
        ConnectorOption("status.storage.partitions", Type.INT, 5),
        ConnectorOption("key.converter", default=JSON_CONVERTER),
        ConnectorOption("value.converter", default=JSON_CONVERTER),
        ConnectorOption("header.converter", default="org.apache.kafka.connect.storage.SimpleHeaderConverter"),
        ConnectorOption("offset.flush.interval.ms", Type.LONG, 5_000, lo=10),
        ConnectorOption(
            "exactly.once.source.support", default="enabled", choices=("disabled", "preparing", "enabled")
        ),
        ConnectorOption("topic.creation.enable", Type.BOOLEAN, True),
        ConnectorOption("topic.tracking.enable", Type.BOOLEAN, True),
        ConnectorOption("topic.tracking.allow.reset", Type.BOOLEAN, True),
        ConnectorOption("connector.client.config.override.policy", default="All", check=_is_policy),
        ConnectorOption("connector.client.config.override.allowlist", Type.LIST, ""),
        ConnectorOption("session.timeout.ms", Type.INT, 10_000, Importance.HIGH, lo=1_000),
        ConnectorOption("rebalance.timeout.ms", Type.INT, 10_000, Importance.HIGH, lo=1_000),
        ConnectorOption("scheduled.rebalance.max.delay.ms", Type.INT, 0),
        ConnectorOption("rest.advertised.host.name", default=None),
        ConnectorOption("rest.advertised.port", Type.INT, None),
    )
)
PRINCIPAL: Final = (
    "security.protocol",
    "sasl.jaas.config",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
)
"""What the policy Principal allows connectors to override: who they are."""
JAVA_NAMES: Final = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
}
NOT_LIBRDKAFKA: Final = frozenset(
    {
        "buffer.memory", "max.block.ms", "metadata.max.idle.ms", "partitioner.class", "partitioner.ignore.keys",
        "receive.buffer.bytes", "send.buffer.bytes", "interceptor.classes", "max.poll.records", "key.serializer",
        "value.serializer", "key.deserializer", "value.deserializer", "exclude.internal.topics",
        "default.api.timeout.ms", "auto.include.jmx.reporter",
    }
)  # fmt: skip
"""Options of Java's clients that have no meaning here."""
QUIET: Final = {"log_level": 2, "client.id": "barnabas-connect"}


def librdkafka(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Java's or librdkafka's names as librdkafka's. Raises ClientError."""
    texts = {name: str(value) for name, value in properties.items()}
    for_rdkafka = for_librdkafka(texts)
    return {
        JAVA_NAMES.get(name, name): value for name, value in for_rdkafka.items() if name not in NOT_LIBRDKAFKA
    }


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """client: properties of the cluster, with bootstrap.servers. worker_texts: the worker's own texts. folder: for files of
    connectors. first: connectors to begin
    with, by name. registry: the schema registry of converters that name none. standalone: there are no other connectors than
    `first`."""

    client: Mapping[str, str]
    worker_texts: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    first: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    advertise: str | None = None
    registry: str | None = None
    standalone: bool = False
    providers: Providers = field(default_factory=lambda: Providers({}, declared_only=True))

    @classmethod
    def of(
        cls,
        client: Mapping[str, str],
        own: Mapping[str, str],
        folder: str | None = None,
        first: Mapping[str, Mapping[str, str]] | None = None,
        advertise: str | None = None,
        registry: str | None = None,
    ) -> WorkerOptions:
        """registry: the schema registry of converters that name none. Raises OptionError for a wrong value."""
        texts = dict(own)
        for part in ("key.converter", "value.converter"):
            if part not in texts:
                texts.setdefault(f"{part}.schemas.enable", "false")
        try:
            providers = Providers(texts, declared_only=True)
            texts = {name: providers.expand(text) for name, text in texts.items()}
        except ConfigError as error:
            raise OptionError(str(error)) from None
        return cls(
            client, texts, folder, OPTIONS.parse(texts), first or {}, advertise, registry, providers=providers
        )

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def group(self) -> str:
        """The workers' group."""
        return str(self.values["group.id"])

    @property
    def config_topic(self) -> str:
        """Where configurations are kept."""
        return str(self.values["config.storage.topic"])

    @property
    def offset_topic(self) -> str:
        """Where offsets of sources are kept."""
        return str(self.values["offset.storage.topic"])

    @property
    def status_topic(self) -> str:
        """Where statuses are kept."""
        return str(self.values["status.storage.topic"])

    def own_client(self) -> ClientOptions:
        """For requests other than librdkafka's. Raises ClientError."""
        return ClientOptions.from_kafka({"client.id": "barnabas-connect", **self.client})

    def clients(self, kind: str = "", overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """librdkafka's properties. kind: producer, consumer or empty, for the worker's options with this prefix."""
        prefix = f"{kind}."
        own = {
            name.removeprefix(prefix): text
            for name, text in self.worker_texts.items()
            if kind and name.startswith(prefix) and not name.startswith(f"{prefix}override.")
        }
        return {**QUIET, **librdkafka({**self.client, **own, **(overrides or {})})}

    def expanded(self, config: Mapping[str, str]) -> dict[str, str]:
        """A connector's texts with the values of providers. Raises OptionError."""
        try:
            return {
                name: self.providers.expand(text) if isinstance(text, str) else text
                for name, text in config.items()
            }
        except ConfigError as error:
            raise OptionError(str(error)) from None
