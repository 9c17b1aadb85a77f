"""Parses and checks what requests contain: bodies of JSON become values of the model. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.model import Config, Content, Level, Mode
from barnabas.schemas.model import AVRO, TYPES, Reference

VERSION_MAX: Final = (1 << 31) - 1
RULE_KINDS: Final = ("TRANSFORM", "CONDITION")
RULE_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN", "WRITE", "READ", "WRITEREAD")
RULE_LISTS: Final = ("migrationRules", "domainRules", "encodingRules")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The schema in a request. id, version: 0 if the request leaves them to the registry."""

    content: Content
    id: int = 0
    version: int = 0
    tags_to_add: tuple[Mapping[str, Any], ...] = ()
    tags_to_remove: tuple[Mapping[str, Any], ...] = ()


def read_wanted(body: Mapping[str, Any]) -> Wanted:
    """Parse the body of a registration, a look-up or a compatibility check. Raises RegistryError."""
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise _invalid("`schema` is missing: it must be a string that contains JSON or a .proto file")
    kind = body.get("schemaType") or AVRO
    if kind not in TYPES:
        raise _invalid(f"schemaType {kind!r} is not one of {', '.join(TYPES)}")
    content = Content(
        str(kind),
        text,
        _references(body.get("references")),
        read_metadata(body.get("metadata"), "metadata"),
        read_rules(body.get("ruleSet"), "ruleSet"),
    )
    return Wanted(
        content,
        _number(body, "id"),
        _number(body, "version"),
        _tags(body, "schemaTagsToAdd"),
        _tags(body, "schemaTagsToRemove"),
    )


def _invalid(message: str) -> RegistryError:
    return RegistryError(Code.INVALID_SCHEMA, message)


def _number(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if value is None or value == -1:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= VERSION_MAX:
        raise _invalid(f"{name} {value!r} is not a number from 1 to {VERSION_MAX}")
    return value


def _references(rows: Any) -> tuple[Reference, ...]:
    if rows is None:
        return ()
    if not isinstance(rows, list):
        raise _invalid("`references` is not a list of {name, subject, version}")
    references = []
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise _invalid(f"references/{index} is not an object with name, subject and version")
        name, subject, version = row.get("name"), row.get("subject"), row.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not name or not subject:
            raise _invalid(f"references/{index}: name and subject must be non-empty strings")
        if not isinstance(version, int) or isinstance(version, bool) or not (version == -1 or version > 0):
            raise _invalid(
                f"references/{index}: version {version!r} is neither a positive number nor -1 for the latest"
            )
        references.append(Reference(name, subject, version))
    names = [reference.name for reference in references]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _invalid(f"`references` contains the name {twice!r} more than once")
    return tuple(references)


def read_metadata(metadata: Any, where: str) -> dict[str, Any] | None:
    """Check metadata: tags by path, properties, names of sensitive ones. where: for messages. Raises RegistryError."""
    if not metadata:
        return None
    if not isinstance(metadata, dict):
        raise _invalid(f"{where} is not an object with tags, properties or sensitive")
    cleaned: dict[str, Any] = {}
    tags = metadata.get("tags")
    if tags:
        if not isinstance(tags, dict) or not all(_is_string_list(values) for values in tags.values()):
            raise _invalid(f"{where}/tags is not an object whose values are lists of strings")
        cleaned["tags"] = {path: sorted(set(values)) for path, values in sorted(tags.items())}
    properties = metadata.get("properties")
    if properties:
        if not isinstance(properties, dict) or not all(isinstance(v, str) for v in properties.values()):
            raise _invalid(f"{where}/properties is not an object whose values are strings")
        cleaned["properties"] = dict(sorted(properties.items()))
    sensitive = metadata.get("sensitive")
    if sensitive:
        if not _is_string_list(sensitive):
            raise _invalid(f"{where}/sensitive is not a list of property names")
        cleaned["sensitive"] = sorted(set(sensitive))
    return cleaned or None


def _is_string_list(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(value, str) for value in items)


def read_rules(rules: Any, where: str) -> dict[str, Any] | None:
    """Check a rule set; the names of rules must be unique within each list. Raises RegistryError 42210."""
    if not rules:
        return None
    if not isinstance(rules, dict):
        raise _bad_rule(f"{where} is not an object with {', '.join(RULE_LISTS)}")
    cleaned: dict[str, Any] = {}
    for part in RULE_LISTS:
        rows = rules.get(part)
        if not rows:
            continue
        if not isinstance(rows, list):
            raise _bad_rule(f"{where}/{part} is not a list of rules")
        seen: set[str] = set()
        for index, rule in enumerate(rows):
            _check_rule(rule, f"{where}/{part}/{index}")
            if rule["name"] in seen:
                raise _bad_rule(f"{where}/{part}/{index}: rule {rule['name']!r} exists already in this list")
            seen.add(rule["name"])
        cleaned[part] = [
            {name: value for name, value in rule.items() if value not in (None, [], {})} for rule in rows
        ]
    where_run = rules.get("enableAt")
    if cleaned and where_run is not None:
        if not isinstance(where_run, str):
            raise _bad_rule(f"{where}/enableAt is not a string")
        cleaned["enableAt"] = where_run
    return cleaned or None


def _bad_rule(message: str) -> RegistryError:
    return RegistryError(Code.INVALID_RULE_SET, message)


def _check_rule(rule: Any, where: str) -> None:
    if not isinstance(rule, dict) or not isinstance(rule.get("name"), str) or not rule["name"]:
        raise _bad_rule(f"{where}: the rule has no name")
    for name, allowed in (("kind", RULE_KINDS), ("mode", RULE_MODES)):
        value = rule.get(name)
        if value is not None and value not in allowed:
            raise _bad_rule(f"{where}: {name} {value!r} is not one of {', '.join(allowed)}")
    if not isinstance(rule.get("type") or "", str) or not isinstance(rule.get("expr") or "", str):
        raise _bad_rule(f"{where}: type and expr must be strings")


def _tags(body: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    rows = body.get(name) or []
    if not isinstance(rows, list):
        raise _invalid(f"{name} is not a list")
    for index, row in enumerate(rows):
        entity = row.get("schemaEntity") if isinstance(row, dict) else None
        if not isinstance(entity, dict) or not isinstance(entity.get("entityPath"), str):
            raise _invalid(f"{name}/{index}: schemaEntity with entityPath is missing")
        if not _is_string_list(row.get("tags")):
            raise _invalid(f"{name}/{index}: tags is not a list of strings")
    return tuple(rows)


def read_level(value: Any) -> Level:
    """Parse a compatibility level. Raises RegistryError 42203."""
    try:
        return Level(str(value).upper())
    except ValueError:
        allowed = ", ".join(level.value for level in Level)
        raise RegistryError(
            Code.INVALID_COMPATIBILITY, f"Invalid compatibility level {value!r}. Valid values are {allowed}"
        ) from None


def read_config(body: Mapping[str, Any]) -> Config:
    """Parse the body of a request that changes settings. Raises RegistryError."""
    level = body.get("compatibility", body.get("compatibilityLevel"))
    settings: dict[str, Any] = {"compatibility": None if level is None else read_level(level)}
    for name, field in (
        ("normalize", "normalize"),
        ("validateFields", "validate_fields"),
        ("validateRules", "validate_rules"),
        ("validateNewSchemas", "validate_new_schemas"),
    ):
        value = body.get(name)
        if value is not None and not isinstance(value, bool):
            raise RegistryError(Code.INVALID_COMPATIBILITY, f"{name} {value!r} is not true or false")
        settings[field] = value
    for name, field in (
        ("alias", "alias"),
        ("compatibilityGroup", "compatibility_group"),
        ("compatibilityPolicy", "compatibility_policy"),
    ):
        value = body.get(name)
        if value is not None and not isinstance(value, str):
            raise RegistryError(Code.INVALID_COMPATIBILITY, f"{name} {value!r} is not a string")
        settings[field] = value or None
    for name, field in (("defaultMetadata", "default_metadata"), ("overrideMetadata", "override_metadata")):
        settings[field] = read_metadata(body.get(name), name)
    for name, field in (("defaultRuleSet", "default_rules"), ("overrideRuleSet", "override_rules")):
        settings[field] = read_rules(body.get(name), name)
    return Config(**settings)


def read_mode(body: Mapping[str, Any]) -> Mode:
    """Parse the body of a request that changes a mode. Raises RegistryError 42204."""
    value = body.get("mode")
    try:
        return Mode(str(value).upper())
    except ValueError:
        allowed = ", ".join(mode.value for mode in Mode)
        raise RegistryError(
            Code.INVALID_MODE, f"Invalid mode {value!r}. Valid values are {allowed}"
        ) from None


LATEST: Final = -1


def read_version_number(text: str) -> int:
    """Parse a version in a path: a number, or `latest` or -1 for LATEST. Raises RegistryError 42202."""
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdigit() and 1 <= int(text[:11]) <= VERSION_MAX:
        return int(text)
    raise RegistryError(
        Code.INVALID_VERSION,
        f"The specified version {text!r} is not a valid version id. Allowed values are between [1, 2^31-1] "
        'and the string "latest"',
    )
