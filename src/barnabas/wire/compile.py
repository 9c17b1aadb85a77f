"""Turns declarations into Python source: what decoders, encoders and constructors share.

The source is straight-line: neighbouring values of a fixed size become one struct call, strings and lengths are
written out in place, arrays are plain loops. Nothing is looked up per field at run time.
To see the generated source: `python -m barnabas.wire FetchRequest 12`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packer
from typing import Any, Final, cast

from barnabas.wire.fields import FIXED, UNSET, DeclaredMessage, DeclaredStruct, Field
from barnabas.wire.primitives import ZERO_UUID

_packers: dict[str, Packer] = {}


def packer(codes: str) -> Packer:
    """The big-endian struct of these codes, shared by all generated functions."""
    packer_of_codes = _packers.get(codes)
    if packer_of_codes is None:
        packer_of_codes = _packers[codes] = Packer(">" + codes)
    return packer_of_codes


class Source:
    """The lines of one generated function, and the constants that it uses."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {}
        self._known: dict[int, str] = {}
        self._temps = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def block(self, head: str) -> _Indent:
        """Write a compound statement's head; use as `with source.block("if n:"):`."""
        self.line(head)
        return _Indent(self)

    def constant(self, value: Any, hint: str) -> str:
        """A name for a constant that the function uses."""
        name = self._known.get(id(value))
        if name is None:
            name = f"{hint}_{len(self.names)}"
            self._known[id(value)] = name
            self.names[name] = value
        return name

    def temp(self, hint: str) -> str:
        """The name of a new local variable."""
        self._temps += 1
        return f"{hint}{self._temps}"

    def text(self, head: str) -> str:
        return head + "\n" + "\n".join(self.lines) + "\n"

    def build(self, head: str, filename: str, names: dict[str, Any]) -> Callable[..., Any]:
        """Compile the function whose `def` line is `head` and return it."""
        namespace: dict[str, Any] = {**names, **self.names}
        exec(compile(self.text(head), filename, "exec"), namespace)
        name = head.removeprefix("def ").partition("(")[0]
        return cast(Callable[..., Any], namespace[name])


class _Indent:
    def __init__(self, source: Source) -> None:
        self.source = source

    def __enter__(self) -> None:
        self.source.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.source.depth -= 1


def is_flexible(message: type[DeclaredMessage], version: int) -> bool:
    return message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM


def untagged(cls: type[DeclaredStruct], version: int) -> list[tuple[str, Field]]:
    """The untagged fields of this version, in order."""
    return [(name, f) for name, f in cls.FIELDS.items() if f.tag is None and f.exists_in(version)]


def tagged(cls: type[DeclaredStruct], version: int) -> list[tuple[str, Field]]:
    """The tagged fields of this version, in the order of their tags."""
    fields = [(name, f) for name, f in cls.FIELDS.items() if f.tag is not None and f.exists_in(version)]
    return sorted(fields, key=lambda item: item[1].tag or 0)


def absent(cls: type[DeclaredStruct], version: int) -> list[tuple[str, Field]]:
    return [(name, f) for name, f in cls.FIELDS.items() if not f.exists_in(version)]


def default_of(source: Source, field: Field) -> str:
    """An expression for the field's default value, a new one each time."""
    if field.kind == "array" and field.default is UNSET:
        return "[]"
    if field.kind == "struct" and field.default is UNSET:
        return source.constant(field.element, field.element.__name__) + "()"
    if field.kind == "uuid":
        return source.constant(ZERO_UUID, "ZERO_UUID")
    return repr(field.default)


def is_set(source: Source, field: Field, value: str) -> str:
    """An expression for whether `value` differs from the field's default."""
    if field.kind == "array" and field.default is UNSET:
        return f"{value} is None or len({value})" if field.null else f"{value}"
    if field.kind == "struct" and field.null:
        return f"{value} is not None"
    if field.kind == "struct":
        plain = source.constant(field.element(), f"default_{field.element.__name__}")
        return f"{value} is not None and {value} != {plain}"
    if field.default is None:
        return f"{value} is not None"
    if field.kind == "bool":
        return f"not {value}" if field.default else value
    return f"{value} != {default_of(source, field)}"


def min_size(cls: type[DeclaredStruct], version: int, flexible: bool) -> int:
    """The minimum size of an encoded struct, used to check the counts of arrays."""
    size = 1 if flexible else 0
    for _name, field in untagged(cls, version):
        if field.kind == "struct":
            size += 1 if field.nullable_in(version) else min_size(field.element, version, flexible)
        else:
            size += kind_min_size(field.kind, flexible)
    return size


def kind_min_size(kind: str, flexible: bool) -> int:
    code = FIXED.get(kind)
    if code is not None:
        return packer(code).size
    if flexible:
        return 1
    return 2 if kind == "string" else 4


def compile_init(cls: type[DeclaredStruct]) -> Callable[..., None]:
    """The keyword constructor of a struct class: every field is optional, with Kafka's default."""
    source = Source()
    source.names["UNSET"] = UNSET
    arguments = []
    for name, field in cls.FIELDS.items():
        default = default_of(source, field)
        if field.default is UNSET:
            arguments.append(f"{name}=UNSET")
            source.line(f"self.{name} = {default} if {name} is UNSET else {name}")
        else:
            arguments.append(f"{name}={default}")
            source.line(f"self.{name} = {name}")
    if not arguments:
        source.line("pass")
    star = "*, " if arguments else ""
    head = f"def __init__(self, {star}{', '.join(arguments)}):"
    return source.build(head, f"<init {cls.__name__}>", {})


NAMES: Final[dict[str, Any]] = {"new": object.__new__}
