"""An option of an HTTP service as data; its own command and `barnabas start --with` are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.terminal.errors import UsageError


class ServiceOption(NamedTuple):
    """One option. kind: the type of its value; numbers must be positive unless `any_number`.

    default: None if there is none; help then says what happens. repeats: whether it may be given several times.
    names: on the command line; `--` and the option's word if empty. env: the variable that it is read from.
    is_argument: whether it is given without a name, and may be repeated. in_start: whether `barnabas start --with` has it
    as well, as `--SERVICE-WORD`.
    """

    metavar: str
    help: str
    kind: type[Path] | type[str] | type[int] | type[float] = Path
    default: Any = None
    repeats: bool = False
    names: tuple[str, ...] = ()
    env: str | None = None
    any_number: bool = False
    is_argument: bool = False
    in_start: bool = False

    def names_of(self, word: str) -> tuple[str, ...]:
        """Its names on the command line."""
        return self.names or (f"--{word}",)


MEGABYTE: Final = 1 << 20
COMMON: Final = {
    "body-mb": ServiceOption("MB", "The largest request body.", int, 16),
    "timeout-s": ServiceOption("SECONDS", "How long a request may take.", float, 60.0),
}
"""The limits of every service."""


def field_of(word: str) -> str:
    """The name of an option's value in Python."""
    return word.replace("-", "_")


def defaults(options: Mapping[str, ServiceOption]) -> dict[str, Any]:
    """The values of options that nobody has given, by field."""
    return {field_of(word): option.default for word, option in options.items()}


def require_positive(options: Mapping[str, ServiceOption], values: Mapping[str, Any]) -> None:
    """Raises UsageError for a number that is not positive though it has to be."""
    for word, option in options.items():
        value = values[field_of(word)]
        if option.kind in (int, float) and not option.any_number and value is not None and not value > 0:
            name = next(name for name in option.names_of(word) if name.startswith("--"))
            raise UsageError(f"{name} {value} is not a positive number")
