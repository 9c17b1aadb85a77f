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
        self.file_descriptor = file
        self.proto3 = file.syntax == "proto3"
        self.ordered = ordered
        self.custom = custom

    def file(self) -> Iterator[str]:
        file_descriptor = self.file_descriptor
        yield f'syntax = "{file_descriptor.syntax or "proto2"}";'
        if file_descriptor.package:
            yield f"package {file_descriptor.package};"
        imports = [
            (
                name,
                "public "
                if i in file_descriptor.public_dependency
                else "weak "
                if i in file_descriptor.weak_dependency
                else "",
            )
            for i, name in enumerate(file_descriptor.dependency)
        ]
        if imports:
            yield ""
            for name, kind in sorted(imports) if self.ordered else imports:
                yield f"import {kind}{quoted(name)};"
        options = list(self._options(file_descriptor.options))
        if options:
            yield ""
            yield from (f"option {option};" for option in options)
        for message in file_descriptor.message_type:
            yield ""
            yield from self._message(message, "")
        for enum in file_descriptor.enum_type:
            yield ""
            yield from self._enum(enum, "")
        yield from self._extensions(file_descriptor.extension, "")
        for service in file_descriptor.service:
            yield ""
            yield from self._service(service)

    def _options(self, options: Any) -> Iterator[str]:
        pairs = []
        for field, value in options.ListFields():
            if field.name == UNINTERPRETED or field.name == "map_entry":
                continue
            if field.is_extension or field.is_repeated or field.message_type is not None:
                continue
            pairs.append((field.name, _plain(field, value)))
        if self.custom:
            pairs += [
                (_option_name(option), _option_value(option)) for option in options.uninterpreted_option
            ]
        for name, value in sorted(pairs) if self.ordered else pairs:
            yield f"{name} = {value}"

    def _bracketed(self, options: Iterable[str]) -> str:
        listed = ", ".join(options)
        return f" [{listed}]" if listed else ""

    def _message(self, descriptor: Any, indent: str) -> Iterator[str]:
        inner = indent + "  "
        yield f"{indent}message {descriptor.name} {{"
        for option in self._options(descriptor.options):
            yield f"{inner}option {option};"
        yield from self._reserved(descriptor, inner, NUMBER_MAX, exclusive=True)
        for extension in descriptor.extension_range:
            yield f"{inner}extensions {_range(extension.start, extension.end - 1, NUMBER_MAX)};"
        entries = {entry.name: entry for entry in descriptor.nested_type if entry.options.map_entry}
        fields = sorted(descriptor.field, key=lambda f: f.number) if self.ordered else descriptor.field
        real = self._real_oneofs(descriptor)
        done: set[int] = set()
        for field in fields:
            if not field.HasField("oneof_index") or field.oneof_index not in real:
                yield from self._field(field, entries, inner)
            elif field.oneof_index not in done:
                done.add(field.oneof_index)
                yield from self._oneof(descriptor, field.oneof_index, fields, entries, inner)
        for message in descriptor.nested_type:
            if not message.options.map_entry:
                yield from self._message(message, inner)
        for enum in descriptor.enum_type:
            yield from self._enum(enum, inner)
        yield from self._extensions(descriptor.extension, inner)
        yield f"{indent}}}"

    def _real_oneofs(self, message: Any) -> set[int]:
        made_up = {field.oneof_index for field in message.field if field.proto3_optional}
        return set(range(len(message.oneof_decl))) - made_up

    def _oneof(
        self, message: Any, index: int, fields: Any, entries: dict[str, Any], indent: str
    ) -> Iterator[str]:
        decl = message.oneof_decl[index]
        yield f"{indent}oneof {decl.name} {{"
        for option in self._options(decl.options):
            yield f"{indent}  option {option};"
        for field in fields:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from self._field(field, entries, indent + "  ", in_oneof=True)
        yield f"{indent}}}"

    def _field(
        self, field: Any, entries: dict[str, Any], indent: str, *, in_oneof: bool = False
    ) -> Iterator[str]:
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == 3 else None
        label = _LABELS[field.label]
        if entry is not None:
            label, kind = "", f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>"
        else:
            kind = _type(field)
        if in_oneof or (self.proto3 and field.label == 1 and not field.proto3_optional):
            label = ""
        options = []
        if field.HasField("default_value"):
            text = field.default_value
            options.append(f"default = {quoted(text) if field.type in (9, 12) else text}")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            options.append(f"json_name = {quoted(field.json_name)}")
        options += self._options(field.options)
        yield f"{indent}{label}{kind} {field.name} = {field.number}{self._bracketed(options)};"

    def _reserved(self, declaration: Any, indent: str, high: int, *, exclusive: bool) -> Iterator[str]:
        ranges = [_range(r.start, r.end - exclusive, high) for r in declaration.reserved_range]
        if ranges:
            yield f"{indent}reserved {', '.join(ranges)};"
        if declaration.reserved_name:
            yield f"{indent}reserved {', '.join(quoted(name) for name in declaration.reserved_name)};"

    def _enum(self, enum: Any, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        for option in self._options(enum.options):
            yield f"{indent}  option {option};"
        yield from self._reserved(enum, indent + "  ", ENUM_MAX, exclusive=False)
        for value in enum.value:
            yield f"{indent}  {value.name} = {value.number}{self._bracketed(self._options(value.options))};"
        yield f"{indent}}}"

    def _extensions(self, extensions: Any, indent: str) -> Iterator[str]:
        for extension in extensions:
            yield f"{indent}extend {extension.extendee} {{"
            yield from self._field(extension, {}, indent + "  ")
            yield f"{indent}}}"

    def _service(self, service: Any) -> Iterator[str]:
        yield f"service {service.name} {{"
        for option in self._options(service.options):
            yield f"  option {option};"
        for method in service.method:
            argument = ("stream " if method.client_streaming else "") + method.input_type
            back = ("stream " if method.server_streaming else "") + method.output_type
            options = list(self._options(method.options))
            begin = f"  rpc {method.name} ({argument}) returns ({back})"
            if options:
                yield begin + " {"
                yield from (f"    option {option};" for option in options)
                yield "  }"
            else:
                yield begin + ";"
        yield "}"


def _type(field: Any) -> str:
    return field.type_name or _NAMES[field.type]


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
