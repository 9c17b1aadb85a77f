"""Options of topics, brokers, groups, client metrics and loggers: where their values come from, and changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import ANY_NODE, Route, spread, to_nodes
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.wire.messages import alter_configs as wire_replace
from barnabas.wire.messages import describe_configs as wire_describe
from barnabas.wire.messages import incremental_alter_configs as wire_alter
from barnabas.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

E = TypeVar("E", bound=IntEnum)

RESOURCES_BATCH: Final = 200
"""Each has some thirty options, with their documentation ten kilobytes."""
DOCUMENTATION_VERSION: Final = 3


class ConfigKind(IntEnum):
    """What an option belongs to; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are the protocol's."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """What a value may be; the numbers are the protocol's."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigResource(NamedTuple):
    """What has options. name: a topic, a group, a broker's number, a subscription of client metrics; a broker without a name
    stands for the defaults of all brokers."""

    kind: ConfigKind
    name: str = ""

    def __str__(self) -> str:
        noun = self.kind.name.lower().replace("_", " ")
        return f"{noun} {self.name}" if self.name else "the defaults of all brokers"


@dataclass(frozen=True, slots=True)
class Synonym:
    """An option that gives a value when those before it do not."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Config:
    """One option with its value in force; None for a secret, which brokers tell nobody. synonyms: only if asked for, the
    first is in force. type, documentation: where the broker tells them."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source in (ConfigSource.DEFAULT_CONFIG, ConfigSource.UNKNOWN)


class ChangeKind(IntEnum):
    """How an option changes; the numbers are the protocol's. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one option; `set_to` and `back_to_default` make the usual ones."""

    name: str
    kind: ChangeKind
    value: str | None = None


def set_to(values: Mapping[str, str]) -> list[ConfigChange]:
    """Changes that set options."""
    return [ConfigChange(name, ChangeKind.SET, value) for name, value in values.items()]


def back_to_default(names: Iterable[str]) -> list[ConfigChange]:
    """Changes that remove what was set for the resource itself."""
    return [ConfigChange(name, ChangeKind.DELETE) for name in names]


class AsyncConfigs:
    """`AsyncAdmin.configs`. Options of one broker are read and changed on that broker."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def describe(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> Results[ConfigResource, Mapping[str, Config]]:
        """The options of each resource by name. names: only these."""
        keys = None if names is None else list(names)

        async def ask(
            connection: AsyncConnection, batch: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, Mapping[str, Config] | ClientError]:
            version = connection.version_for(wire_describe.DescribeConfigsRequest)
            request = wire_describe.DescribeConfigsRequest(
                resources=[
                    wire_describe.DescribeConfigsResource(
                        resource_type=resource.kind, resource_name=resource.name, configuration_keys=keys
                    )
                    for resource in batch
                ],
                include_synonyms=synonyms and version >= 1,
                include_documentation=documentation and version >= DOCUMENTATION_VERSION,
            )
            answer = await connection.call(request, wire_describe.DescribeConfigsResponse)
            return {
                resource: _error(row.error_code, "describe the options of", resource, row.error_message)
                or {entry.name: config_of(entry, version, resource.kind) for entry in row.configs}
                for row in answer.results
                for resource in [ConfigResource(ConfigKind(row.resource_type), row.resource_name)]
            }

        return await spread(self._cluster, resources, self._route(), ask, batch=RESOURCES_BATCH)

    async def alter(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> Results[ConfigResource, None]:
        """Change options and leave the others as they are.

        Brokers before Kafka 2.3 can only replace all options of a resource: there, those that are set are read first
        (which is not atomic), and APPEND and SUBTRACT are refused.
        """

        async def ask(
            connection: AsyncConnection, batch: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, ClientError | None]:
            if not connection.serves(wire_alter.IncrementalAlterConfigsRequest):
                return await self._alter_on_old_broker(batch, changes, validate_only)
            request = wire_alter.IncrementalAlterConfigsRequest(
                resources=[
                    wire_alter.AlterConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configs=[
                            wire_alter.AlterableConfig(
                                name=change.name, config_operation=change.kind, value=change.value
                            )
                            for change in changes[resource]
                        ],
                    )
                    for resource in batch
                ],
                validate_only=validate_only,
            )
            answer = await connection.call(request, wire_alter.IncrementalAlterConfigsResponse)
            return _altered(answer.responses)

        return await spread(self._cluster, changes, self._route(), ask, batch=RESOURCES_BATCH)

    async def replace(
        self, configs: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> Results[ConfigResource, None]:
        """Set these options and put all others of the resource back to their defaults."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, ClientError | None]:
            request = wire_replace.AlterConfigsRequest(
                resources=[
                    wire_replace.AlterConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configs=[
                            wire_replace.AlterableConfig(name=name, value=value)
                            for name, value in configs[resource].items()
                        ],
                    )
                    for resource in batch
                ],
                validate_only=validate_only,
            )
            answer = await connection.call(request, wire_replace.AlterConfigsResponse)
            return _altered(answer.responses)

        return await spread(self._cluster, configs, self._route(), ask, batch=RESOURCES_BATCH)

    async def resources(self, kinds: Iterable[ConfigKind] = ()) -> Sequence[ConfigResource]:
        """What has options of these kinds (none: all kinds that the broker lists).

        Brokers before Kafka 4.1 list the subscriptions of client metrics only.
        """
        wanted = list(kinds)

        async def ask() -> Sequence[ConfigResource]:
            connection = await self._cluster.any()
            version = connection.version_for(ListConfigResourcesRequest)
            if version == 0 and any(kind is not ConfigKind.CLIENT_METRICS for kind in wanted):
                name = "ListConfigResources"
                raise UnsupportedByBroker(f"{connection.address} lists client metrics only", name)
            request = ListConfigResourcesRequest(
                resource_types=[int(kind) for kind in wanted] if version else []
            )
            answer = await connection.call(request, ListConfigResourcesResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "list", "the resources with options")
            return [
                ConfigResource(ConfigKind(row.resource_type), row.resource_name)
                for row in answer.config_resources
            ]

        return await self._cluster.retry(ask)

    def _route(self) -> Route[ConfigResource]:
        return to_nodes(self._cluster, _node_of)

    async def _alter_on_old_broker(
        self,
        batch: Sequence[ConfigResource],
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        validate_only: bool,
    ) -> Mapping[ConfigResource, ClientError | None]:
        described = await self.describe(batch)
        outcomes: dict[ConfigResource, ClientError | None] = dict(described.failed)
        replaced: dict[ConfigResource, Mapping[str, str | None]] = {}
        for resource, configs in described.done.items():
            try:
                replaced[resource] = _replaced(configs, changes[resource])
            except ClientError as error:
                outcomes[resource] = error
        results = await self.replace(replaced, validate_only=validate_only)
        return {**outcomes, **results.done, **results.failed}


class Configs(Family[AsyncConfigs]):
    """`Admin.configs`."""

    describe = blocking(AsyncConfigs.describe)
    alter = blocking(AsyncConfigs.alter)
    replace = blocking(AsyncConfigs.replace)
    resources = blocking(AsyncConfigs.resources)


def _node_of(resource: ConfigResource) -> int:
    """The broker whose own options or loggers these are; otherwise any."""
    if resource.kind in (ConfigKind.BROKER, ConfigKind.BROKER_LOGGER) and resource.name.isdecimal():
        return int(resource.name)
    return ANY_NODE


def _error(
    code: int, action: str, resource: ConfigResource, reason: str | None = None
) -> ResourceError | None:
    return ResourceError(code, action, str(resource), reason) if code else None


def _altered(
    rows: Iterable[wire_alter.AlterConfigsResourceResponse | wire_replace.AlterConfigsResourceResponse],
) -> Mapping[ConfigResource, ClientError | None]:
    return {
        resource: _error(row.error_code, "change the options of", resource, row.error_message)
        for row in rows
        for resource in [ConfigResource(ConfigKind(row.resource_type), row.resource_name)]
    }


def _replaced(configs: Mapping[str, Config], changes: Sequence[ConfigChange]) -> Mapping[str, str | None]:
    """What is set for the resource itself, changed. Raises ClientError."""
    own = (
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    values = {name: config.value for name, config in configs.items() if config.source in own}
    for change in changes:
        match change.kind:
            case ChangeKind.SET:
                values[change.name] = change.value
            case ChangeKind.DELETE:
                values.pop(change.name, None)
            case _:
                raise ClientError(
                    f"cannot change {change.name}: brokers before Kafka 2.3 take whole lists only; set the list"
                )
    return values


def config_of(entry: wire_describe.DescribeConfigsResourceResult, version: int, kind: ConfigKind) -> Config:
    """One option of an answer."""
    if version == 0:
        # Version 0 says only whether the value is the default.
        own = (
            ConfigSource.DYNAMIC_TOPIC_CONFIG
            if kind is ConfigKind.TOPIC
            else ConfigSource.STATIC_BROKER_CONFIG
        )
        source = ConfigSource.DEFAULT_CONFIG if entry.is_default else own
    else:
        source = _known(ConfigSource, entry.config_source)
    return Config(
        entry.name,
        entry.value,
        source,
        entry.read_only,
        entry.is_sensitive,
        tuple(Synonym(row.name, row.value, _known(ConfigSource, row.source)) for row in entry.synonyms),
        _known(ConfigType, entry.config_type),
        entry.documentation,
    )


def _known(kind: type[E], number: int) -> E:
    return kind(number) if number in kind._value2member_map_ else kind(0)
