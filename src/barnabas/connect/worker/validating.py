"""Checks a connector's configuration, with what the REST API says about it. Source: Kafka's ConfigInfos, AbstractHerder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.connect.connectors import Connector, SourceConnector
from barnabas.connect.converters.finding import converter_class, prefixed
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.options import (
    HIDDEN,
    REQUIRED,
    ConfigDef,
    ConfigValue,
    ConnectorOption,
    Importance,
    Type,
)
from barnabas.connect.plugins import SOURCE, Plugin, find_plugin
from barnabas.connect.transforms.chain import aliases
from barnabas.connect.transforms.finding import predicate_class, transform_class
from barnabas.connect.worker import common, creating
from barnabas.connect.worker.planning import definition_of
from barnabas.connect.worker.settings import PRINCIPAL, WorkerOptions, policy_name

DUPLICATE: Final = "topics and topics.regex are mutually exclusive options, but both are set."
NEITHER: Final = "Must configure one of topics or topics.regex"


def default_text(option: ConnectorOption) -> str | None:
    """A default as Kafka shows it."""
    return None if option.default is REQUIRED else shown(option.type, option.default)


def shown(kind: Type, value: Any) -> str | None:
    """A value as Kafka shows it."""
    if value is None:
        return None
    if kind is Type.PASSWORD:
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value)


def definition_json(option: ConnectorOption, order: int) -> dict[str, Any]:
    """ConfigKeyInfo."""
    return {
        "name": option.name,
        "type": option.type.value,
        "required": option.required,
        "default_value": default_text(option),
        "importance": option.importance.value,
        "documentation": option.doc,
        "group": option.group,
        "order_in_group": order if option.order is None else option.order,
        "width": option.width.value,
        "display_name": option.display_name or option.name,
        "dependents": list(option.dependents),
    }


def definitions_json(definition: ConfigDef) -> list[dict[str, Any]]:
    """The options of a plug-in."""
    counted: dict[str | None, int] = {}
    rows = []
    for option in definition.options:
        counted[option.group] = counted.get(option.group, 0) + 1
        rows.append(definition_json(option, -1 if option.group is None else counted[option.group]))
    return rows


def validate(
    options: WorkerOptions, config: Mapping[str, str | None], asked: str | None = None
) -> dict[str, Any]:
    """ConfigInfos. asked: the plug-in that the path names. Raises OptionError if there is no such connector."""
    texts = {name: text for name, text in config.items() if text is not None}
    named = str(texts.get("connector.class") or "").strip()
    if not named:
        texts.pop("connector.class", None)
        return _unknown(texts)
    plugin = find_plugin(named)
    kind = plugin.load()
    if asked is not None and find_plugin(asked) is not plugin:
        raise OptionError(
            f"Included connector type {named} does not match request type {asked}", "connector.class"
        )
    definition = definition_of(plugin, kind)
    rows = _checked(options, definition, plugin, kind, texts)
    more = creating.declared(texts) if plugin.kind == SOURCE else []
    rows.update(ConfigDef(tuple(more)).validate(texts))
    for option, row in _nested(texts):
        more.append(option)
        rows[option.name] = row
    return infos(named, definition + more, rows)


OVERRIDES: Final = ("producer.override.", "consumer.override.", "admin.override.")


def _unknown(texts: Mapping[str, str]) -> dict[str, Any]:
    """Without a connector.class there is only what all connectors have."""
    return infos("", common.EVERY, common.EVERY.validate(texts))


def _checked(
    options: WorkerOptions,
    definition: ConfigDef,
    plugin: Plugin,
    kind: type[Connector],
    texts: Mapping[str, str],
) -> dict[str, ConfigValue]:
    try:
        expanded = options.expanded(texts)
    except OptionError as error:
        rows = definition.validate(texts)
        rows["name"].errors.append(str(error))
        return rows
    rows = definition.validate(expanded)
    if plugin.kind == SOURCE:
        assert issubclass(kind, SourceConnector)
        _check_source(kind, rows)
        topic = rows["offsets.storage.topic"]
        if topic.value and topic.value != options.offset_topic:
            topic.errors.append(
                f"Offsets are kept in the worker's topic {options.offset_topic} alone: name that one, or leave it out."
            )
    else:
        _check_sink(rows)
    for name, complaint in overrides_refused(options, expanded).items():
        rows.setdefault(name, ConfigValue(name, texts.get(name))).errors.append(complaint)
    if not any(row.errors for row in rows.values()):
        values = definition.parse(expanded)
        try:
            complaints = kind.check(values)
        except ConnectError as error:
            complaints = {getattr(error, "option", "") or "connector.class": str(error)}
        for name, lines_of_option in complaints.items():
            lines: Sequence[str] = [lines_of_option] if isinstance(lines_of_option, str) else lines_of_option
            rows.setdefault(name, ConfigValue(name, texts.get(name))).errors.extend(lines)
    for part in ("key.converter", "value.converter", "header.converter"):
        _check_converter(part, rows[part], expanded)
    return rows


def overrides_refused(options: WorkerOptions, texts: Mapping[str, str | None]) -> dict[str, str]:
    """The options of clients that the worker's policy does not let connectors override, with what to say."""
    policy = policy_name(str(options["connector.client.config.override.policy"]))
    allowed = {
        "None": (),
        "Principal": PRINCIPAL,
        "Allowlist": options["connector.client.config.override.allowlist"],
    }
    if policy not in allowed:
        return {}
    return {
        name: f"The '{policy}' policy does not allow '{client}' to be overridden in the connector configuration."
        for name in texts
        for part in OVERRIDES
        if name.startswith(part) and (client := name.removeprefix(part)) not in allowed[policy]
    }


def _check_source(kind: type[SourceConnector], rows: Mapping[str, ConfigValue]) -> None:
    row = rows["exactly.once.support"]
    values = {name: config_row.value for name, config_row in rows.items()}
    if str(row.value).lower() == "required" and not kind.exactly_once(values):
        row.errors.append(
            "The connector does not support exactly-once semantics with the provided configuration."
        )
    boundary = rows["transaction.boundary"]
    if str(boundary.value).lower() == "connector":
        boundary.errors.append(
            "The connector does not support connector-defined transaction boundaries. Use poll or interval."
        )
    elif str(boundary.value).lower() == "interval" and kind.waits_for_commits:
        boundary.errors.append(
            "The connector needs each poll to be committed before the next one: only poll is allowed."
        )


def _check_sink(rows: Mapping[str, ConfigValue]) -> None:
    topics, pattern = rows["topics"], rows["topics.regex"]
    if topics.value and pattern.value:
        topics.errors.append(DUPLICATE)
        pattern.errors.append(DUPLICATE)
    elif not topics.value and not pattern.value:
        topics.errors.append(NEITHER)
        pattern.errors.append(NEITHER)
    dead = rows["errors.deadletterqueue.topic.name"].value
    if dead and dead in (topics.value or ()):
        topics.errors.append(
            f"The DLQ topic '{dead}' may not be included in the list of topics (\"topics\"={dead}) consumed by the connector"
        )


def _check_converter(part: str, row: ConfigValue, texts: Mapping[str, str]) -> None:
    name = texts.get(part)
    if not name or (part == "header.converter" and name.endswith("SimpleHeaderConverter")):
        return
    try:
        converter_class(name)().configure(prefixed(texts, f"{part}."), part == "key.converter")
    except OptionError as error:
        row.errors.append(f"Invalid value {name} for configuration {part}: {error}")


def _nested(texts: Mapping[str, str]) -> list[tuple[ConnectorOption, ConfigValue]]:
    """The options of transforms and predicates."""
    pairs = []
    for kind, group in (("transforms", "Transforms"), ("predicates", "Predicates")):
        for alias in dict.fromkeys(aliases(texts, kind)):
            prefix = f"{kind}.{alias}."
            pairs += _of_alias(kind, f"{group}: {alias}", prefix, texts)
    return pairs


def _of_alias(
    kind: str, group: str, prefix: str, texts: Mapping[str, str]
) -> list[tuple[ConnectorOption, ConfigValue]]:
    type_option = ConnectorOption(
        f"{prefix}type",
        Type.CLASS,
        importance=Importance.HIGH,
        doc=f"Class for the alias of {kind}.",
        group=group,
    )
    row = ConfigDef((type_option,)).validate(texts)[type_option.name]
    pairs = [(type_option, row)]
    rows: list[ConnectorOption] = []
    if row.value:
        try:
            loaded = (
                transform_class(str(row.value))[0]
                if kind == "transforms"
                else predicate_class(str(row.value))
            )
            rows = list(loaded.options)
        except OptionError as error:
            row.errors.append(f"Invalid value {row.value} for configuration {type_option.name}: {error}")
    if kind == "transforms":
        rows += [
            ConnectorOption("predicate", default="", doc="The alias of a predicate."),
            ConnectorOption("negate", Type.BOOLEAN, False, doc="Whether the predicate is negated."),
        ]
    for option in rows:
        own = _renamed(option, f"{prefix}{option.name}", group)
        pairs.append((own, ConfigDef((own,)).validate(texts)[own.name]))
    named = texts.get(f"{prefix}predicate")
    if named and named not in aliases(texts, "predicates"):
        pairs[-2][1].errors.append(
            f"Invalid value {named} for configuration {prefix}predicate: no such predicate"
        )
    if row.value and not any(checked.errors for _, checked in pairs):
        _check_whole(kind, prefix, texts, row)
    return pairs


def _check_whole(kind: str, prefix: str, texts: Mapping[str, str], row: ConfigValue) -> None:
    from barnabas.connect.transforms.finding import make_predicate, make_transform

    alias = prefix.split(".", 1)[1].rstrip(".")
    try:
        make_transform(texts, alias) if kind == "transforms" else make_predicate(texts, alias)
    except OptionError as error:
        row.errors.append(str(error))


def _renamed(option: ConnectorOption, name: str, group: str) -> ConnectorOption:
    from dataclasses import replace

    return replace(option, name=name, group=group, recommended=None, dependents=())


def infos(named: str, definition: ConfigDef, rows: Mapping[str, ConfigValue]) -> dict[str, Any]:
    """The answer: every option with its definition and value, and values that no option declares but that are wrong."""
    by_name = {option.name: option for option in definition.options}
    configs = []
    shown_definitions = {row["name"]: row for row in definitions_json(definition)}
    for name, row in rows.items():
        option = by_name.get(name)
        kind = Type.STRING if option is None else option.type
        value = {
            "name": name,
            "value": shown(kind, row.value),
            "recommended_values": [str(one) for one in row.recommended],
            "errors": row.errors,
            "visible": row.visible,
        }
        configs.append({"definition": shown_definitions.get(name), "value": value})
    groups = list(dict.fromkeys(option.group for option in definition.options if option.group))
    return {
        "name": named,
        "error_count": sum(len(row.errors) for row in rows.values()),
        "groups": groups,
        "configs": configs,
    }


def messages(report: Mapping[str, Any]) -> list[str]:
    """The errors of an answer, one by one."""
    return [complaint for row in report["configs"] for complaint in row["value"]["errors"]]
