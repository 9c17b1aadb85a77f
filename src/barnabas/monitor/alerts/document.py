"""Reads mappings of a YAML text by tables of fields; each mistake is reported with its line and with what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import yaml

DURATION: Final = re.compile(r"(\d{1,6})\s*(ms|s|m|h|d|w)")
UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
CLOCK: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class Mistake(NamedTuple):
    """Something in the file that is not allowed. line: counted from 1."""

    line: int
    text: str


class Reader:
    """Collects the mistakes of one text."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def wrong(self, node: yaml.Node, text: str) -> None:
        """Note a mistake."""
        self.mistakes.append(Mistake(node.start_mark.line + 1, text))

    def root(self, text: str) -> yaml.Node | None:
        """The text's only document; None if it is empty or no YAML."""
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = 1 if mark is None else mark.line + 1
            self.mistakes.append(Mistake(line, f"not YAML: {getattr(error, 'problem', None) or error}"))
            return None
        except RecursionError:
            self.mistakes.append(Mistake(1, "not YAML that can be read: it is nested too deeply"))
            return None
        return node


class Field(NamedTuple):
    """A field of a mapping. read: its value, from its node; notes a mistake and returns None if it is wrong."""

    read: Callable[[Reader, str, yaml.Node], Any]
    is_required: bool = False
    default: Any = None


def mapping(reader: Reader, what: str, node: yaml.Node, fields: Mapping[str, Field]) -> dict[str, Any]:
    """The values of a mapping's fields, defaults in place of those that are missing or wrong."""
    values = {name: field.default for name, field in fields.items()}
    entries_read = entries(reader, what, node)
    for name, (key, value) in entries_read.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            reader.wrong(key, f"{what} has no {name!r}{hint} allowed: {', '.join(fields)}")
            continue
        read = fields[name].read(reader, f"{what}: {name}", value)
        if read is not None:
            values[name] = read
    for name, field in fields.items():
        if field.is_required and name not in entries_read:
            reader.wrong(node, f"{what} needs {name!r}")
    return values


def entries(reader: Reader, what: str, node: yaml.Node) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """Key and value nodes of a mapping by key; a key that stands there twice is a mistake."""
    if not isinstance(node, yaml.MappingNode):
        reader.wrong(node, f"{what} must be a mapping (name: value)")
        return {}
    by_name: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else None
        if name is None:
            reader.wrong(key, f"{what} has a key that is no name")
        elif name in by_name:
            reader.wrong(key, f"{what} names {name!r} twice")
        else:
            by_name[name] = (key, value)
    return by_name


def items(reader: Reader, what: str, node: yaml.Node) -> list[yaml.Node]:
    """The nodes of a list."""
    if not isinstance(node, yaml.SequenceNode):
        reader.wrong(node, f"{what} must be a list (- ...)")
        return []
    return list(node.value)


# --- values ---------------------------------------------------------------------------------------------


def text(reader: Reader, what: str, node: yaml.Node) -> str | None:
    """A text that is not empty."""
    if isinstance(node, yaml.ScalarNode) and node.value and node.tag != "tag:yaml.org,2002:null":
        return str(node.value)
    reader.wrong(node, f"{what} must be a text")
    return None


def texts(reader: Reader, what: str, node: yaml.Node) -> tuple[str, ...] | None:
    """A text, or a list of texts."""
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    texts_read = [text(reader, what, one) for one in nodes]
    return tuple(one for one in texts_read if one is not None)


def number(least: float, most: float) -> Callable[[Reader, str, yaml.Node], float | None]:
    """A number between two others, which belong to it."""

    def read(reader: Reader, what: str, node: yaml.Node) -> float | None:
        try:
            value = float(node.value) if isinstance(node, yaml.ScalarNode) else None
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            reader.wrong(node, f"{what} must be a number between {least:g} and {most:g}")
            return None
        return value

    return read


def duration(reader: Reader, what: str, node: yaml.Node) -> float | None:
    """A time in seconds: 30s, 5m, 2h, 1d."""
    match = DURATION.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    if match is None:
        reader.wrong(node, f"{what} must be a duration such as 30s, 5m, 2h or 1d")
        return None
    return float(int(match[1]) * UNITS_S[match[2]])


def clock(reader: Reader, what: str, node: yaml.Node) -> int | None:
    """A time of the day as minutes since midnight: "22:00"."""
    match = CLOCK.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    if match is None:
        reader.wrong(node, f'{what} must be a time such as "22:00"')
        return None
    return int(match[1]) * 60 + int(match[2])


def choice(*allowed: str) -> Callable[[Reader, str, yaml.Node], str | None]:
    """One of some words."""

    def read(reader: Reader, what: str, node: yaml.Node) -> str | None:
        value = node.value if isinstance(node, yaml.ScalarNode) else None
        if value not in allowed:
            reader.wrong(node, f"{what} is {value!r}; allowed: {', '.join(allowed)}")
            return None
        return str(value)

    return read


def choices(*allowed: str) -> Callable[[Reader, str, yaml.Node], tuple[str, ...] | None]:
    """One or several of some words."""
    one = choice(*allowed)

    def read(reader: Reader, what: str, node: yaml.Node) -> tuple[str, ...] | None:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        words = [one(reader, what, item) for item in nodes]
        return tuple(word for word in words if word is not None)

    return read
