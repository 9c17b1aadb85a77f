"""The records of the topic `_schemas`, in Confluent's format: keys and values are JSON. Pure.

The topic is compacted by the bytes of its keys, so keys are encoded exactly as in Confluent's registry: without spaces,
names in the same order. If another program encoded a key differently, its bytes are reused (`State.raw_keys`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.registry.model import Config, Content, Level, Mode, Version
from barnabas.registry.subjects import GLOBAL, Subject, parse_subject
from barnabas.schemas.model import AVRO, TYPES, Reference

TOPIC: Final = "_schemas"
INT_MAX: Final = (1 << 31) - 1


class Key(NamedTuple):
    """kind: Confluent's keytype. subject: for CONTEXT, the context; None if the key has none. version: 0 if none."""

    kind: str
    subject: str | None = None
    version: int = 0

    def encode(self) -> bytes:
        """The key's bytes as Confluent writes them."""
        if self.kind == "SCHEMA":
            fields: dict[str, Any] = {"keytype": self.kind, "subject": self.subject, "version": self.version}
            return _dump({**fields, "magic": 1})
        if self.kind == "NOOP":
            return _dump({"keytype": self.kind, "magic": 0})
        if self.kind == "CONTEXT":
            return _dump({"keytype": self.kind, "tenant": "default", "context": self.subject, "magic": 0})
        return _dump({"keytype": self.kind, "subject": self.subject, "magic": 0})


class Entry(NamedTuple):
    """One record. value: None for a tombstone."""

    key: Key
    value: Mapping[str, Any] | None

    def encode_value(self) -> bytes | None:
        """The value's bytes."""
        return None if self.value is None else _dump(self.value)


class BadRecord(ValueError):
    """A record of the topic cannot be read; it is skipped and logged."""


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode(key: bytes | None, value: bytes | None) -> Entry:
    """Parse the key and value of a record. Raises BadRecord."""
    try:
        fields = json.loads(key or b"")
        kind = str(fields["keytype"])
        name = fields.get("context") if kind == "CONTEXT" else fields.get("subject")
        subject = None if name is None else str(name)
        version = _number(fields.get("version") or 0, "version")
        document = json.loads(value) if value else None
        if document is not None and not isinstance(document, dict):
            raise BadRecord("the value is not a JSON object")
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(f"{type(error).__name__}: {error}") from error
    return Entry(Key(kind, subject, version), document)


def schema_entry(version: Version) -> Entry:
    """The record of one version."""
    name = str(version.subject)
    value: dict[str, Any] = {
        "subject": name,
        "version": version.version,
        "id": version.id,
        "guid": version.guid,
    }
    value.update(version.content.as_json())
    value["deleted"] = version.deleted
    return Entry(Key("SCHEMA", name, version.version), value)


def _without_nulls(node: Any) -> Any:
    """Metadata or rules without the nulls and empty lists that other registries write for absent parts."""
    if isinstance(node, dict):
        cleaned = {name: _without_nulls(value) for name, value in node.items()}
        return {name: value for name, value in cleaned.items() if value not in (None, [], {})} or None
    return [_without_nulls(item) for item in node] if isinstance(node, list) else node


def _number(number: Any, name: str, low: int = 0) -> int:
    """An id or a version. Raises BadRecord if it is no number, or does not fit into the 32 bits that clients have for it."""
    if type(number) is not int or not low <= number <= INT_MAX:
        raise BadRecord(f"{name} {str(number)[:40]!r} is not a number from {low} to {INT_MAX}")
    return number


def _is_list_of(kind: type, items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, kind) for item in items)


def _metadata(metadata: Any) -> Any:
    """Metadata without nulls. Raises BadRecord if a part of it has the wrong type."""
    cleaned = _without_nulls(metadata)
    if cleaned is None:
        return None
    if (
        isinstance(cleaned, dict)
        and isinstance(tags := cleaned.get("tags", {}), dict)
        and all(_is_list_of(str, names) for names in tags.values())
        and isinstance(properties := cleaned.get("properties", {}), dict)
        and _is_list_of(str, list(properties.values()))
        and _is_list_of(str, cleaned.get("sensitive", []))
    ):
        return cleaned
    raise BadRecord("the metadata has parts of a wrong type")


def _rules(rules: Any) -> Any:
    """A rule set without nulls. Raises BadRecord if a part of it has the wrong type."""
    cleaned = _without_nulls(rules)
    if cleaned is None:
        return None
    if not isinstance(cleaned, dict):
        raise BadRecord("the rule set is not an object")
    for part, rows in cleaned.items():
        if part == "enableAt":
            continue
        if not _is_list_of(dict, rows) or not all(isinstance(rule.get("name"), str) for rule in rows):
            raise BadRecord(f"the rule set's {part} is not a list of rules with names")
    return cleaned


def read_version(value: Mapping[str, Any]) -> Version:
    """Parse the value of a SCHEMA record. Raises BadRecord."""
    try:
        content = Content(
            str(value.get("schemaType") or AVRO),
            str(value["schema"]),
            tuple(
                Reference(str(r["name"]), str(r["subject"]), _number(r["version"], "version", -1))
                for r in value.get("references") or ()
            ),
            _metadata(value.get("metadata")),
            _rules(value.get("ruleSet")),
        )
        if content.type not in TYPES:
            raise BadRecord(f"schemaType {content.type!r} is unknown")
        return Version(
            parse_subject(str(value["subject"])),
            _number(value["version"], "version"),
            _number(value["id"], "id"),
            content,
            str(value.get("guid") or content.guid),
            bool(value.get("deleted")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadRecord(f"{type(error).__name__}: {error}") from error


def read_deleted_version(value: Mapping[str, Any]) -> int:
    """Up to which version a DELETE_SUBJECT or CLEAR_SUBJECT record deletes. Raises BadRecord."""
    return _number(value.get("version") or 0, "version")


def read_ids_given(value: Mapping[str, Any] | None) -> dict[str, int]:
    """The highest id of each context, from the value of a NOOP record. Raises BadRecord."""
    ids = (value or {}).get("idsGiven") or {}
    if not isinstance(ids, dict):
        raise BadRecord(f"idsGiven is {ids!r}, not an object of numbers")
    return {context: _number(id_max, "id") for context, id_max in ids.items()}


CONFIG_NAMES: Final = {
    "alias": "alias",
    "normalize": "normalize",
    "validateFields": "validate_fields",
    "validateRules": "validate_rules",
    "validateNewSchemas": "validate_new_schemas",
    "compatibilityLevel": "compatibility",
    "compatibilityPolicy": "compatibility_policy",
    "compatibilityGroup": "compatibility_group",
    "defaultMetadata": "default_metadata",
    "overrideMetadata": "override_metadata",
    "defaultRuleSet": "default_rules",
    "overrideRuleSet": "override_rules",
}
"""Names in records and responses, and their fields. Requests that change settings have `compatibility` for
`compatibilityLevel`."""


TEXTS: Final = frozenset({"alias", "compatibility", "compatibility_policy", "compatibility_group"})


def config_json(config: Config) -> dict[str, Any]:
    """The settings that are set, by their names in records and responses."""
    fields = ((name, getattr(config, field)) for name, field in CONFIG_NAMES.items())
    return {name: value for name, value in fields if value is not None}


def config_entry(scope: Subject, config: Config | None) -> Entry:
    """The record that changes the settings of a scope. None: deletes them."""
    value = None if config is None else {"subject": scope.key, **config_json(config)}
    return Entry(Key("CONFIG", scope.key), value)


def read_config(value: Mapping[str, Any]) -> Config:
    """Parse the value of a CONFIG record. Raises BadRecord."""
    settings = {field: value[name] for name, field in CONFIG_NAMES.items() if value.get(name) is not None}
    for field, content in settings.items():
        if field in ("default_metadata", "override_metadata"):
            settings[field] = _metadata(content)
        elif field in ("default_rules", "override_rules"):
            settings[field] = _rules(content)
        elif not isinstance(content, str if field in TEXTS else bool):
            raise BadRecord(f"{field} {str(content)[:40]!r} has the wrong type")
    try:
        if "compatibility" in settings:
            settings["compatibility"] = Level(settings["compatibility"])
        return Config(**settings)
    except ValueError as error:
        raise BadRecord(str(error)) from error


def mode_entry(scope: Subject, mode: Mode | None) -> Entry:
    """The record that changes the mode of a scope. None: deletes it."""
    value = None if mode is None else {"subject": scope.key, "mode": mode.value}
    return Entry(Key("MODE", scope.key), value)


def delete_subject_entry(subject: Subject, version: int) -> Entry:
    """The record that soft-deletes a subject's versions up to this one."""
    return Entry(Key("DELETE_SUBJECT", str(subject)), {"subject": str(subject), "version": version})


def tombstone(subject: Subject, version: int) -> Entry:
    """The record that deletes a version permanently."""
    return Entry(Key("SCHEMA", str(subject), version), None)


def context_entry(context: str, *, gone: bool = False) -> Entry:
    """The record that creates a context. gone: the one that deletes it."""
    return Entry(Key("CONTEXT", context), None if gone else {"tenant": "default", "context": context})


def noop_entry(ids_given: Mapping[str, int]) -> Entry:
    """A record that changes no schema: once a new writer has read it back, it has read everything before it.

    Its value, which other registries ignore, holds the highest id assigned in each context: after a schema has been
    deleted permanently and the topic compacted, no other record shows that its id was assigned.
    """
    return Entry(Key("NOOP"), {"idsGiven": dict(ids_given)})


def scope_of(subject: str | None) -> Subject:
    """The scope that a CONFIG or MODE key names. None: the whole registry."""
    return GLOBAL if subject is None else parse_subject(subject)
