"""The checks that `validateRules` and `validateFields` demand: valid rules, and no reserved names of fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.library import Schema
from barnabas.registry.model import Config, Content
from barnabas.registry.requests import RULE_LISTS
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.expressions import BadExpression, check

RESERVED: Final = "confluent:reserved"
"""A metadata property: names, separated by commas, that top-level fields of the schema must not have."""
INTERNAL: Final = "$$"


def check_rules(content: Content, config: Config) -> None:
    """Raises RegistryError 42210 for a rule with an invalid expression, if the settings demand this check."""
    if not config.validate_rules:
        return
    for part in RULE_LISTS:
        for index, rule in enumerate((content.rules or {}).get(part) or ()):
            try:
                check((rule.get("type") or "").upper(), rule.get("expr") or "")
            except BadExpression as error:
                raise RegistryError(
                    Code.INVALID_RULE_SET, f"ruleSet/{part}/{index}: rule {rule['name']!r}: {error}"
                ) from error


def check_fields(parsed: Schema, config: Config) -> None:
    """Raises InvalidSchema for a field whose name is reserved for registries, if the settings demand this check."""
    if not config.validate_fields:
        return
    for name in parsed.field_names():
        if name.startswith(INTERNAL):
            raise InvalidSchema(f"field {name!r}: names of fields must not begin with {INTERNAL}; rename it")


def reserved_problems(
    parsed: Schema, content: Content, previous: Content | None, config: Config
) -> Iterator[str]:
    """Violations of the rules for reserved names, as reasons of incompatibility, if the settings demand this check."""
    if not config.validate_fields:
        return
    reserved = _reserved(content)
    for name in sorted(reserved & set(parsed.field_names())):
        yield (
            "{errorType:'FIELD_CONFLICTS_WITH_RESERVED_FIELD', description:'the schema has a field '"
            f"{name}', which its metadata reserves', additionalInfo:'rename the field'}}"
        )
    for name in sorted(_reserved(previous) - reserved) if previous is not None else ():
        yield (
            "{errorType:'RESERVED_FIELD_REMOVED', description:'the name '"
            f"{name}' is reserved by the previous version, but not by this one', "
            f"additionalInfo:'keep it in the property {RESERVED}'}}"
        )


def _reserved(content: Content) -> set[str]:
    properties: Mapping[str, Any] = (content.metadata or {}).get("properties") or {}
    return {name.strip() for name in str(properties.get(RESERVED, "")).split(",")} - {""}
