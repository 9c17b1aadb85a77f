"""Configs as shown by DescribeConfigs: value, source, and the synonyms in order of precedence.

Source: Kafka's ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.config.broker_options import BROKER, TOPIC_SYNONYM, broker_synonyms, listener_base_name
from barnabas.config.client_options import CLIENT_METRICS
from barnabas.config.dynamic import group_default, unknown_broker_names
from barnabas.config.group_options import GROUP, GROUP_SYNONYM
from barnabas.config.loader import BrokerConfig
from barnabas.config.option import Option, format_value
from barnabas.config.topic_options import TOPIC


class Source(IntEnum):
    """Where a value comes from; the numbers are DescribeConfigs' `config_source`."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


UNKNOWN_TYPE = 0
"""The `config_type` of an option that is not declared."""


class Synonym(NamedTuple):
    """A name under which a value can be set, with the value set there."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One config. value: None for null and for secrets. config_type: the number of its Kind."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    config_type: int
    doc: str

    @property
    def is_default(self) -> bool:
        """Whether nothing sets the value."""
        return self.source == Source.DEFAULT


def _entry(option: Option[Any], value: object, synonyms: tuple[Synonym, ...], *, read_only: bool) -> Entry:
    return Entry(
        option.name,
        None if option.sensitive else format_value(value),
        synonyms[0].source if synonyms else Source.DEFAULT,
        read_only,
        option.sensitive,
        synonyms,
        option.kind,
        option.doc,
    )


def _broker_layers(
    broker: BrokerConfig, wanted: str, names: Iterable[str], default: Callable[[str], str | None]
) -> tuple[Synonym, ...]:
    """Where the broker option `wanted` and its synonyms `names` are set, highest precedence first.

    Entries before the first one named `wanted` are left out, as in Kafka: so log.retention.ms has no synonyms if only
    log.retention.hours is set.
    """
    names = tuple(names)
    synonyms: list[Synonym] = []
    for layer, source in (
        (broker.dynamic_broker, Source.DYNAMIC_BROKER),
        (broker.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
        (broker.static, Source.STATIC_BROKER),
    ):
        synonyms += (Synonym(name, _shown(name, layer[name]), source) for name in names if name in layer)
    for name in names:
        text = default(name)
        if text is not None:
            synonyms.append(Synonym(name, text, Source.DEFAULT))
    first = next((at for at, synonym in enumerate(synonyms) if synonym.name == wanted), len(synonyms))
    return tuple(synonyms[first:])


def _shown(name: str, text: str) -> str | None:
    """A text as it may be shown: None for a secret."""
    option = BROKER.find(name) or BROKER.find(listener_base_name(name) or "")
    return None if option is not None and option.sensitive else text


def _default_text(name: str) -> str | None:
    option = BROKER.find(name)
    return None if option is None or option.sensitive else format_value(option.default)


def _broker_synonyms(broker: BrokerConfig, name: str) -> tuple[Synonym, ...]:
    return _broker_layers(broker, name, broker_synonyms(name), _default_text)


def describe_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[Entry]:
    """All configs of a topic. overrides: its own texts."""
    entries = []
    for option in TOPIC:
        name = option.name
        synonym = TOPIC_SYNONYM.get(name)
        synonyms = () if synonym is None else _broker_synonyms(broker, synonym)
        if name in overrides:
            value = option.parse(overrides[name])
            synonyms = (Synonym(name, format_value(value), Source.TOPIC), *synonyms)
        else:
            value = broker.topic_default(name)
        entries.append(_entry(option, value, synonyms, read_only=False))
    return sorted(entries, key=lambda entry: entry.name)


def describe_broker(broker: BrokerConfig) -> list[Entry]:
    """All options of this broker."""
    entries = [_broker_entry(broker, option.name, option) for option in BROKER if not option.internal]
    layers = {**broker.static, **broker.dynamic_default, **broker.dynamic_broker}
    for name in layers:
        base = BROKER.find(listener_base_name(name) or "")
        if base is not None:
            entries.append(_broker_entry(broker, name, base))
    dynamic = {
        Source.DYNAMIC_BROKER: broker.dynamic_broker,
        Source.DYNAMIC_DEFAULT_BROKER: broker.dynamic_default,
    }
    entries += _unknown_entries(dynamic, {*broker.dynamic_broker, *broker.dynamic_default})
    return sorted(entries, key=lambda entry: entry.name)


def _unknown_entries(layers: Mapping[Source, Mapping[str, str]], wanted: Iterable[str]) -> list[Entry]:
    """Options that were set and that no broker knows: without their values, which may be secrets, as in Kafka."""
    entries = []
    for name in unknown_broker_names(wanted):
        synonyms = tuple(Synonym(name, None, source) for source, texts in layers.items() if name in texts)
        entries.append(
                Entry(
                    name, None, synonyms[0].source, read_only=True, sensitive=True, synonyms=synonyms,
                    config_type=UNKNOWN_TYPE, doc="Not an option of this broker.",
                )
            )  # fmt: skip
    return entries


def _broker_entry(broker: BrokerConfig, name: str, option: Option[Any]) -> Entry:
    value = broker[name] if name in broker else option.parse(broker.texts(name) or "")
    synonyms = _broker_synonyms(broker, name)
    if option.sensitive:
        synonyms = tuple(Synonym(synonym.name, None, synonym.source) for synonym in synonyms)
    entry = _entry(option, value, synonyms, read_only=option.read_only)
    return entry if entry.name == name else _renamed(entry, name)


def _renamed(entry: Entry, name: str) -> Entry:
    return replace(entry, name=name)


def describe_cluster_default(broker: BrokerConfig) -> list[Entry]:
    """The options set for all brokers together (entity `<default>`), each with just that source."""
    entries = []
    for name, text in sorted(broker.dynamic_default.items()):
        option = BROKER.find(name) or BROKER.find(listener_base_name(name) or "")
        if option is not None:
            shown = None if option.sensitive else text
            synonyms = (Synonym(name, shown, Source.DYNAMIC_DEFAULT_BROKER),)
            entries.append(
                _renamed(_entry(option, option.parse(text), synonyms, read_only=option.read_only), name)
            )
    return entries + _unknown_entries(
        {Source.DYNAMIC_DEFAULT_BROKER: broker.dynamic_default}, broker.dynamic_default
    )


def describe_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[Entry]:
    """All configs of a group. overrides: its own texts."""
    entries = []
    for option in GROUP:
        name = option.name
        synonym = GROUP_SYNONYM.get(name)
        synonyms = () if synonym is None else _broker_synonyms(broker, synonym)
        if name in overrides:
            value = option.parse(overrides[name])
            synonyms = (Synonym(name, format_value(value), Source.GROUP), *synonyms)
        else:
            value = group_default(broker, name)
        entries.append(_entry(option, value, synonyms, read_only=False))
    return sorted(entries, key=lambda entry: entry.name)


def describe_client_metrics(overrides: Mapping[str, str]) -> list[Entry]:
    """A client-metrics subscription. overrides: the options that it sets."""
    entries = []
    for option in CLIENT_METRICS:
        synonyms: tuple[Synonym, ...] = ()
        value = option.default
        if option.name in overrides:
            value = option.parse(overrides[option.name])
            synonyms = (Synonym(option.name, format_value(value), Source.CLIENT_METRICS),)
        entries.append(_entry(option, value, synonyms, read_only=False))
    return sorted(entries, key=lambda entry: entry.name)
