"""Custom options of Protobuf files: extensions by number in descriptors, names and text in .proto files. Pure.

A descriptor that protoc made has `(confluent.field_meta)` as extension 1088 of FieldOptions. The registry stores custom
options uninterpreted, like a parser, and makes them extensions again in the descriptors that it returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from io import StringIO
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import message_factory, text_format
from google.protobuf.descriptor_pool import DescriptorPool

from barnabas.schemas.formats.proto_parser import parse_proto

META_FILE: Final = "confluent/meta.proto"
META: Final = """
    syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
    message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
    message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
    extend google.protobuf.FileOptions { Meta file_meta = 1088; }
    extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
    extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
    extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
    extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
METAS: Final = {
    "FieldOptions": "confluent.field_meta",
    "MessageOptions": "confluent.message_meta",
    "EnumOptions": "confluent.enum_meta",
}
"""The options whose tags are used, by the options message that they extend."""
DEPTH_MAX: Final = 50


@cache
def meta_pool() -> Any:
    """A pool with Confluent's own options, for files that do not import their definitions."""
    pool = DescriptorPool()
    pool.AddSerializedFile(pb.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(parse_proto(META, META_FILE).SerializeToString())
    return pool


def options_of(message: Any, scope: str) -> Iterator[tuple[Any, str]]:
    """Each element of a file that has options, at every level, and the scope in which their names are resolved."""
    for field, value in message.ListFields():
        if field.name == "options":
            yield message, scope
        elif field.message_type is not None and field.is_repeated:
            for child in value:
                inner = scope
                if field.message_type.name in ("DescriptorProto", "ServiceDescriptorProto"):
                    inner = f"{scope}.{child.name}" if scope else child.name
                yield from options_of(child, inner)


def uninterpret(file: Any, pool: Any) -> None:
    """Replace extensions by uninterpreted options, as text. pool: contains the extensions that the file can use."""
    for element, _ in list(options_of(file, file.package)):
        raw, pairs = element.options.SerializeToString(), []
        for source in (pool, meta_pool()):
            options = _options_class(source, element.options)
            if options is None:
                continue
            known_options = options.FromString(raw)
            for field, value in known_options.ListFields():
                if field.is_extension:
                    pairs += [(field, inner) for inner in (value if field.is_repeated else (value,))]
                    known_options.ClearExtension(field)
            raw = known_options.SerializeToString()
        plain = type(element.options).FromString(raw)
        plain.DiscardUnknownFields()
        for field, value in pairs:
            option = plain.uninterpreted_option.add()
            option.name.add(name_part=field.full_name, is_extension=True)
            _put_text(option, field, value)
        element.options.CopyFrom(plain)


def interpret(file: Any, pool: Any, *, keep: bool = False) -> list[str]:
    """Replace uninterpreted options by extensions; return the names of unknown ones, which are removed unless `keep`.

    pool: contains the extensions that the file can use."""
    left = []
    for element, scope in list(options_of(file, file.package)):
        waiting = list(element.options.uninterpreted_option)
        element.options.ClearField("uninterpreted_option")
        raw, kept = element.options.SerializeToString(), []
        for option in waiting:
            for source in (pool, meta_pool()):
                options = _options_class(source, element.options)
                parsed = None if options is None else options.FromString(raw)
                if parsed is not None and _put_option(parsed, option, source, scope):
                    raw = parsed.SerializeToString()
                    break
            else:
                left.append(".".join(part.name_part for part in option.name))
                kept.append(option)
        element.options.ParseFromString(raw)
        element.options.uninterpreted_option.extend(kept if keep else ())
    return left


def tags_by_name(file: Any, prefix: str = "") -> Iterator[tuple[str, frozenset[str]]]:
    """(full name, tags) of the fields, messages and enums in a file whose options have been interpreted."""
    prefix = prefix or file.package
    messages = file.message_type if hasattr(file, "message_type") else file.nested_type
    for element in (*file.extension, *getattr(file, "field", ()), *file.enum_type, *messages):
        tags = _tags(element.options)
        if tags:
            yield f"{prefix}.{element.name}" if prefix else element.name, tags
    for message in messages:
        yield from tags_by_name(message, f"{prefix}.{message.name}" if prefix else message.name)


def _tags(options: Any) -> frozenset[str]:
    known = meta_pool()
    parsed = _options_class(known, options).FromString(options.SerializeToString())
    return frozenset(parsed.Extensions[known.FindExtensionByName(METAS[options.DESCRIPTOR.name])].tags)


def _options_class(pool: Any, options: Any) -> Any:
    """The class of an options message with a pool's extensions; None if the pool does not contain the message."""
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))
    except KeyError:
        return None


# --- a value as text ----------------------------------------------------------------------------------


def _put_text(option: Any, field: Any, value: Any) -> None:
    if field.message_type is not None:
        option.aggregate_value = " ".join(_words(value, 0))
    elif field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        if known is None:
            setattr(option, "negative_int_value" if value < 0 else "positive_int_value", value)
        else:
            option.identifier_value = known.name
    elif isinstance(value, bool):
        option.identifier_value = "true" if value else "false"
    elif isinstance(value, int):
        setattr(option, "negative_int_value" if value < 0 else "positive_int_value", value)
    elif isinstance(value, float):
        option.double_value = value
    else:
        option.string_value = value.encode() if isinstance(value, str) else value


def _words(message: Any, depth: int) -> Iterator[str]:
    """The tokens of a message value, as in a .proto file."""
    if depth > DEPTH_MAX:
        raise RecursionError
    for field, value in message.ListFields():
        name = f"[{field.full_name}]" if field.is_extension else field.name
        if field.message_type is None:
            shown = [_scalar(field, inner) for inner in (value if field.is_repeated else (value,))]
            yield f"{name} : [ {' , '.join(shown)} ]" if field.is_repeated else f"{name} : {shown[0]}"
            continue
        if field.message_type.GetOptions().map_entry:
            entry = message_factory.GetMessageClass(field.message_type)
            scalar = field.message_type.fields_by_name["value"].message_type is None
            value = [
                entry(key=key, value=value[key]) if scalar else _entry(entry, key, value[key])
                for key in sorted(value)
            ]
        elif not field.is_repeated:
            value = (value,)
        for inner in value:
            yield " ".join((name, "{", *_words(inner, depth + 1), "}"))


def _entry(made_by: Any, key: Any, value: Any) -> Any:
    entry = made_by(key=key)
    entry.value.CopyFrom(value)
    return entry


def _scalar(field: Any, value: Any) -> str:
    out = StringIO()
    text_format.PrintFieldValue(field, value, out, as_one_line=True, as_utf8=True)
    return out.getvalue()


# --- text as a value ----------------------------------------------------------------------------------


def _put_option(message: Any, option: Any, pool: Any, scope: str) -> bool:
    """Set an option in a message; False if the option is unknown or its value is not of its type."""
    parts = [(part.name_part, part.is_extension) for part in option.name]
    try:
        for name, is_extension in parts[:-1]:
            field = _field(message, name, is_extension, pool, scope)
            if field is None or field.message_type is None or field.is_repeated:
                return False
            message = message.Extensions[field] if is_extension else getattr(message, field.name)
        field = _field(message, *parts[-1], pool, scope)
        return field is not None and _put_value(message, field, option, pool)
    except (text_format.ParseError, TypeError, ValueError, KeyError, UnicodeDecodeError):
        return False


def _field(message: Any, name: str, is_extension: bool, pool: Any, scope: str) -> Any:
    if not is_extension:
        return message.DESCRIPTOR.fields_by_name.get(name)
    scopes = [""] if name.startswith(".") else [*_outwards(scope), ""]
    for outer in scopes:
        full = f"{outer}.{name}" if outer else name.lstrip(".")
        try:
            extension = pool.FindExtensionByName(full)
        except KeyError:
            continue
        if extension.containing_type is message.DESCRIPTOR:
            return extension
    return None


def _outwards(scope: str) -> Iterator[str]:
    while scope:
        yield scope
        scope = scope.rpartition(".")[0]


def _put_value(message: Any, field: Any, option: Any, pool: Any) -> bool:
    content = message.Extensions[field] if field.is_extension else getattr(message, field.name)
    if field.message_type is not None:
        if not option.HasField("aggregate_value") or option.aggregate_value.startswith("["):
            return False
        message_value = content.add() if field.is_repeated else content
        message_value.SetInParent()
        text_format.Merge(option.aggregate_value, message_value, descriptor_pool=pool)
        return True
    value = _plain(field, option)
    if field.is_repeated:
        content.append(value)
    elif field.is_extension:
        message.Extensions[field] = value
    else:
        setattr(message, field.name, value)
    return True


def _plain(field: Any, option: Any) -> Any:
    """The value of an option, for a field that is not a message. Raises ValueError, KeyError, TypeError."""
    if option.HasField("string_value"):
        text: bytes = option.string_value
        return text if field.type == field.TYPE_BYTES else text.decode()
    if option.HasField("identifier_value"):
        word = option.identifier_value
        if field.enum_type is not None:
            return field.enum_type.values_by_name[word].number
        return float(word) if word in ("inf", "nan") else {"true": True, "false": False}[word]
    for name in ("positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(name):
            value = getattr(option, name)
            return float(value) if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT) else value
    raise ValueError
