"""Changes to configs at run time: what is allowed, and the resulting texts.

Covers topic configs, dynamic broker configs (of one broker or of all), group configs and client-metrics
subscriptions. Input and output are texts; a refusal is an ApiError with Kafka's code.
Source: Kafka's ConfigAdminManager, ConfigurationControlManager, DynamicBrokerConfig, LogConfig, GroupConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar, cast

from barnabas.config.broker_options import BROKER, listener_base_name
from barnabas.config.client_options import CLIENT_METRICS
from barnabas.config.group_options import GROUP, GROUP_LIMITS, GROUP_SYNONYM
from barnabas.config.loader import BrokerConfig
from barnabas.config.option import ConfigError, Mode, Option, OptionTable, OptionType, format_value
from barnabas.config.topic_options import (
    BARNABAS_LINK,
    MAX_COMPACTION_LAG_MS,
    MIN_COMPACTION_LAG_MS,
    REMOTE_STORAGE_ENABLE,
    RETIRED_TOPIC,
    TOPIC,
)
from barnabas.wire.errors import ApiError, ErrorCode

T = TypeVar("T")


class Resource(IntEnum):
    """The resources that have configs; the numbers are the protocol's resource types."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs on a value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of IncrementalAlterConfigs. value: None only for DELETE."""

    name: str
    operation: int
    value: str | None


class TopicConfig:
    """The effective configs of one topic: its own values, and the broker's for the rest."""

    __slots__ = ("_broker", "_own", "overrides")

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        """overrides: the topic's own texts, checked when they were set. Unknown names are ignored."""
        self.overrides = overrides
        self._broker = broker
        self._own: dict[str, Any] = {
            name: option.parse(text)
            for name, text in overrides.items()
            if (option := TOPIC.find(name)) is not None
        }

    def get(self, option: Option[T]) -> T:
        """The value in effect, typed by the topic option."""
        return cast(T, self[option.name])

    def values(self) -> dict[str, Any]:
        """All values in effect by topic config name."""
        return {name: self[name] for name in TOPIC.names()}

    def __getitem__(self, name: str) -> Any:
        return self._own[name] if name in self._own else self._broker.topic_default(name)


# --- topics -------------------------------------------------------------------------------------------------


def new_topic_configs(broker: BrokerConfig, configs: Mapping[str, str | None]) -> dict[str, str]:
    """The configs of a new topic, or those set by AlterConfigs. Raises ApiError(INVALID_CONFIG)."""
    missing = [name for name, text in configs.items() if text is None]
    if missing:
        raise _invalid(f"Null value not supported for topic configs: {', '.join(missing)}")
    texts = {name: text for name, text in configs.items() if text is not None}
    _check_link({}, texts)
    return _checked_topic(broker, texts)


def _check_link(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raises ApiError(INVALID_CONFIG) if a client changes whether a topic is mirrored."""
    name = BARNABAS_LINK.name
    if before.get(name, "") != after.get(name, ""):
        raise _invalid(
            f"{name} says which link mirrors the topic; links set it themselves, and `barnabas mirror link promote` ends it"
        )


def altered_topic_configs(
    broker: BrokerConfig, current: Mapping[str, str], changes: Sequence[Change]
) -> dict[str, str]:
    """A topic's configs after IncrementalAlterConfigs. Raises ApiError: INVALID_CONFIG, INVALID_REQUEST."""
    for change in changes:
        if change.name not in TOPIC and change.operation != Operation.DELETE:
            raise _unknown_topic(change.name)
    texts = _altered(TOPIC, current, changes, lambda name: format_value(broker.topic_default(name)))
    _check_link(current, texts)
    return _checked_topic(broker, texts)


def _checked_topic(broker: BrokerConfig, texts: dict[str, str]) -> dict[str, str]:
    for name in texts:
        if name not in TOPIC:
            raise _unknown_topic(name)
    _check_values(TOPIC, texts)
    effective = TopicConfig(broker, texts)
    low, high = effective.get(MIN_COMPACTION_LAG_MS), effective.get(MAX_COMPACTION_LAG_MS)
    if low > high:
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if effective.get(REMOTE_STORAGE_ENABLE) and not broker["remote.log.storage.system.enable"]:
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return texts


def _unknown_topic(name: str) -> ApiError:
    reason = RETIRED_TOPIC.get(name)
    if reason is None and name in BROKER and BROKER[name].topic is not None:
        reason = f"as a topic config it is called {BROKER[name].topic}"
    return _invalid(f"Unknown topic config name: {name}" + (f" ({reason})" if reason else ""))


# --- brokers ------------------------------------------------------------------------------------------------


def altered_broker_configs(
    broker: BrokerConfig, current: Mapping[str, str], changes: Sequence[Change], *, whole_cluster: bool
) -> dict[str, str]:
    """Dynamic broker configs after IncrementalAlterConfigs; of one broker, or (whole_cluster) of all.

    current: the dynamic texts of that entity. Raises ApiError: INVALID_REQUEST, INVALID_CONFIG.
    """
    _check_broker_names(
        (change.name for change in changes if change.operation != Operation.DELETE), whole_cluster
    )
    table = _BROKER_OR_LISTENER
    texts = _altered(table, current, changes, lambda name: format_value(_broker_value(broker, name)))
    return _checked_broker(texts)


def new_broker_configs(configs: Mapping[str, str | None], *, whole_cluster: bool) -> dict[str, str]:
    """Dynamic broker configs as set by AlterConfigs. Raises ApiError(INVALID_REQUEST)."""
    _check_broker_names(configs, whole_cluster)
    missing = [name for name, text in configs.items() if text is None]
    if missing:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
    return _checked_broker({name: text for name, text in configs.items() if text is not None})


def _broker_value(broker: BrokerConfig, name: str) -> object:
    if _BROKER_OR_LISTENER.find(name) is None:
        return None
    return broker[name] if name in broker else broker[listener_base_name(name) or name]


class _BrokerOrListener(OptionTable):
    """Broker options, also under the prefix listener.name.X."""

    def find(self, name: str) -> Option[Any] | None:
        return super().find(name) or super().find(listener_base_name(name) or "")


_BROKER_OR_LISTENER: Final = _BrokerOrListener("Broker options", BROKER)


def is_secret(name: str) -> bool:
    """Whether a broker option (or one of a listener) holds a password, which lies encrypted in the tree."""
    option = _BROKER_OR_LISTENER.find(name)
    return option is not None and option.sensitive


def unknown_broker_names(names: Iterable[str]) -> list[str]:
    """The names that no broker option has; options of things that are plugged into Kafka's brokers, or misspelt."""
    return sorted(name for name in names if _BROKER_OR_LISTENER.find(name) is None)


def _check_broker_names(names: Iterable[str], whole_cluster: bool) -> None:
    read_only: list[str] = []
    per_broker: list[str] = []
    for name in names:
        option = _BROKER_OR_LISTENER.find(name)
        if option is None:
            continue  # as in Kafka: it may be an option of something that is plugged in
        if option.mode is Mode.READ_ONLY:
            read_only.append(name)
        elif option.mode is Mode.PER_BROKER:
            per_broker.append(name)
        if name.startswith("ssl.") and option.mode is Mode.PER_BROKER:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the listener "
                f"prefix: [{name}]",
            )
    if read_only:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: [{', '.join(read_only)}]; they are read at start only",
        )
    if whole_cluster and per_broker:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(per_broker)}]",
        )


def _checked_broker(texts: dict[str, str]) -> dict[str, str]:
    try:
        for name, text in texts.items():
            option = _BROKER_OR_LISTENER.find(name)
            if option is not None and option.parse(text) == 0 and name == "log.cleaner.threads":
                raise ConfigError("log.cleaner.threads=0: a running broker keeps at least one")
    except ConfigError as error:
        # INVALID_CONFIG would be more precise, but this is the error that clients expect.
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return texts


# --- groups and client metrics ------------------------------------------------------------------------------


def altered_group_configs(
    broker: BrokerConfig, current: Mapping[str, str], changes: Sequence[Change]
) -> dict[str, str]:
    """A group's configs after IncrementalAlterConfigs. Raises ApiError: INVALID_CONFIG, INVALID_REQUEST."""
    for change in changes:
        if change.name not in GROUP and change.operation != Operation.DELETE:
            raise _invalid(f"Unknown group config name: {change.name}")
    texts = _altered(GROUP, current, changes, lambda name: format_value(group_default(broker, name)))
    _check_values(GROUP, texts)
    _check_group_limits(broker, texts)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _group_value(broker, texts, session) <= _group_value(broker, texts, heartbeat):
            raise _invalid(f"{session} must be greater than {heartbeat}")
    return texts


def group_default(broker: BrokerConfig, name: str) -> Any:
    """A group config's value on this broker if the group does not set it. KeyError if unknown."""
    synonym = GROUP_SYNONYM.get(name)
    return GROUP[name].default if synonym is None else broker[synonym]


def _group_value(broker: BrokerConfig, texts: Mapping[str, str], name: str) -> Any:
    return GROUP[name].parse(texts[name]) if name in texts else group_default(broker, name)


def _check_group_limits(broker: BrokerConfig, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        low, high = GROUP_LIMITS.get(name, (None, None))
        value = GROUP[name].parse(text) if name in GROUP else None
        if low is not None and value < broker[low]:
            raise _invalid(f"{name} must be greater than or equal to {low}, which is {broker[low]}")
        if high is not None and value > broker[high]:
            raise _invalid(f"{name} must be less than or equal to {high}, which is {broker[high]}")


def altered_client_metrics(current: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """A subscription after IncrementalAlterConfigs. Raises ApiError: INVALID_CONFIG, INVALID_REQUEST."""
    for change in changes:
        if change.name not in CLIENT_METRICS and change.operation != Operation.DELETE:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {change.name}")
    texts = _altered(
        CLIENT_METRICS, current, changes, lambda name: format_value(CLIENT_METRICS[name].default)
    )
    _check_values(CLIENT_METRICS, texts)
    return texts


# --- common -------------------------------------------------------------------------------------------------


def _invalid(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, why)


def _check_values(table: OptionTable, texts: Mapping[str, str]) -> None:
    try:
        for name, text in texts.items():
            option = table.find(name)
            if option is not None:
                option.parse(text)
    except ConfigError as error:
        raise _invalid(str(error)) from None


def _altered(
    table: OptionTable, current: Mapping[str, str], changes: Sequence[Change], default: Any
) -> dict[str, str]:
    """The texts after the changes. default(name): the list to append to if none is set."""
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [
        change.name for change in changes if change.value is None and change.operation != Operation.DELETE
    ]
    if missing:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
    texts = dict(current)
    for name, operation, value in changes:
        if operation == Operation.DELETE:
            texts.pop(name, None)
        elif operation == Operation.SET:
            texts[name] = value or ""
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            before = texts.get(name)
            if before is None:
                before = default(name) or ""
            texts[name] = _with_items(table, name, before, value or "", Operation(operation))
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation} for config {name}")
    return texts


def _with_items(table: OptionTable, name: str, before: str, value: str, operation: Operation) -> str:
    option = table.find(name)
    if option is None or option.kind is not OptionType.LIST:
        verb = "APPEND to" if operation is Operation.APPEND else "SUBTRACT from"
        raise _invalid(f"Can't {verb} key {name} because its type is not LIST.")
    items = [item.strip() for item in before.split(",") if item.strip()]
    items_named = [item.strip() for item in value.split(",") if item.strip()]
    if operation is Operation.SUBTRACT:
        return ",".join(item for item in items if item not in items_named)
    return ",".join(items + [item for item in dict.fromkeys(items_named) if item not in items])
