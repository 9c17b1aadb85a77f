"""The options of connectors, transforms and converters as data, as Kafka's ConfigDef has them.

The REST API's plug-in definitions, validation, the command line and the console's forms are made from these declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from barnabas.connect.errors import OptionError


class Type(StrEnum):
    """The type of a value."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(StrEnum):
    """How much an option matters."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """How wide its field in a form is."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class _Required:
    """In place of a default: the option must be given."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
LIMITS: Final = {
    Type.INT: (-(1 << 31), (1 << 31) - 1),
    Type.SHORT: (-(1 << 15), (1 << 15) - 1),
    Type.LONG: (-(1 << 63), (1 << 63) - 1),
}
HIDDEN: Final = "[hidden]"

Config = Mapping[str, Any]
"""Parsed values by name. Options that are not declared keep their texts."""


@dataclass(frozen=True, slots=True)
class ConnectorOption:
    """One option.

    default: a value of its type or its text; REQUIRED without one; None is null. check: a rule; returns what is wrong with
    a value as the end of a sentence, or None. choices: the allowed values. lo, hi: inclusive limits of numbers.
    recommended: proposals for the other values given so far. dependents: the options whose proposals depend on it.
    """

    name: str
    type: Type = Type.STRING
    default: Any = REQUIRED
    importance: Importance = Importance.MEDIUM
    doc: str = ""
    check: Callable[[Any], str | None] | None = None
    choices: tuple[str, ...] = ()
    lo: float | None = None
    hi: float | None = None
    group: str | None = None
    width: Width = Width.NONE
    display_name: str | None = None
    dependents: tuple[str, ...] = ()
    recommended: Callable[[Mapping[str, Any]], Sequence[Any]] | None = None
    order: int | None = None

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED

    def parsed(self, text: Any) -> Any:
        """The value of a text, or of a default. Raises OptionError in Kafka's words."""
        value = _parse(self.name, self.type, text)
        wrong = self._wrong(value)
        if wrong is not None:
            shown = HIDDEN if self.type is Type.PASSWORD else value
            raise OptionError(f"Invalid value {shown} for configuration {self.name}: {wrong}", self.name)
        return value

    def _wrong(self, value: Any) -> str | None:
        if value is None:
            return None
        if self.choices:
            items = value if isinstance(value, list) else [value]
            if any(str(part).lower() not in map(str.lower, self.choices) for part in items):
                return f"String must be one of: {', '.join(self.choices)}"
        if self.lo is not None and value < self.lo:
            return f"Value must be at least {self.lo:g}"
        if self.hi is not None and value > self.hi:
            return f"Value must be no more than {self.hi:g}"
        return None if self.check is None else self.check(value)


@dataclass(slots=True)
class ConfigValue:
    """What validation found about one option."""

    name: str
    value: Any = None
    recommended: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """Options in their order."""

    options: tuple[ConnectorOption, ...] = ()

    def __add__(self, more: Iterable[ConnectorOption] | ConfigDef) -> ConfigDef:
        rows = more.options if isinstance(more, ConfigDef) else tuple(more)
        named = {option.name: option for option in (*self.options, *rows)}
        return ConfigDef(tuple(named.values()))

    def parse(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """All values, with defaults; options that are not declared keep their texts. Raises OptionError."""
        values: dict[str, Any] = dict(texts)
        for option in self.options:
            if option.name in texts:
                values[option.name] = option.parsed(texts[option.name])
            elif isinstance(option.default, _Required):
                raise OptionError(
                    f'Missing required configuration "{option.name}" which has no default value.', option.name
                )
            else:
                values[option.name] = option.parsed(option.default)
        return values

    def validate(self, texts: Mapping[str, Any]) -> dict[str, ConfigValue]:
        """What is wrong with each option, by name, and what may be proposed."""
        rows: dict[str, ConfigValue] = {}
        values: dict[str, Any] = {}
        for option in self.options:
            row = rows[option.name] = ConfigValue(option.name)
            try:
                if option.name in texts:
                    row.value = texts[option.name]
                    values[option.name] = row.value = option.parsed(texts[option.name])
                elif isinstance(option.default, _Required):
                    row.errors.append(
                        f'Missing required configuration "{option.name}" which has no default value.'
                    )
                else:
                    values[option.name] = row.value = option.parsed(option.default)
            except OptionError as error:
                row.errors.append(str(error))
        for option in self.options:
            if option.recommended is not None:
                try:
                    rows[option.name].recommended = list(option.recommended(values))
                except Exception as error:
                    rows[option.name].errors.append(str(error))
        return rows


def _parse(name: str, type: Type, text: Any) -> Any:
    if text is None:
        return None
    if type is Type.LIST:
        if isinstance(text, (list, tuple)):
            return list(text)
        stripped = str(text).strip()
        return [part.strip() for part in stripped.split(",")] if stripped else []
    if type is Type.PASSWORD:
        return str(text)
    text = text.strip() if isinstance(text, str) else text
    if type is Type.BOOLEAN:
        if isinstance(text, bool):
            return text
        if str(text).lower() in ("true", "false"):
            return str(text).lower() == "true"
        raise OptionError(
            f"Invalid value {text} for configuration {name}: Expected value to be either true or false", name
        )
    if type in LIMITS:
        return _integer(name, type, text)
    if type is Type.DOUBLE:
        try:
            return float(text)
        except (TypeError, ValueError):
            raise OptionError(
                f"Invalid value {text} for configuration {name}: Not a number of type DOUBLE", name
            ) from None
    return str(text).lower() if isinstance(text, bool) else str(text)


def _integer(name: str, type: Type, text: Any) -> int:
    lo, hi = LIMITS[type]
    if isinstance(text, int) or (isinstance(text, str) and re.fullmatch(r"[+-]?[0-9]{1,20}", text)):
        value = int(text)
        if lo <= value <= hi:
            return value
    raise OptionError(f"Invalid value {text} for configuration {name}: Not a number of type {type}", name)


def not_empty(value: Any) -> str | None:
    """A rule: some text."""
    return None if value else "String must be non-empty"


def is_regex(value: str) -> str | None:
    """A rule: a regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        return f"Invalid regex: {error}"
    return None
