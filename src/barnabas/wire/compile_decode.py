"""Writes the decoder of one message in one version.

The generated function is `decode(b, p, end) -> (message, next position)`. Names in it: `b` the buffer,
`p` the position, `n` a length, `q` the end of the current value, `o`, `x1`, `x2`... the structs.
A position known at generation time is a constant beside `p`, so that a run of fixed-size values needs
one unpack and no addition. Reads past the end raise struct.error or IndexError; slices are checked.
"""

from __future__ import annotations

import struct
from typing import Any, Final, cast

from barnabas.wire.compile import (
    NAMES,
    Source,
    absent,
    default_of,
    is_flexible,
    kind_min_size,
    min_size,
    packer,
    tagged,
    untagged,
)
from barnabas.wire.fields import FIXED, DeclaredMessage, DeclaredStruct, Decoder, Field
from barnabas.wire.primitives import (
    decode_uuid,
    decode_uvarint,
    decode_uvarint_rest,
    length_error,
    require_tag_count,
    skip_tags,
)

_NAMES: Final[dict[str, Any]] = {
    **NAMES,
    "varint": decode_uvarint,
    "varint_rest": decode_uvarint_rest,
    "require_tag_count": require_tag_count,
    "skip_tags": skip_tags,
    "uuid": decode_uuid,
    "refuse": length_error,
    "unpack_from": struct.unpack_from,
}


def compile_decoder(message: type[DeclaredMessage], version: int) -> Decoder:
    text_source, head = _write(message, version)
    decoder = text_source.build(head, f"<decode {message.__name__} v{version}>", _NAMES)
    return cast(Decoder, decoder)


def decoder_source(message: type[DeclaredMessage], version: int) -> tuple[str, dict[str, Any]]:
    """The generated text and the constants that it uses, for people and tests."""
    source, head = _write(message, version)
    return source.text(head), source.names


def _write(message: type[DeclaredMessage], version: int) -> tuple[Source, str]:
    writer = _Writer(version, is_flexible(message, version))
    target = writer.new_struct(message, "o")
    writer.struct_fields(message, target)
    writer.flush()
    writer.source.line(f"return o, {writer.at()}")
    if writer.uses_view:
        writer.source.lines.insert(0, "    view = memoryview(b)")
    return writer.source, "def decode(b, p, end):"


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.source = Source()
        self.version = version
        self.flexible = flexible
        self.offset = 0
        self.run: list[tuple[str, str]] = []
        self.after_run: list[str] = []
        self.depth = 0
        self.uses_view = False

    def at(self, extra: int = 0) -> str:
        """The current position, as an expression."""
        total = self.offset + extra
        return f"p + {total}" if total else "p"

    def settle(self) -> None:
        """Make `p` itself the current position, before control flow branches."""
        self.flush()
        if self.offset:
            self.source.line(f"p += {self.offset}")
            self.offset = 0

    def moved(self, position: str) -> None:
        self.source.line(f"p = {position}")
        self.offset = 0

    def fixed(self, code: str, target: str) -> None:
        self.run.append((code, target))

    def flush(self) -> None:
        """Read the pending run of fixed-size values with one unpack."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        size = packer(codes).size
        if codes == "B":
            self.source.line(f"{self.run[0][1]} = b[{self.at()}]")
        elif codes == "?":
            self.source.line(f"{self.run[0][1]} = b[{self.at()}] != 0")
        else:
            unpack = self.source.constant(packer(codes).unpack_from, f"unpack_{codes.replace('?', 't')}")
            targets = ", ".join(target for _, target in self.run) + ("," if len(self.run) == 1 else "")
            self.source.line(f"{targets} = {unpack}(b, {self.at()})")
        self.offset += size
        self.run.clear()
        for text in self.after_run:
            self.source.line(text)
        self.after_run.clear()

    def length(self, code: str) -> None:
        """Read a length into `n`. Flexible versions keep Kafka's form: 0 is null, else length + 1."""
        if not self.flexible:
            self.fixed(code, "n")
            self.flush()
            return
        self.fixed("B", "n")
        self.flush()
        with self.source.block("if n > 127:"):
            self.source.line(f"n, p = varint_rest(b, {self.at()}, n)")
            if self.offset:
                self.source.line(f"p -= {self.offset}")

    def new_struct(self, cls: type[DeclaredStruct], target: str) -> str:
        self.source.line(f"{target} = new({self.source.constant(cls, cls.__name__)})")
        for name, field in absent(cls, self.version):
            self.source.line(f"{target}.{name} = {default_of(self.source, field)}")
        return target

    def struct_fields(self, cls: type[DeclaredStruct], target: str) -> None:
        for name, field in untagged(cls, self.version):
            self.field(field, f"{target}.{name}", f"{cls.__name__}.{name}")
        if self.flexible:
            self.tags(cls, target)

    def field(self, field: Field, target: str, label: str) -> None:
        nullable = field.nullable_in(self.version)
        if field.kind == "array":
            self.array(field, target, label, nullable)
        elif field.kind == "struct":
            self.struct(field, target, nullable)
        else:
            self.primitive(field.kind, target, label, nullable)

    def primitive(self, kind: str, target: str, label: str, nullable: bool) -> None:
        if kind in FIXED:
            self.fixed(FIXED[kind], target)
            if kind == "uuid":
                self.after_run.append(f"{target} = uuid({target})")
            return
        self.length("h" if kind == "string" else "i")
        start = self.at()
        end = self.at(-1 if self.flexible else 0)
        least = 1 if self.flexible else 0
        taken = {
            "string": f'str(b[{start}:q], "utf-8")',
            "bytes": f"bytes(b[{start}:q])",
            "records": f"view[{start}:q]",
        }[kind]
        self.uses_view |= kind == "records"
        too_long = " or n > 32768" if kind == "string" and self.flexible else ""
        refuse = f"raise refuse({label!r}, n - {least}, end, q)"
        if nullable:
            with self.source.block("if n:" if self.flexible else "if n >= 0:"):
                self.source.line(f"q = {end} + n")
                self.source.line(f"if q > end{too_long}: {refuse}")
                self.source.line(f"{target} = {taken}")
                self.source.line("p = q")
            with self.source.block("else:"):
                self.source.line(f"{target} = None")
                if self.offset:
                    self.source.line(f"p += {self.offset}")
            self.offset = 0
        else:
            self.source.line(f"q = {end} + n")
            self.source.line(f"if n < {least} or q > end{too_long}: {refuse}")
            self.source.line(f"{target} = {taken}")
            self.moved("q")

    def struct(self, field: Field, target: str, nullable: bool) -> None:
        self.depth += 1
        inner = f"x{self.depth}"
        if nullable:
            self.fixed("b", "n")
            self.settle()
            with self.source.block("if n < 0:"):
                self.source.line(f"{target} = None")
            with self.source.block("else:"):
                self.new_struct(field.element, inner)
                self.struct_fields(field.element, inner)
                self.settle()
                self.source.line(f"{target} = {inner}")
        else:
            self.new_struct(field.element, inner)
            self.struct_fields(field.element, inner)
            self.flush()
            self.source.line(f"{target} = {inner}")
        self.depth -= 1

    def array(self, field: Field, target: str, label: str, nullable: bool) -> None:
        element = field.element
        self.length("i")
        if self.flexible:
            self.source.line("n -= 1")
        self.settle()
        if isinstance(element, str):
            least = kind_min_size(element, self.flexible)
        else:
            least = max(1, min_size(element, self.version, self.flexible))
        times = f"n * {least}" if least > 1 else "n"
        wrong = f"{times} > end - p" if nullable else f"n < 0 or {times} > end - p"
        self.source.line(f"if {wrong}: raise refuse({label!r}, n, end, p + {times})")
        if nullable:
            self.source.line(f"if n < 0: {target} = None")
            with self.source.block("else:"):
                self.elements(element, target, label)
        else:
            self.elements(element, target, label)

    def elements(self, element: Any, target: str, label: str) -> None:
        """Read `n` elements; the count has been checked against the remaining bytes."""
        self.depth += 1
        items, inner = f"a{self.depth}", f"x{self.depth}"
        if isinstance(element, str) and element in FIXED:
            code = FIXED[element]
            size = packer(code).size
            if element == "uuid":
                self.source.line(f"{target} = [uuid(bytes(b[i:i + 16])) for i in range(p, p + n * 16, 16)]")
            else:
                self.source.line(f'{target} = list(unpack_from(f">{{n}}{code}", b, p))')
            self.source.line(f"p += n * {size}" if size > 1 else "p += n")
        else:
            self.source.line(f"{target} = {items} = []")
            with self.source.block("for _ in range(n):"):
                if isinstance(element, str):
                    self.primitive(element, inner, label, False)
                else:
                    self.new_struct(element, inner)
                    self.struct_fields(element, inner)
                self.settle()
                self.source.line(f"{items}.append({inner})")
        self.depth -= 1

    def tags(self, cls: type[DeclaredStruct], target: str) -> None:
        """Read the tagged section that ends every struct of a flexible version."""
        known = tagged(cls, self.version)
        for name, field in known:
            self.source.line(f"{target}.{name} = {default_of(self.source, field)}")
        self.fixed("B", "n")
        self.flush()
        if not known:
            with self.source.block("if n:"):
                behind = f" - {self.offset}" if self.offset else ""
                self.source.line(f"p = skip_tags(b, {self.at(-1)}, end){behind}")
            return
        with self.source.block("if n:"):
            self.source.line(f"n, p = varint(b, {self.at(-1)})")
            kept, self.offset = self.offset, 0
            self.tag_loop(known, target, cls.__name__)
            self.source.line(f"p -= {kept}")
        self.offset = kept

    def tag_loop(self, known: list[tuple[str, Field]], target: str, owner: str) -> None:
        source = self.source
        limit = source.temp("limit")
        source.line("require_tag_count(n)")
        with source.block("for _ in range(n):"):
            source.line("tag, p = varint(b, p)")
            source.line("n, p = varint(b, p)")
            source.line(f"{limit} = p + n")
            source.line(f'if {limit} > end: raise refuse("{owner} tagged field", n, end, {limit})')
            word = "if"
            for name, field in known:
                with source.block(f"{word} tag == {field.tag}:"):
                    self.field(field, f"{target}.{name}", f"{owner}.{name}")
                    self.settle()
                    source.line(f'if p != {limit}: raise refuse("{owner}.{name}", n, {limit}, p)')
                word = "elif"
            with source.block("else:"):
                source.line(f"p = {limit}")
