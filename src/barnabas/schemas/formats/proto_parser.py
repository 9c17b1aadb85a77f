"""Parses a .proto file into a FileDescriptorProto in which names are unresolved and custom options uninterpreted. Pure.

Source: the language specifications of proto2 and proto3 (groups, which Google deprecated, are rejected).
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.proto_tokens import Token, tokens_of, unquoted

SCALARS: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}
NUMBER_MAX: Final = 536_870_911
ENUM_MAX: Final = (1 << 31) - 1
DEPTH_MAX: Final = 60


def parse_proto(text: str, name: str) -> Any:
    """Parse a .proto file. name: of the file, for its descriptor. Raises InvalidSchema, which names the line."""
    return _Parser(tokens_of(text)).file(name)


class _Parser:
    """A recursive descent parser over the tokens of one file."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.proto3 = False
        self.depth = 0

    # --- tokens ---------------------------------------------------------------------------------------

    def peek(self) -> str:
        return self.tokens[self.at].text

    def next(self) -> Token:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def fail(self, message: str) -> InvalidSchema:
        return InvalidSchema(f"line {self.tokens[max(self.at - 1, 0)].line}: {message}")

    def expect(self, text: str) -> None:
        token = self.next()
        if token.text != text or token.kind == "text":
            raise self.fail(f"{text!r} is expected, not {token.text or 'the end'!r}")

    def accept(self, text: str) -> bool:
        token = self.tokens[self.at]
        if token.text == text and token.kind != "text":
            self.at += 1
            return True
        return False

    def name(self, what: str, *, dotted: bool = False) -> str:
        token = self.next()
        if token.kind != "name" or (not dotted and "." in token.text):
            raise self.fail(f"the name of {what} is expected, not {token.text or 'the end'!r}")
        return token.text

    def text(self) -> str:
        token = self.next()
        if token.kind != "text":
            raise self.fail(f"a quoted string is expected, not {token.text or 'the end'!r}")
        text = unquoted(token.text)
        while self.tokens[self.at].kind == "text":
            text += unquoted(self.next().text)
        return text

    def integer(self, low: int, high: int) -> int:
        minus = self.accept("-")
        token = self.next()
        try:
            value = int(
                token.text, 8 if token.text[:1] == "0" and token.text.isdigit() and token.text != "0" else 0
            )
        except ValueError:
            raise self.fail(f"a number is expected, not {token.text or 'the end'!r}") from None
        value = -value if minus else value
        if not low <= value <= high:
            raise self.fail(f"{value} is not a number from {low} to {high}")
        return value

    # --- file -----------------------------------------------------------------------------------------

    def file(self, name: str) -> Any:
        file_descriptor = pb.FileDescriptorProto(name=name)
        if self.peek() in ("syntax", "edition"):
            kind = self.next().text
            self.expect("=")
            value = self.text()
            self.expect(";")
            if kind == "edition" or value not in ("proto2", "proto3"):
                raise self.fail(f"{kind} {value!r} is unknown; use proto2 or proto3")
            self.proto3 = value == "proto3"
            if self.proto3:
                file_descriptor.syntax = value
        while self.tokens[self.at].kind != "end":
            self._statement(file_descriptor)
        return file_descriptor

    def _statement(self, file_descriptor: Any) -> None:
        word = self.peek()
        if self.accept(";"):
            return
        if word == "package":
            self.next()
            if file_descriptor.package:
                raise self.fail("a file must have only one package")
            file_descriptor.package = self.name("the package", dotted=True)
            self.expect(";")
        elif word == "import":
            self._import(file_descriptor)
        elif word == "option":
            self._option_statement(file_descriptor.options)
        elif word == "message":
            self._message(file_descriptor.message_type.add())
        elif word == "enum":
            self._enum(file_descriptor.enum_type.add())
        elif word == "service":
            self._service(file_descriptor.service.add())
        elif word == "extend":
            self._extend(file_descriptor.extension, file_descriptor.message_type)
        else:
            self.next()
            raise self.fail(f"{word!r} is not expected here")

    def _import(self, file_descriptor: Any) -> None:
        self.next()
        kind = self.next().text if self.peek() in ("public", "weak") else ""
        file_descriptor.dependency.append(self.text())
        if kind:
            getattr(file_descriptor, f"{kind}_dependency").append(len(file_descriptor.dependency) - 1)
        self.expect(";")

    # --- options --------------------------------------------------------------------------------------

    def _option_statement(self, options: Any) -> None:
        self.expect("option")
        self._option(options)
        self.expect(";")

    def _option(self, options: Any) -> None:
        parts: list[tuple[str, bool]] = []
        while True:
            if self.accept("("):
                parts.append((self.name("an option", dotted=True), True))
                self.expect(")")
            else:
                parts += [
                    (part, False) for part in self.name("an option", dotted=True).lstrip(".").split(".")
                ]
            token = self.tokens[self.at]
            if token.kind == "name" and token.text.startswith("."):  # (a.b).c
                continue
            break
        self.expect("=")
        plain = parts[0][0] if len(parts) == 1 and not parts[0][1] else ""
        if plain in options.DESCRIPTOR.fields_by_name and self._known_option(options, plain):
            return
        option = options.uninterpreted_option.add()
        for part, extension in parts:
            option.name.add(name_part=part, is_extension=extension)
        self._value(option)

    def _known_option(self, options: Any, name: str) -> bool:
        field = options.DESCRIPTOR.fields_by_name[name]
        if field.is_repeated or field.message_type is not None:
            return False
        if field.enum_type is not None:
            word = self.name(f"a value of option {name}")
            value = field.enum_type.values_by_name.get(word)
            if value is None:
                raise self.fail(f"{word!r} is not a value of option {name}")
            setattr(options, name, value.number)
        elif field.type == field.TYPE_BOOL:
            word = self.next().text
            if word not in ("true", "false"):
                raise self.fail(f"option {name} must be true or false, not {word!r}")
            setattr(options, name, word == "true")
        elif field.type == field.TYPE_STRING:
            setattr(options, name, self.text())
        else:
            return False
        return True

    def _value(self, option: Any) -> None:
        token = self.tokens[self.at]
        if token.kind == "text":
            option.string_value = self.text().encode("utf-8")
        elif token.text in ("{", "["):
            option.aggregate_value = self._aggregate()
        elif token.kind == "name":
            option.identifier_value = self.next().text
        else:
            minus = self.accept("-")
            word = self.next().text
            if minus and word in ("inf", "nan"):
                option.double_value = float(f"-{word}")
            elif word.isdigit() or word[:2].lower() == "0x":
                value = int(word, 0 if word[:2].lower() == "0x" else 10)
                if minus:
                    option.negative_int_value = -value
                else:
                    option.positive_int_value = value
            else:
                try:
                    option.double_value = float(word) * (-1 if minus else 1)
                except ValueError:
                    raise self.fail(f"{word or 'the end'!r} is not the value of an option") from None

    def _aggregate(self) -> str:
        """The tokens of a message value up to its closing bracket, as text."""
        words, depth = [], 0
        while True:
            token = self.next()
            if token.kind == "end":
                raise self.fail("a bracket is not closed")
            depth += (token.text in "{[") - (token.text in "}]") if token.kind == "mark" else 0
            words.append(token.text)
            if depth == 0:
                return " ".join(words[1:-1]) if words[0] == "{" else " ".join(words)

    def _bracket_options(self, options: Any, field: Any = None) -> None:
        if not self.accept("["):
            return
        while True:
            if field is not None and self.peek() in ("default", "json_name"):
                word = self.next().text
                self.expect("=")
                if word == "json_name":
                    field.json_name = self.text()
                else:
                    field.default_value = self._default(field)
            else:
                self._option(options)
            if not self.accept(","):
                break
        self.expect("]")

    def _default(self, field: Any) -> str:
        if self.tokens[self.at].kind == "text":
            return self.text()
        minus = "-" if self.accept("-") else ""
        return minus + self.next().text

    # --- messages -------------------------------------------------------------------------------------

    def _message(self, message: Any) -> None:
        self.next()
        message.name = self.name("the message")
        self._message_body(message)

    def _message_body(self, message: Any) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.fail(f"messages are nested more than {DEPTH_MAX} levels deep")
        self.expect("{")
        while not self.accept("}"):
            self._member(message)
        self.depth -= 1
        self._close_optionals(message)

    def _member(self, message: Any) -> None:
        word = self.peek()
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        block = following.kind == "name"  # `message` may also be the name of a field's type
        if self.accept(";"):
            return
        if word == "message" and block:
            self._message(message.nested_type.add())
        elif word == "enum" and block:
            self._enum(message.enum_type.add())
        elif word == "option" and (block or following.text == "("):
            self._option_statement(message.options)
        elif word == "oneof" and block:
            self._oneof(message)
        elif word == "extend" and block:
            self._extend(message.extension, message.nested_type)
        elif word == "extensions" and following.kind == "number":
            self._extensions(message)
        elif word == "reserved" and following.kind in ("number", "text"):
            self._reserved(message, NUMBER_MAX, 1)
        elif self.tokens[self.at].kind == "end":
            self.next()
            raise self.fail(f"message {message.name!r} is not closed")
        else:
            self._field(message.field.add(), message.nested_type)

    def _close_optionals(self, message: Any) -> None:
        """Add a oneof for each `optional` field of proto3, behind the real ones, as protoc does."""
        taken = {oneof.name for oneof in message.oneof_decl}
        for field in message.field:
            if field.proto3_optional:
                name = f"_{field.name}"
                while name in taken:
                    name = f"X{name}"
                taken.add(name)
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)

    def _field(self, field: Any, nested: Any, oneof: int | None = None) -> None:
        word = self.peek()
        if word in LABELS:
            if oneof is not None:
                raise self.fail(f"a field of a oneof must not be {word}")
            self.next()
            field.label = LABELS[word]
            if word == "required" and self.proto3:
                raise self.fail("proto3 has no required fields")
            field.proto3_optional = self.proto3 and word == "optional"
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        elif self.proto3 or oneof is not None or word == "map":
            field.label = LABELS["optional"]
        else:
            self.next()
            raise self.fail(
                f"a field of proto2 must begin with optional, required or repeated, not {word or 'the end'!r}"
            )
        if self.peek() == "group":
            raise self.fail("groups are not supported; use a message")
        key = self._type(field)
        field.name = self.name("the field")
        self.expect("=")
        field.number = self.integer(1, NUMBER_MAX)
        if oneof is not None:
            field.oneof_index = oneof
        self._bracket_options(field.options, field)
        self.expect(";")
        if key is not None:
            self._map_entry(field, nested, *key)

    def _type(self, field: Any) -> tuple[Any, Any] | None:
        """Set the type of a field; for a map, return fields for its key and value instead."""
        word = self.name("a type", dotted=True)
        if word == "map" and self.accept("<"):
            key = pb.FieldDescriptorProto(name="key", number=1, label=1)
            value = pb.FieldDescriptorProto(name="value", number=2, label=1)
            self._type(key)
            self.expect(",")
            self._type(value)
            self.expect(">")
            return key, value
        if word in SCALARS:
            field.type = SCALARS[word]
        else:
            field.type_name = word
        return None

    def _map_entry(self, field: Any, nested: Any, key: Any, value: Any) -> None:
        words = field.name.split("_")
        entry = nested.add(name="".join(word[:1].upper() + word[1:] for word in words) + "Entry")
        entry.options.map_entry = True
        entry.field.extend([key, value])
        field.label, field.type, field.type_name = LABELS["repeated"], 11, entry.name

    def _oneof(self, message: Any) -> None:
        self.next()
        index = len(message.oneof_decl)
        decl = message.oneof_decl.add(name=self.name("the oneof"))
        self.expect("{")
        while not self.accept("}"):
            if self.peek() == "option":
                self._option_statement(decl.options)
            elif not self.accept(";"):
                self._field(message.field.add(), message.nested_type, index)

    def _extend(self, extensions: Any, nested: Any) -> None:
        self.next()
        extendee = self.name("the extended message", dotted=True)
        self.expect("{")
        while not self.accept("}"):
            if not self.accept(";"):
                field = extensions.add(extendee=extendee)
                self._field(field, nested)

    def _extensions(self, message: Any) -> None:
        self.next()
        for start, end in self._ranges(NUMBER_MAX, 1):
            message.extension_range.add(start=start, end=end + 1)
        if self.peek() == "[":
            self._bracket_options(message.extension_range[-1].options)
        self.expect(";")

    def _ranges(self, high: int, low: int) -> list[tuple[int, int]]:
        ranges = []
        while True:
            start = end = self.integer(low, high)
            if self.accept("to"):
                end = high if self.accept("max") else self.integer(low, high)
            if end < start:
                raise self.fail(f"{start} to {end} is not a range")
            ranges.append((start, end))
            if not self.accept(","):
                return ranges

    def _reserved(self, declaration: Any, high: int, low: int) -> None:
        self.next()
        if self.tokens[self.at].kind == "text":
            declaration.reserved_name.append(self.text())
            while self.accept(","):
                declaration.reserved_name.append(self.text())
        else:
            inclusive = low < 1  # ranges of enums include their end
            for start, end in self._ranges(high, low):
                declaration.reserved_range.add(start=start, end=end if inclusive else end + 1)
        self.expect(";")

    # --- enums and services -----------------------------------------------------------------------------

    def _enum(self, enum: Any) -> None:
        self.next()
        enum.name = self.name("the enum")
        self.expect("{")
        while not self.accept("}"):
            following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
            if self.accept(";"):
                continue
            if self.peek() == "option" and following.text != "=":
                self._option_statement(enum.options)
            elif self.peek() == "reserved" and following.text != "=":
                self._reserved(enum, ENUM_MAX, -ENUM_MAX - 1)
            else:
                value = enum.value.add(name=self.name("a value"))
                self.expect("=")
                value.number = self.integer(-ENUM_MAX - 1, ENUM_MAX)
                self._bracket_options(value.options)
                self.expect(";")

    def _service(self, service: Any) -> None:
        self.next()
        service.name = self.name("the service")
        self.expect("{")
        while not self.accept("}"):
            if self.peek() == "option":
                self._option_statement(service.options)
            elif not self.accept(";"):
                self._method(service.method.add())

    def _method(self, method: Any) -> None:
        self.expect("rpc")
        method.name = self.name("the method")
        for side in ("input", "output"):
            if side == "output":
                self.expect("returns")
            self.expect("(")
            if self.peek() == "stream":
                self.next()
                setattr(method, "client_streaming" if side == "input" else "server_streaming", True)
            setattr(method, f"{side}_type", self.name("a message", dotted=True))
            self.expect(")")
        if self.accept("{"):
            while not self.accept("}"):
                if not self.accept(";"):
                    self._option_statement(method.options)
        else:
            self.expect(";")
