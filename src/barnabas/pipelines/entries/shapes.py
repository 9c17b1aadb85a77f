"""Declares what the entries of a pipeline file may contain. Files are checked by these declarations, and the JSON
Schema for editors is made from them.

    TIME = Group({"field": Text("the field that holds the time"), "to": Text()}, required=("field",))
    TIME.open(item)      # the entries by name; raises PipelineError with the line of an entry that does not fit
    TIME.schema()        # the same as JSON Schema

Rules that a declaration cannot express (a pattern has to compile, some entries exclude each other) are checked by the
code that reads the entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol
from urllib.parse import unquote

from barnabas.pipelines.entries.document import DURATION, Item
from barnabas.pipelines.plan.errors import PipelineError

Schema = dict[str, Any]
REFERENCE: Final[Schema] = {"type": "string", "pattern": r"\$\{(env|file):[^}]+\}"}
"""A value from the environment or from a file, which an editor cannot know."""
SCALAR: Final = ("string", "number", "boolean")


PASSWORDS: Final = re.compile(
    r"""(?ix) (?P<before> ://[^\s/:@'"]*: ) (?P<value> (?:\$\{[^}]*\}|[^\s@'"/])+ ) (?=@)
    | (?P<key> \b(?:\w*password|passwd|passphrase|pwd|\w*secret\w*|\w*token|api_?key) \s*=\s* )
      (?P<word> '[^']*' | [^\s;&'"}]+ )"""
)
"""Passwords in a URL or in the parameters of a connection."""
SECRET_NAMES: Final = re.compile(
    r"(?i)password|passwd|passphrase|pwd|secret|token|credential|signature|salt|jaas\.config|keystore\.key"
    r"|(?:api|access|account|shared|private)[._-]?key|sas$"
)
"""Names of secret options, in entries whose names others define: a client, a driver, a file system."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A secret in a file. values: must not be shown. whole: the whole item is secret, not only passwords in it."""

    item: Item
    values: tuple[str, ...]
    whole: bool = True


class EntryShape(Protocol):
    """A kind of entry."""

    def hidden(self, item: Item) -> Iterator[Hidden]:
        """The secrets in an item; none if it does not fit."""

    def check(self, item: Item) -> None:
        """Raises PipelineError, with the line, if the item does not fit."""

    def schema(self) -> Schema:
        """The shape as JSON Schema."""


class Open:
    """A shape without secrets."""

    __slots__ = ()

    def hidden(self, item: Item) -> Iterator[Hidden]:
        """Nothing."""
        return iter(())


def _scalar(item: Item) -> bool:
    return not isinstance(item.value, (dict, list)) and item.value is not None


def _secret(item: Item) -> Iterator[Hidden]:
    if _scalar(item):
        yield Hidden(item, (item.text(),))


def _passwords(item: Item) -> Iterator[Hidden]:
    """The passwords in an item, see PASSWORDS."""
    passwords = [m["value"] or m["word"] for m in PASSWORDS.finditer(item.text())] if _scalar(item) else []
    if passwords:
        values = [value.strip("'") for value in passwords]
        yield Hidden(item, (*values, *map(unquote, values)), whole=False)


def _described(schema: Schema, doc: str) -> Schema:
    return {"description": doc, **schema} if doc else schema


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar as text. hides: all: it is secret; passwords: it may contain some, like a URL."""

    doc: str = ""
    hides: Literal["nothing", "all", "passwords"] = "nothing"

    def check(self, item: Item) -> None:
        item.text()

    def schema(self) -> Schema:
        return _described({"type": list(SCALAR)}, self.doc)

    def hidden(self, item: Item) -> Iterator[Hidden]:
        return (
            _secret(item)
            if self.hides == "all"
            else _passwords(item)
            if self.hides != "nothing"
            else iter(())
        )


@dataclass(frozen=True, slots=True)
class Number(Open):
    """A whole number of at least `low`."""

    doc: str = ""
    low: int = 1

    def check(self, item: Item) -> None:
        item.number(self.low)

    def schema(self) -> Schema:
        digits = {"type": "string", "pattern": "^[0-9]{1,18}$"}
        whole = {"type": "integer", "minimum": self.low}
        return _described({"anyOf": [whole, digits, REFERENCE]}, self.doc)


@dataclass(frozen=True, slots=True)
class Flag(Open):
    """true or false."""

    doc: str = ""

    def check(self, item: Item) -> None:
        item.flag()

    def schema(self) -> Schema:
        words = {"enum": [True, False, "true", "false"]}
        return _described({"anyOf": [words, REFERENCE]}, self.doc)


@dataclass(frozen=True, slots=True)
class Choice(Open):
    """One of several words. fold: accept upper case, too."""

    words: Collection[str]
    doc: str = ""
    fold: bool = False

    def check(self, item: Item) -> None:
        if not (self.fold and item.text().lower() in self.words):
            item.choice(self.words)

    def schema(self) -> Schema:
        words = [*self.words, *(word.upper() for word in self.words if self.fold)]
        return _described({"anyOf": [{"enum": words}, REFERENCE]}, self.doc)


@dataclass(frozen=True, slots=True)
class Whole(Open):
    """A whole number, which may be negative."""

    doc: str = ""

    def check(self, item: Item) -> None:
        if not re.fullmatch("-?[0-9]{1,18}", item.text()):
            item.fail(f"{item.what} is {item.value!r}, not a whole number")

    def schema(self) -> Schema:
        digits = {"type": "string", "pattern": "^-?[0-9]{1,18}$"}
        return _described({"anyOf": [{"type": "integer"}, digits, REFERENCE]}, self.doc)


@dataclass(frozen=True, slots=True)
class Matching(Open):
    """Text that a regular expression matches as a whole. meant: a description of the form, for messages."""

    pattern: str
    meant: str
    doc: str = ""

    def check(self, item: Item) -> None:
        text = item.text()
        if not re.fullmatch(self.pattern, text):
            item.fail(f"{item.what} is {text!r}, not {self.meant}")

    def schema(self) -> Schema:
        form = {"type": "string", "pattern": f"^(?:{self.pattern})$"}
        return _described({"anyOf": [form, REFERENCE]}, self.doc)


@dataclass(frozen=True, slots=True)
class Duration(Open):
    """A duration in Spark's notation."""

    doc: str = ""

    def check(self, item: Item) -> None:
        text = item.text()
        if not DURATION.fullmatch(text):
            item.fail(f"{item.what} is {text!r}, not a duration like '10 seconds' or '1 hour'")

    def schema(self) -> Schema:
        pattern = {"type": "string", "pattern": f"^{DURATION.pattern}$"}
        return _described({"anyOf": [pattern, REFERENCE]}, self.doc)


@dataclass(frozen=True, slots=True)
class Anything(Open):
    """Any value."""

    doc: str = ""

    def check(self, item: Item) -> None:
        """Accepts everything."""

    def schema(self) -> Schema:
        return _described({}, self.doc)


@dataclass(frozen=True, slots=True)
class Several:
    """A list; a single value is read as a list of one."""

    of: EntryShape
    doc: str = ""
    least: int = 0

    def check(self, item: Item) -> None:
        for row in item.items():
            self.of.check(row)

    def schema(self) -> Schema:
        inner = self.of.schema()
        rows = {"type": "array", "items": inner, **({"minItems": self.least} if self.least else {})}
        return _described({"anyOf": [rows, inner]}, self.doc)

    def hidden(self, item: Item) -> Iterator[Hidden]:
        for row in item.items():
            yield from self.of.hidden(row)


@dataclass(frozen=True, slots=True)
class Named:
    """Values under names that the file chooses. suggested: names that editors offer, with their descriptions. guarded:
    values under names like `password` are secret, and others may contain passwords."""

    of: EntryShape
    doc: str = ""
    suggested: Mapping[str, str] = field(default_factory=dict)
    least: int = 0
    guarded: bool = False

    def open(self, item: Item) -> Mapping[str, Item]:
        """The entries, checked. Raises PipelineError."""
        entries = item.mapping()
        for entry in entries.values():
            self.of.check(entry)
        return entries

    def check(self, item: Item) -> None:
        self.open(item)

    def schema(self) -> Schema:
        inner = self.of.schema()
        schema: Schema = {"type": "object", "additionalProperties": inner}
        if self.least:
            schema["minProperties"] = self.least
        if self.suggested:
            schema["properties"] = {
                name: {**inner, "description": doc} for name, doc in self.suggested.items()
            }
        return _described(schema, self.doc)

    def hidden(self, item: Item) -> Iterator[Hidden]:
        for name, entry in item.value.items() if isinstance(item.value, dict) else ():
            if not self.guarded:
                yield from self.of.hidden(entry)
            else:
                yield from _secret(entry) if SECRET_NAMES.search(name) else _passwords(entry)


@dataclass(frozen=True, slots=True)
class Group:
    """Entries with fixed names. one_of: exactly one of these is required. needs: entries that require another one, with
    the other's name."""

    entries: Mapping[str, EntryShape]
    doc: str = ""
    required: Collection[str] = ()
    one_of: Collection[str] = ()
    needs: Mapping[str, str] = field(default_factory=dict)

    def open(self, item: Item) -> Mapping[str, Item]:
        """The entries in the file, checked. Raises PipelineError."""
        entries = item.mapping(self.entries, self.required)
        alternatives = [name for name in self.one_of if name in entries]
        if self.one_of and not alternatives:
            item.fail(f"{item.what} needs one of {', '.join(self.one_of)}")
        if len(alternatives) > 1:
            entries[alternatives[1]].fail(
                f"{item.what} has {' and '.join(alternatives)}; only one of them is allowed"
            )
        for name, entry in entries.items():
            self.entries[name].check(entry)
        for name, other in self.needs.items():
            if name in entries and other not in entries:
                entries[name].fail(f"{name} needs {other}, which is missing")
        return entries

    def check(self, item: Item) -> None:
        self.open(item)

    def schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": {name: shape.schema() for name, shape in self.entries.items()},
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(self.required)
        if self.one_of:
            schema["oneOf"] = [{"required": [name]} for name in self.one_of]
        if self.needs:
            schema["dependentRequired"] = {name: [other] for name, other in self.needs.items()}
        return _described(schema, self.doc)

    def hidden(self, item: Item) -> Iterator[Hidden]:
        for name, entry in item.value.items() if isinstance(item.value, dict) else ():
            if name in self.entries:
                yield from self.entries[name].hidden(entry)


@dataclass(frozen=True, slots=True)
class Either:
    """A value that fits one of several shapes. If it fits none, the error is that of the first shape that, like the
    value, is a group or is none."""

    shapes: tuple[EntryShape, ...]
    doc: str = ""

    def check(self, item: Item) -> None:
        reasons: list[tuple[bool, PipelineError]] = []
        for shape in self.shapes:
            try:
                shape.check(item)
            except PipelineError as error:
                reasons.append((isinstance(shape, (Group, Named)) != isinstance(item.value, dict), error))
            else:
                return
        raise min(reasons, key=lambda reason: reason[0])[1]

    def schema(self) -> Schema:
        return _described({"anyOf": [shape.schema() for shape in self.shapes]}, self.doc)

    def hidden(self, item: Item) -> Iterator[Hidden]:
        for shape in self.shapes:
            yield from shape.hidden(item)


@dataclass(frozen=True, slots=True)
class Defined:
    """A shape with a name, which the schema contains only once (in `$defs`), however often it is used."""

    name: str
    make: Callable[[], EntryShape]

    def check(self, item: Item) -> None:
        self.make().check(item)

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.name}"}

    def hidden(self, item: Item) -> Iterator[Hidden]:
        return self.make().hidden(item)
