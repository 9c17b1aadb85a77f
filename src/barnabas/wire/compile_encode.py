"""Writes the encoder of one message in one version.

The generated function is `encode(o, out, cuts)`: it appends pieces of bytes to `out`, and to `cuts` the
indexes in `out` of record pieces that are to be sent as they are. Pieces between two points of control
flow are appended by one statement; neighbouring values of one size are one piece.
"""

from __future__ import annotations

import struct
from typing import Any, Final, cast

from barnabas.wire.compile import NAMES, Source, absent, is_flexible, is_set, packer, tagged, untagged
from barnabas.wire.fields import FIXED, DeclaredMessage, DeclaredStruct, Encoder, Field
from barnabas.wire.primitives import (
    SPLICE_BYTES_MIN,
    UVARINTS,
    WireError,
    encode_string_length,
    encode_uvarint,
)

_NAMES: Final[dict[str, Any]] = {
    **NAMES,
    "V": UVARINTS,
    "varint": encode_uvarint,
    "string_length": encode_string_length,
    "join": b"".join,
    "pack": struct.pack,
    "BYTES": frozenset({bytes, bytearray, memoryview}),
    "WireError": WireError,
}


def compile_encoder(message: type[DeclaredMessage], version: int) -> Encoder:
    source, head = _write(message, version)
    encoder = source.build(head, f"<encode {message.__name__} v{version}>", _NAMES)
    return cast(Encoder, encoder)


def encoder_source(message: type[DeclaredMessage], version: int) -> tuple[str, dict[str, Any]]:
    """The generated text and the constants that it uses, for people and tests."""
    source, head = _write(message, version)
    return source.text(head), source.names


def _write(message: type[DeclaredMessage], version: int) -> tuple[Source, str]:
    writer = _Writer(message.__name__, version, is_flexible(message, version))
    writer.struct_fields(message, "o")
    writer.flush()
    if not writer.source.lines:
        writer.source.line("pass")
    return writer.source, "def encode(o, out, cuts):"


class _Writer:
    def __init__(self, message: str, version: int, flexible: bool) -> None:
        self.message = message
        self.source = Source()
        self.version = version
        self.flexible = flexible
        self.out = "out"
        self.run: list[tuple[str, str]] = []
        self.pieces: list[str] = []

    def fixed(self, code: str, value: str) -> None:
        self.run.append((code, value))

    def piece(self, expression: str) -> None:
        self.close_run()
        self.pieces.append(expression)

    def close_run(self) -> None:
        """Turn the pending run of fixed-size values into one piece."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(value for code, value in self.run if code != "x")
        if values:
            pack = self.source.constant(packer(codes).pack, f"pack_{codes.replace('?', 't')}")
            self.pieces.append(f"{pack}({values})")
        else:
            self.pieces.append(repr(bytes(len(codes))))
        self.run.clear()

    def flush(self) -> None:
        """Write the statement that appends the pending pieces."""
        self.close_run()
        if len(self.pieces) == 1:
            self.source.line(f"{self.out}.append({self.pieces[0]})")
        elif self.pieces:
            self.source.line(f"{self.out} += ({', '.join(self.pieces)})")
        self.pieces.clear()

    def struct_fields(self, cls: type[DeclaredStruct], owner: str) -> None:
        self.refuse_absent(cls, owner)
        for name, field in untagged(cls, self.version):
            self.field(field, f"{owner}.{name}")
        if self.flexible:
            self.tags(cls, owner)

    def refuse_absent(self, cls: type[DeclaredStruct], owner: str) -> None:
        """A value that this version cannot carry is an error, unless the field is ignorable."""
        for name, field in absent(cls, self.version):
            if not field.ignorable:
                complaint = (
                    f"{cls.__name__}.{name} is not in version {self.version} and must keep its default"
                )
                condition = is_set(self.source, field, f"{owner}.{name}")
                self.source.line(f"if {condition}: raise WireError({complaint!r})")

    def field(self, field: Field, value: str) -> None:
        nullable = field.nullable_in(self.version)
        if field.kind == "array":
            self.array(field.element, value, nullable)
        elif field.kind == "struct":
            self.struct(field.element, value, nullable)
        elif field.kind == "records":
            self.records(value, nullable)
        else:
            self.primitive(field.kind, value, nullable)

    def count(self, name: str, code: str, helper: str = "varint") -> None:
        """A length: `name` is the count (-1 for null), in flexible versions the count + 1."""
        if self.flexible:
            self.piece(f"V[{name}] if {name} < 512 else {helper}({name})")
        else:
            self.fixed(code, name)

    def primitive(self, kind: str, value: str, nullable: bool) -> None:
        if kind in FIXED:
            self.fixed(FIXED[kind], f"{value}.bytes" if kind == "uuid" else value)
            return
        source = self.source
        data, size = source.temp("s"), source.temp("n")
        one = " + 1" if self.flexible else ""
        null = "0" if self.flexible else "-1"
        taken = f"{value}.encode()" if kind == "string" else value
        if nullable:
            source.line(f"{data} = {value}")
            with source.block(f"if {data} is None:"):
                source.line(f"{data}, {size} = b'', {null}")
            with source.block("else:"):
                if kind == "string":
                    source.line(f"{data} = {data}.encode()")
                source.line(f"{size} = len({data}){one}")
        else:
            source.line(f"{data} = {taken}")
            source.line(f"{size} = len({data}){one}")
        self.count(size, "h" if kind == "string" else "i", "string_length" if kind == "string" else "varint")
        self.piece(data)

    def records(self, value: str, nullable: bool) -> None:
        source = self.source
        data, size = source.temp("r"), source.temp("n")
        source.line(f"{data} = {value}")
        refused = "raise WireError('records are null, which this version forbids')"
        null = f"{size} = -1" if nullable else refused
        source.line(f"if {data} is None: {null}")
        source.line(f"elif type({data}) in BYTES: {size} = len({data})")
        source.line(f"else: {size} = {data}.size")
        if self.flexible:
            source.line(f"{size} += 1")
        self.count(size, "i")
        self.flush()
        with source.block(f"if {size} > {1 if self.flexible else 0}:"):
            splice = f"{size} >= {SPLICE_BYTES_MIN} or type({data}) not in BYTES"
            source.line(f"if {splice}: cuts.append(len({self.out}))")
            source.line(f"{self.out}.append({data})")

    def struct(self, element: type[DeclaredStruct], value: str, nullable: bool) -> None:
        inner = self.source.temp("x")
        self.source.line(f"{inner} = {value}")
        if not nullable:
            self.struct_fields(element, inner)
            return
        self.flush()
        with self.source.block(f"if {inner} is None:"):
            self.piece(repr(b"\xff"))
            self.flush()
        with self.source.block("else:"):
            self.piece(repr(b"\x01"))
            self.struct_fields(element, inner)
            self.flush()

    def array(self, element: Any, value: str, nullable: bool) -> None:
        source = self.source
        items, size = source.temp("a"), source.temp("n")
        source.line(f"{items} = {value}")
        one = " + 1" if self.flexible else ""
        null = f"{0 if self.flexible else -1} if {items} is None else " if nullable else ""
        source.line(f"{size} = {null}len({items}){one}")
        self.count(size, "i")
        inner = source.temp("x")
        if isinstance(element, str) and element in FIXED:
            self.fixed_elements(element, items, inner, nullable)
            return
        self.flush()
        row = None if isinstance(element, str) else self.fixed_row(element, inner)
        guard = f"if {items}: " if nullable else ""
        if row is not None:
            source.line(f"{guard}{self.out} += [{row} for {inner} in {items}]")
            return
        with source.block(f"for {inner} in {items} or ():" if nullable else f"for {inner} in {items}:"):
            before = len(source.lines)
            if isinstance(element, str):
                self.primitive(element, inner, False)
            else:
                self.struct_fields(element, inner)
            self.flush()
            if len(source.lines) == before:
                source.line("pass")

    def fixed_elements(self, kind: str, items: str, inner: str, nullable: bool) -> None:
        some = f"({items} or ())" if nullable else items
        if kind == "uuid":
            self.piece(f"join([{inner}.bytes for {inner} in {some}])")
        else:
            self.piece(f'pack(f">{{len({some})}}{FIXED[kind]}", *{some})')

    def fixed_row(self, element: type[DeclaredStruct], inner: str) -> str | None:
        """One pack call for a struct whose parts all have a fixed size, or None if it is not such a struct."""
        fields = untagged(element, self.version)
        refused = any(not field.ignorable for _, field in absent(element, self.version))
        if refused or tagged(element, self.version) or not all(field.kind in FIXED for _, field in fields):
            return None
        codes = "".join(FIXED[field.kind] for _, field in fields) + ("x" if self.flexible else "")
        values = [f"{inner}.{name}" + (".bytes" if field.kind == "uuid" else "") for name, field in fields]
        pack = self.source.constant(packer(codes).pack, f"pack_{codes.replace('?', 't')}")
        return f"{pack}({', '.join(values)})"

    def tags(self, cls: type[DeclaredStruct], owner: str) -> None:
        """The tagged section: only fields that differ from their default, by rising tag."""
        known = tagged(cls, self.version)
        if not known:
            self.fixed("x", "")
            return
        source = self.source
        # The pieces before the section are pending in `self.pieces`; the fields below write to separate lists,
        # so both are set aside until the section's bytes are known.
        kept = self.run, self.pieces, self.out
        section = source.temp("u")
        source.line(f"{section} = []")
        for name, field in known:
            with source.block(f"if {is_set(source, field, f'{owner}.{name}')}:"):
                self.run, self.pieces, self.out = [], [], source.temp("v")
                source.line(f"{self.out} = []")
                self.field(field, f"{owner}.{name}")
                self.flush()
                data = source.temp("s")
                source.line(f"{data} = join({self.out})")
                tag = repr(encode_uvarint(field.tag or 0))
                source.line(f"{section} += ({tag}, varint(len({data})), {data})")
        self.run, self.pieces, self.out = kept
        self.piece(f"join((varint(len({section}) // 3), *{section})) if {section} else {bytes(1)!r}")
