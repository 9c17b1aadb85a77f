"""Prints a FileDescriptorProto as a .proto file, in one form however the file was written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.schemas.formats.proto_parser import ENUM_MAX, NUMBER_MAX, SCALARS
from barnabas.schemas.formats.proto_tokens import quoted

_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {1: "optional ", 2: "required ", 3: "repeated "}
UNINTERPRETED: Final = "uninterpreted_option"


def print_proto(file: Any, *, ordered: bool = False, custom: bool = True) -> str:
    """The text of a file. ordered: sort fields by number, imports and options by name. custom: print custom options."""
    return "\n".join(_Printer(file, ordered, custom).file()) + "\n"


class _Printer:
    def __init__(self, file: Any, ordered: bool, custom: bool) -> None:
        self.held = file
        self.proto3 = file.syntax == "proto3"
        self.ordered = ordered
        self.custom = custom

    def file(self) -> Iterator[str]:
        held = self.held
        yield f'syntax = "{held.syntax or "proto2"}";'
        if held.package:
            yield f"package {held.package};"
        imports = [
            (name, "public " if i in held.public_dependency else "weak " if i in held.weak_dependency else "")
            for i, name in enumerate(held.dependency)
        ]
        if imports:
            yield ""
            for name, kind in sorted(imports) if self.ordered else imports:
                yield f"import {kind}{quoted(name)};"
        options = list(self._options(held.options))
        if options:
            yield ""
            yield from (f"option {option};" for option in options)
        for message in held.message_type:
            yield ""
            yield from self._message(message, "")
        for enum in held.enum_type:
            yield ""
            yield from self._enum(enum, "")
        yield from self._extensions(held.extension, "")
        for service in held.service:
            yield ""
            yield from self._service(service)

    def _options(self, options: Any) -> Iterator[str]:
        found = []
        for field, value in options.ListFields():
            if field.name == UNINTERPRETED or field.name == "map_entry":
                continue
            if field.is_extension or field.is_repeated or field.message_type is not None:
                continue
            found.append((field.name, _plain(field, value)))
        if self.custom:
            found += [
                (_option_name(option), _option_value(option)) for option in options.uninterpreted_option
            ]
        for name, value in sorted(found) if self.ordered else found:
            yield f"{name} = {value}"

    def _bracketed(self, options: Iterable[str]) -> str:
        listed = ", ".join(options)
        return f" [{listed}]" if listed else ""

    def _message(self, held: Any, indent: str) -> Iterator[str]:
        inner = indent + "  "
        yield f"{indent}message {held.name} {{"
        for option in self._options(held.options):
            yield f"{inner}option {option};"
        yield from self._reserved(held, inner, NUMBER_MAX, exclusive=True)
        for extension in held.extension_range:
            yield f"{inner}extensions {_range(extension.start, extension.end - 1, NUMBER_MAX)};"
        entries = {entry.name: entry for entry in held.nested_type if entry.options.map_entry}
        fields = sorted(held.field, key=lambda f: f.number) if self.ordered else held.field
        real = self._real_oneofs(held)
        done: set[int] = set()
        for field in fields:
            if not field.HasField("oneof_index") or field.oneof_index not in real:
                yield from self._field(field, entries, inner)
            elif field.oneof_index not in done:
                done.add(field.oneof_index)
                yield from self._oneof(held, field.oneof_index, fields, entries, inner)
        for message in held.nested_type:
            if not message.options.map_entry:
                yield from self._message(message, inner)
        for enum in held.enum_type:
            yield from self._enum(enum, inner)
        yield from self._extensions(held.extension, inner)
        yield f"{indent}}}"

    def _real_oneofs(self, held: Any) -> set[int]:
        made_up = {field.oneof_index for field in held.field if field.proto3_optional}
        return set(range(len(held.oneof_decl))) - made_up

    def _oneof(
        self, held: Any, index: int, fields: Any, entries: dict[str, Any], indent: str
    ) -> Iterator[str]:
        decl = held.oneof_decl[index]
        yield f"{indent}oneof {decl.name} {{"
        for option in self._options(decl.options):
            yield f"{indent}  option {option};"
        for field in fields:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from self._field(field, entries, indent + "  ", in_oneof=True)
        yield f"{indent}}}"

    def _field(
        self, held: Any, entries: dict[str, Any], indent: str, *, in_oneof: bool = False
    ) -> Iterator[str]:
        entry = entries.get(held.type_name.rpartition(".")[2]) if held.label == 3 else None
        label = _LABELS[held.label]
        if entry is not None:
            label, kind = "", f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>"
        else:
            kind = _type(held)
        if in_oneof or (self.proto3 and held.label == 1 and not held.proto3_optional):
            label = ""
        options = []
        if held.HasField("default_value"):
            text = held.default_value
            options.append(f"default = {quoted(text) if held.type in (9, 12) else text}")
        if held.HasField("json_name") and held.json_name != _json_name(held.name):
            options.append(f"json_name = {quoted(held.json_name)}")
        options += self._options(held.options)
        yield f"{indent}{label}{kind} {held.name} = {held.number}{self._bracketed(options)};"

    def _reserved(self, held: Any, indent: str, high: int, *, exclusive: bool) -> Iterator[str]:
        ranges = [_range(r.start, r.end - exclusive, high) for r in held.reserved_range]
        if ranges:
            yield f"{indent}reserved {', '.join(ranges)};"
        if held.reserved_name:
            yield f"{indent}reserved {', '.join(quoted(name) for name in held.reserved_name)};"

    def _enum(self, held: Any, indent: str) -> Iterator[str]:
        yield f"{indent}enum {held.name} {{"
        for option in self._options(held.options):
            yield f"{indent}  option {option};"
        yield from self._reserved(held, indent + "  ", ENUM_MAX, exclusive=False)
        for value in held.value:
            yield f"{indent}  {value.name} = {value.number}{self._bracketed(self._options(value.options))};"
        yield f"{indent}}}"

    def _extensions(self, extensions: Any, indent: str) -> Iterator[str]:
        for extension in extensions:
            yield f"{indent}extend {extension.extendee} {{"
            yield from self._field(extension, {}, indent + "  ")
            yield f"{indent}}}"

    def _service(self, held: Any) -> Iterator[str]:
        yield f"service {held.name} {{"
        for option in self._options(held.options):
            yield f"  option {option};"
        for method in held.method:
            given = ("stream " if method.client_streaming else "") + method.input_type
            back = ("stream " if method.server_streaming else "") + method.output_type
            options = list(self._options(method.options))
            begin = f"  rpc {method.name} ({given}) returns ({back})"
            if options:
                yield begin + " {"
                yield from (f"    option {option};" for option in options)
                yield "  }"
            else:
                yield begin + ";"
        yield "}"


def _type(held: Any) -> str:
    return held.type_name or _NAMES[held.type]


def _range(start: int, end: int, high: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == high else end}"


def _json_name(name: str) -> str:
    words = name.split("_")
    return words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])


def _plain(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else str(value)


def _option_name(option: Any) -> str:
    return ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)


def _option_value(option: Any) -> str:
    if option.HasField("string_value"):
        return quoted(option.string_value.decode("utf-8", "replace"))
    if option.HasField("aggregate_value"):
        text: str = option.aggregate_value
        return text if text.startswith("[") else f"{{ {text} }}"
    for name in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(name):
            return str(getattr(option, name))
    return '""'
