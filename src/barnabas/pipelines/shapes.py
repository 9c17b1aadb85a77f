"""What the entries of a pipeline file may hold, declared once: the checks of a file and the JSON Schema for editors are
both made of these declarations.

    TIME = Group({"field": Text("the field that holds the time"), "to": Text()}, required=("field",))
    TIME.open(item)      # the entries by name; raises PipelineError with the line of what does not fit
    TIME.schema()        # the same as JSON Schema

Rules that a declaration cannot express (one entry that only goes with another, a pattern that does not compile) are
checked by the code that reads the entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol
from urllib.parse import unquote

from barnabas.pipelines.document import DURATION, Item
from barnabas.pipelines.errors import PipelineError

Schema = dict[str, Any]
REFERENCE: Final[Schema] = {"type": "string", "pattern": r"\$\{(env|file):[^}]+\}"}
"""Text that the environment or a file fills in: what it will be is not known to an editor."""
SCALAR: Final = ("string", "number", "boolean")


PASSWORDS: Final = re.compile(
    r"""(?ix) (?P<before> ://[^\s/:@'"]*: ) (?P<value> (?:\$\{[^}]*\}|[^\s@'"/])+ ) (?=@)
    | (?P<key> \b(?:\w*password|passwd|passphrase|pwd|\w*secret\w*|\w*token|api_?key) \s*=\s* )
      (?P<word> '[^']*' | [^\s;&'"}]+ )"""
)
SECRET_NAMES: Final = re.compile(
    r"(?i)password|passwd|passphrase|pwd|secret|token|credential|signature|salt|jaas\.config|keystore\.key"
    r"|(?:api|access|account|shared|private)[._-]?key|sas$"
)
"""Names whose values are secret, where the names are others' (of a client, a driver, a file system)."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A secret in a file. values: what must not be shown. whole: whether all of the item is secret, or passwords in it."""

    item: Item
    values: tuple[str, ...]
    whole: bool = True


class Shape(Protocol):
    """One kind of entry."""

    def hidden(self, item: Item) -> Iterator[Hidden]:
        """The secrets in it; nothing where it does not fit."""

    def check(self, item: Item) -> None:
        """Raises PipelineError with the line of what does not fit."""

    def schema(self) -> Schema:
        """The same in JSON Schema."""


class Open:
    """A shape without secrets."""

    __slots__ = ()

    def hidden(self, item: Item) -> Iterator[Hidden]:
        return iter(())


def _scalar(item: Item) -> bool:
    return not isinstance(item.value, (dict, list)) and item.value is not None


def _secret(item: Item) -> Iterator[Hidden]:
    if _scalar(item):
        yield Hidden(item, (item.text(),))


def _passwords(item: Item) -> Iterator[Hidden]:
    """Passwords in a URL or in the parameters of a connection."""
    found = [m["value"] or m["word"] for m in PASSWORDS.finditer(item.text())] if _scalar(item) else []
    if found:
        values = [value.strip("'") for value in found]
        yield Hidden(item, (*values, *map(unquote, values)), whole=False)


def _described(schema: Schema, doc: str) -> Schema:
    return {"description": doc, **schema} if doc else schema


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar, taken as text. hides: whether it is secret, or a URL or the like that may hold a password."""

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
    """A whole number from `low` up."""

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
    """One of several words. fold: upper case does as well."""

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
    """A whole number, below zero too."""

    doc: str = ""

    def check(self, item: Item) -> None:
        if not re.fullmatch("-?[0-9]{1,18}", item.text()):
            item.fail(f"{item.what} is {item.value!r}, not a whole number")

    def schema(self) -> Schema:
        digits = {"type": "string", "pattern": "^-?[0-9]{1,18}$"}
        return _described({"anyOf": [{"type": "integer"}, digits, REFERENCE]}, self.doc)


@dataclass(frozen=True, slots=True)
class Matching(Open):
    """Text of a form: a regular expression for the whole of it. meant: what it looks like, for messages."""

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
    """How long something takes, as Spark writes it."""

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
    """Whatever stands there."""

    doc: str = ""

    def check(self, item: Item) -> None:
        """Everything fits."""

    def schema(self) -> Schema:
        return _described({}, self.doc)


@dataclass(frozen=True, slots=True)
class Several:
    """A list; one value alone stands for a list of one."""

    of: Shape
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
    """Values under names that the file chooses. suggested: names that editors offer, with what they mean. guarded: values
    under names like `password` are secret, and others may hold one."""

    of: Shape
    doc: str = ""
    suggested: Mapping[str, str] = field(default_factory=dict)
    least: int = 0
    guarded: bool = False

    def open(self, item: Item) -> Mapping[str, Item]:
        """The entries, checked. Raises PipelineError."""
        found = item.mapping()
        for entry in found.values():
            self.of.check(entry)
        return found

    def check(self, item: Item) -> None:
        self.open(item)

    def schema(self) -> Schema:
        inner = self.of.schema()
        found: Schema = {"type": "object", "additionalProperties": inner}
        if self.least:
            found["minProperties"] = self.least
        if self.suggested:
            found["properties"] = {
                name: {**inner, "description": doc} for name, doc in self.suggested.items()
            }
        return _described(found, self.doc)

    def hidden(self, item: Item) -> Iterator[Hidden]:
        for name, entry in item.value.items() if isinstance(item.value, dict) else ():
            if not self.guarded:
                yield from self.of.hidden(entry)
            else:
                yield from _secret(entry) if SECRET_NAMES.search(name) else _passwords(entry)


@dataclass(frozen=True, slots=True)
class Group:
    """Entries with names of their own. one_of: exactly one of these has to be there. needs: an entry and the one that it
    does not go without."""

    entries: Mapping[str, Shape]
    doc: str = ""
    required: Collection[str] = ()
    one_of: Collection[str] = ()
    needs: Mapping[str, str] = field(default_factory=dict)

    def open(self, item: Item) -> Mapping[str, Item]:
        """The entries that are there, checked. Raises PipelineError."""
        found = item.mapping(self.entries, self.required)
        given = [name for name in self.one_of if name in found]
        if self.one_of and not given:
            item.fail(f"{item.what} needs one of {', '.join(self.one_of)}")
        if len(given) > 1:
            found[given[1]].fail(f"{item.what} has {' and '.join(given)}; it takes one of them")
        for name, entry in found.items():
            self.entries[name].check(entry)
        for name, other in self.needs.items():
            if name in found and other not in found:
                found[name].fail(f"{name} goes with {other}, which is not there")
        return found

    def check(self, item: Item) -> None:
        self.open(item)

    def schema(self) -> Schema:
        found: Schema = {
            "type": "object",
            "properties": {name: shape.schema() for name, shape in self.entries.items()},
            "additionalProperties": False,
        }
        if self.required:
            found["required"] = list(self.required)
        if self.one_of:
            found["oneOf"] = [{"required": [name]} for name in self.one_of]
        if self.needs:
            found["dependentRequired"] = {name: [other] for name, other in self.needs.items()}
        return _described(found, self.doc)

    def hidden(self, item: Item) -> Iterator[Hidden]:
        for name, entry in item.value.items() if isinstance(item.value, dict) else ():
            if name in self.entries:
                yield from self.entries[name].hidden(entry)


@dataclass(frozen=True, slots=True)
class Either:
    """What fits one of several shapes. What fits none is judged by the first one of its form: a group, or no group."""

    shapes: tuple[Shape, ...]
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
    """A shape with a name, which the schema holds once (`$defs`) however often it is used. make: gives the shape."""

    name: str
    make: Callable[[], Shape]

    def check(self, item: Item) -> None:
        self.make().check(item)

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.name}"}

    def hidden(self, item: Item) -> Iterator[Hidden]:
        return self.make().hidden(item)
