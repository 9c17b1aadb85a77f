"""The description of a configuration option: its name, type, default, limits, and what Barnabas does with it.

Options are data. The loader, DescribeConfigs, AlterConfigs, `--help` and docs/configuration.md all
read the same declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Final, Generic, NotRequired, TypedDict, TypeVar, Unpack, cast

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
HIDDEN: Final = "[hidden]"

T = TypeVar("T")


class OptionType(IntEnum):
    """The type of an option's value; the numbers are DescribeConfigs' `config_type`."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


INTEGER_RANGE: Final = {
    OptionType.SHORT: (-(1 << 15), (1 << 15) - 1),
    OptionType.INT: (-INT_MAX - 1, INT_MAX),
    OptionType.LONG: (-LONG_MAX - 1, LONG_MAX),
}


class Mode(Enum):
    """When a value may change: only at a restart, per broker, or also for the whole cluster."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER = "cluster-wide"


class Mark(Enum):
    """What Barnabas does with a value."""

    WORKS = "works"
    STORED = "stored and shown"
    IGNORED = "accepted, no effect"


class ConfigError(ValueError):
    """A value was refused. One line: the place, the option, the value, what is allowed."""


def refused(name: str, value: object, why: str) -> ConfigError:
    """The error for a value of option `name`, in Kafka's words. why: what is allowed."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}")


class Rules(TypedDict, total=False):
    """What a declaration may add to name, default and doc."""

    lo: NotRequired[float]
    hi: NotRequired[float]
    choices: NotRequired[tuple[str, ...]]
    check: NotRequired[Callable[[Any], str | None]]
    mode: NotRequired[Mode]
    topic: NotRequired[str]
    mark: NotRequired[Mark]
    internal: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One declared option.

    lo, hi: inclusive limits of a number. choices: allowed strings, or allowed list elements.
    check: a further rule; returns what is allowed if it refuses the value, otherwise None.
    topic: the topic config whose default this broker option is. internal: hidden from
    DescribeConfigs. A default of None is Kafka's null.
    """

    name: str
    kind: OptionType
    default: T
    doc: str
    lo: float | None = None
    hi: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    mode: Mode = Mode.READ_ONLY
    topic: str | None = None
    mark: Mark = Mark.STORED
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.kind is OptionType.PASSWORD

    @property
    def read_only(self) -> bool:
        """Whether a change requires a restart."""
        return self.mode is Mode.READ_ONLY

    def allowed(self) -> str:
        """The values that the option accepts, in words that end a sentence."""
        if self.choices:
            listed = ", ".join(choice or "(empty)" for choice in self.choices)
            return (
                f"a comma-separated list of: {listed}"
                if self.kind is OptionType.LIST
                else f"one of: {listed}"
            )
        if self.kind in INTEGER_RANGE:
            lo, hi = INTEGER_RANGE[self.kind]
            lo, hi = lo if self.lo is None else int(self.lo), hi if self.hi is None else int(self.hi)
            return f"a whole number from {lo} to {hi}"
        if self.kind is OptionType.DOUBLE:
            return f"a number{_limits(self.lo, self.hi)}"
        if self.kind is OptionType.BOOLEAN:
            return "true or false"
        return {OptionType.LIST: "a comma-separated list", OptionType.CLASS: "a class name"}.get(
            self.kind, "text"
        )

    def parse(self, text: str) -> T:
        """The value of a text. Raises ConfigError naming option, value and what is allowed."""
        value, why = _parse(self.kind, text.strip())
        why = self._refusal(value) if why is None else f"{why} (allowed: {self.allowed()})"
        if why is not None:
            raise refused(self.name, HIDDEN if self.sensitive else text, why)
        return cast(T, value)

    def format(self, value: T) -> str | None:
        """A value as shown by DescribeConfigs; None for null."""
        return None if self.sensitive else format_value(value)

    def _refusal(self, value: Any) -> str | None:
        if self.lo is not None and value < self.lo:
            return f"Value must be at least {self.lo} (allowed: {self.allowed()})"
        if self.hi is not None and value > self.hi:
            return f"Value must be no more than {self.hi} (allowed: {self.allowed()})"
        if self.choices:
            for item in value if self.kind is OptionType.LIST else (value,):
                if item not in self.choices:
                    return f"{item!r} must be {self.allowed()}" if item else f"must be {self.allowed()}"
        return None if self.check is None else self.check(value)


def _limits(lo: float | None, hi: float | None) -> str:
    if lo is not None and hi is not None:
        return f" from {lo} to {hi}"
    if lo is not None:
        return f" of at least {lo}"
    return "" if hi is None else f" of at most {hi}"


def _parse(kind: OptionType, text: str) -> tuple[object, str | None]:
    """(value, None), or (None, why the text is refused)."""
    if kind in INTEGER_RANGE:
        return _parse_integer(kind, text)
    if kind is OptionType.BOOLEAN:
        lowered = text.lower()
        if lowered in ("true", "false"):
            return lowered == "true", None
        return None, "Expected value to be either true or false"
    if kind is OptionType.DOUBLE:
        try:
            return float(text), None
        except ValueError:
            return None, "Not a number of type DOUBLE"
    if kind is OptionType.LIST:
        return tuple(part.strip() for part in text.split(",")) if text else (), None
    return text, None


def _parse_integer(kind: OptionType, text: str) -> tuple[object, str | None]:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # int() also accepts 1_000 and digits of other scripts; Java's parser does not.
    if not (digits.isascii() and digits.isdigit()):
        return None, f"Not a number of type {kind.name}"
    value = int(text)
    lo, hi = INTEGER_RANGE[kind]
    if not lo <= value <= hi:
        return None, f"Not a number of type {kind.name}"
    return value, None


def format_value(value: object) -> str | None:
    """A value as Kafka writes it: true/false, a,b,c, 0.5; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return double_text(value)
    return str(value)


def double_text(value: float) -> str:
    """A double as Java's Double.toString writes it: 0.5, 1.0E-5, 1.0E7."""
    if value == LONG_MAX:
        return "9.223372036854775807E18"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{Decimal(repr(value)):E}".partition("E")
    mantissa = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"


class OptionTable:
    """A group of related options; declares them and keeps their order."""

    def __init__(self, title: str, *parts: OptionTable) -> None:
        self.title = title
        self._by_name: dict[str, Option[Any]] = {}
        for part in parts:
            for option in part:
                self.add(option)

    def add(self, option: Option[T]) -> Option[T]:
        """Declare one option. Its name must be new in this table."""
        assert option.name not in self._by_name, option.name
        self._by_name[option.name] = option
        return option

    def __iter__(self) -> Iterator[Option[Any]]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Option[Any]:
        return self._by_name[name]

    def find(self, name: str) -> Option[Any] | None:
        """The option with this name, or None."""
        return self._by_name.get(name)

    def names(self) -> Iterable[str]:
        """All names, in order of declaration."""
        return self._by_name.keys()

    def boolean(self, name: str, default: bool, doc: str, **rules: Unpack[Rules]) -> Option[bool]:
        """Declare a true/false option."""
        return self.add(Option(name, OptionType.BOOLEAN, default, doc, **rules))

    def integer(self, name: str, default: int, doc: str, **rules: Unpack[Rules]) -> Option[int]:
        """Declare an int32 option."""
        return self.add(Option(name, OptionType.INT, default, doc, **rules))

    def integer_or_null(self, name: str, doc: str, **rules: Unpack[Rules]) -> Option[int | None]:
        """Declare an int32 option whose default is null."""
        option: Option[int | None] = Option(name, OptionType.INT, None, doc, **rules)
        return self.add(option)

    def short(self, name: str, default: int, doc: str, **rules: Unpack[Rules]) -> Option[int]:
        """Declare an int16 option."""
        return self.add(Option(name, OptionType.SHORT, default, doc, **rules))

    def long(self, name: str, default: int, doc: str, **rules: Unpack[Rules]) -> Option[int]:
        """Declare an int64 option."""
        return self.add(Option(name, OptionType.LONG, default, doc, **rules))

    def long_or_null(self, name: str, doc: str, **rules: Unpack[Rules]) -> Option[int | None]:
        """Declare an int64 option whose default is null."""
        option: Option[int | None] = Option(name, OptionType.LONG, None, doc, **rules)
        return self.add(option)

    def double(self, name: str, default: float, doc: str, **rules: Unpack[Rules]) -> Option[float]:
        """Declare a floating-point option."""
        return self.add(Option(name, OptionType.DOUBLE, default, doc, **rules))

    def string(self, name: str, default: str, doc: str, **rules: Unpack[Rules]) -> Option[str]:
        """Declare a text option."""
        return self.add(Option(name, OptionType.STRING, default, doc, **rules))

    def string_or_null(self, name: str, doc: str, **rules: Unpack[Rules]) -> Option[str | None]:
        """Declare a text option whose default is null."""
        option: Option[str | None] = Option(name, OptionType.STRING, None, doc, **rules)
        return self.add(option)

    def strings(
        self, name: str, default: tuple[str, ...], doc: str, **rules: Unpack[Rules]
    ) -> Option[tuple[str, ...]]:
        """Declare a comma-separated list of texts."""
        return self.add(Option(name, OptionType.LIST, default, doc, **rules))

    def strings_or_null(self, name: str, doc: str, **rules: Unpack[Rules]) -> Option[tuple[str, ...] | None]:
        """Declare a comma-separated list whose default is null."""
        option: Option[tuple[str, ...] | None] = Option(name, OptionType.LIST, None, doc, **rules)
        return self.add(option)

    def class_name(
        self, name: str, default: str | None, doc: str, **rules: Unpack[Rules]
    ) -> Option[str | None]:
        """Declare an option that names a class."""
        return self.add(Option(name, OptionType.CLASS, default, doc, **rules))

    def password(self, name: str, doc: str, **rules: Unpack[Rules]) -> Option[str | None]:
        """Declare a secret; its default is null and its value is never shown."""
        option: Option[str | None] = Option(name, OptionType.PASSWORD, None, doc, **rules)
        return self.add(option)
