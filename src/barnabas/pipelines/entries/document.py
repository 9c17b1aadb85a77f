"""YAML with line numbers: every value has its place in the file, which error messages name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from barnabas.pipelines.plan.errors import PipelineError, suggestion

DURATION: Final = re.compile(r"\d+\s*(milliseconds?|seconds?|minutes?|hours?|days?|weeks?)")
"""A duration in Spark's notation."""
VALUES_MAX: Final = 20_000
"""How many names and values a file may hold."""
DEPTH_MAX: Final = 100
_SECONDS: Final = {
    "millisecond": 0.001,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86_400.0,
    "week": 604_800.0,
}


def duration_seconds(text: str) -> float:
    """A duration in Spark's notation, in seconds."""
    match = DURATION.fullmatch(text)
    assert match is not None, "durations are checked when a file is read"
    return int(re.split(r"\D", text)[0]) * _SECONDS[match[1].removesuffix("s")]


@dataclass(frozen=True, slots=True)
class Item:
    """A value in a file: a scalar, a list of Items, or a dict of Items by name.

    where: `file:line`, for messages. what: its name in messages, like `source.topic`. span: the range of characters of
    a scalar in the file. written: the text of a scalar in the file that YAML reads as something else, like `no` or 007.
    """

    value: Any
    where: str
    what: str
    span: tuple[int, int] = (0, 0)
    written: str | None = None

    def fail(self, message: str) -> NoReturn:
        """Raises PipelineError with the item's place and this message."""
        raise PipelineError(f"{self.where}: {message}")

    def text(self) -> str:
        """A scalar as text, as it was written: a topic may be called `no` or 007. Raises PipelineError."""
        if isinstance(self.value, (dict, list)) or self.value is None:
            self.fail(f"{self.what} is {_kind(self.value)}, not text")
        if self.written is not None and self.written.lower() not in ("true", "false"):
            return self.written
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        return str(self.value)

    def flag(self) -> bool:
        """A boolean. Raises PipelineError."""
        if self.value in ("true", "false"):
            return bool(self.value == "true")  # text, if an environment variable sets it
        if not isinstance(self.value, bool):
            self.fail(f"{self.what} is {_kind(self.value)}, not true or false")
        return self.value

    def number(self, low: int = 1) -> int:
        """A whole number of at least `low`. Raises PipelineError."""
        if isinstance(self.value, str) and re.fullmatch("[0-9]{1,18}", self.value):
            return Item(int(self.value), self.where, self.what).number(low)
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < low:
            self.fail(f"{self.what} is {_shown(self.value)}, not a number from {low} up")
        return self.value

    def choice(self, allowed: Collection[str]) -> str:
        """One of the allowed words. Raises PipelineError."""
        choice = self.text()
        if choice not in allowed:
            self.fail(f"{self.what} is {choice!r}; {suggestion(choice, allowed)}")
        return choice

    def items(self) -> list[Item]:
        """A list; a single value is returned as a list of one."""
        return self.value if isinstance(self.value, list) else [self]

    def texts(self) -> tuple[str, ...]:
        """The scalars of a list as texts. Raises PipelineError."""
        return tuple(item.text() for item in self.items())

    def mapping(
        self, allowed: Collection[str] | None = None, required: Collection[str] = ()
    ) -> Mapping[str, Item]:
        """Items by name. Raises PipelineError for names not in `allowed` (None: any), and if required ones are
        missing."""
        if not isinstance(self.value, dict):
            self.fail(f"{self.what} is {_kind(self.value)}, not a group of names and values")
        if allowed is not None:
            for name, item in self.value.items():
                if name not in allowed:
                    item.fail(f"{self.what} has no entry {name!r}; {suggestion(name, allowed)}")
        for name in required:
            if name not in self.value:
                self.fail(f"{self.what} needs an entry {name!r}")
        return self.value

    def text_map(self) -> dict[str, str]:
        """Texts by name. Raises PipelineError."""
        return {name: item.text() for name, item in self.mapping().items()}


def _kind(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a group"
    return "a list" if isinstance(value, list) else _shown(value)


def _shown(value: object) -> str:
    return _kind(value) if value is None or isinstance(value, (dict, list)) else repr(value)


def from_python(value: Any, where: str, what: str = "the pipeline") -> Item:
    """Plain Python values as an Item. where: used in messages in place of file and line."""
    if isinstance(value, Mapping):
        inner = "{}" if what == "the pipeline" else what + ".{}"
        return Item({str(k): from_python(v, where, inner.format(k)) for k, v in value.items()}, where, what)
    if isinstance(value, (list, tuple)):
        rows = [from_python(row, where, f"{what}[{i + 1}]") for i, row in enumerate(value)]
        return Item(rows, where, what)
    return Item(value, where, what)


def load(path: Path) -> Item:
    """Reads a YAML file. Raises PipelineError with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, name: str, *, fill: bool = True) -> Item:
    """YAML text as an Item. name: of the file, in messages. fill: replaces `${env:...}` and `${file:...}` by the values
    that they name. Raises PipelineError with name and line."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise PipelineError(f"{name}: the file is empty")
        loader.values = 0
        return _item(node, name, "the pipeline", loader, fill)
    except _TooMuch as error:
        raise PipelineError(f"{name}:{error.line}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise PipelineError(f"{name}:{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise PipelineError(f"{name}: not YAML: {error}") from error


class _TooMuch(Exception):
    """A file that no pipeline needs. line: where it becomes too much."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Counts values and how deep they are nested: a few lines with aliases may mean any number of values."""

    values = 0
    _depth = 0

    def count(self, line: int) -> None:
        """One more value. Raises _TooMuch."""
        self.values += 1
        if self.values > VALUES_MAX:
            raise _TooMuch(
                f"the file has more than {VALUES_MAX} values, with aliases written out; "
                "split it into several pipelines",
                line + 1,
            )

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read one value. Raises _TooMuch."""
        self.count(self.line)
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _TooMuch(f"values are nested more than {DEPTH_MAX} levels deep", self.line + 1)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _item(node: yaml.Node, name: str, what: str, loader: _Loader, fill: bool, depth: int = 0) -> Item:
    loader.count(node.start_mark.line)
    where = f"{name}:{node.start_mark.line + 1}"
    if depth > DEPTH_MAX:  # an alias of a value that holds it
        raise _TooMuch(f"values are nested more than {DEPTH_MAX} levels deep", node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        members: dict[str, Item] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            inner = key if what == "the pipeline" else f"{what}.{key}"
            if key in members:
                raise PipelineError(f"{name}:{key_node.start_mark.line + 1}: {inner} appears twice")
            item = _item(value_node, name, inner, loader, fill, depth + 1)
            # The key's line is used, not the value's: a block value begins on the next line.
            members[key] = Item(
                item.value, f"{name}:{key_node.start_mark.line + 1}", inner, item.span, item.written
            )
        return Item(members, where, what)
    if isinstance(node, yaml.SequenceNode):
        rows = [
            _item(child, name, f"{what}[{i + 1}]", loader, fill, depth + 1)
            for i, child in enumerate(node.value)
        ]
        return Item(rows, where, what)
    value = loader.construct_object(node)
    span = (node.start_mark.index, node.end_mark.index)
    if fill and isinstance(value, str):
        value = _filled_in(value, where, what)
    return Item(value, where, what, span, None if isinstance(value, str) else str(node.value))


REFERENCE: Final = re.compile(r"\$(\$\{|\{(env|file):([^}]+)\})")


def _filled_in(text: str, where: str, what: str) -> str:
    """Text with `${env:NAME}` and `${file:PATH}` replaced by the variable or the file's text (without final line
    breaks).

    `$${` is replaced by `${`. Raises PipelineError.
    """

    def filled(match: re.Match[str]) -> str:
        if match[2] is None:
            return "${"
        if match[2] == "env":
            if match[3] not in os.environ:
                raise PipelineError(f"{where}: {what}: the environment variable {match[3]} is not set")
            return os.environ[match[3]]
        try:
            return Path(match[3]).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise PipelineError(f"{where}: {what}: {match[3]} cannot be read: {error}") from error

    return REFERENCE.sub(filled, text)


def entries(item: Item) -> Iterator[tuple[str, Item]]:
    """Name and value of each one-entry group in a list (`- parse: {...}`); a bare word has an empty group as value."""
    for row in item.items():
        if isinstance(row.value, str):
            yield row.value, Item({}, row.where, row.value)
            continue
        group = row.mapping()
        if len(group) != 1:
            row.fail(f"{row.what} has {len(group)} names; each step is one name with its options below it")
        name, inner = next(iter(group.items()))
        yield name, Item({} if inner.value is None else inner.value, inner.where, name, written=inner.written)
