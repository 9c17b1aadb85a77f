"""What data contracts have to know of Avro and Protobuf: the fields of a value, their kinds and tags. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.schemas import expressions
from barnabas.schemas.codecs import TAGS, Mismatch, tags_at
from barnabas.schemas.codecs.rules import Field, Visit

RECORDS: Final = frozenset({"record", "error"})
AVRO_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def bare(value: Any) -> Any:
    """An Avro value without the names of union branches, which are given as (name, value)."""
    if isinstance(value, tuple):
        return bare(value[1])
    if isinstance(value, dict):
        return {name: bare(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [bare(inner) for inner in value]
    return value


class AvroShape:
    """schema: as fastavro parses it. named: its named types. tags: of the whole value."""

    def __init__(self, schema: Any, named: Mapping[str, Any], tags: Iterable[str] = ()) -> None:
        self._schema, self._named, self._tags = schema, named, frozenset(tags)

    def argument(self, value: Any, field: Field | None = None) -> Any:
        """See rules.Shape."""
        return expressions.argument(bare(value))

    def result(self, value: Any, like: Any) -> Any:
        """See rules.Shape. Expressions do not see the union branch of a value: the result gets that of the previous value if
        it fits, otherwise the only one that fits. Raises BadExpression if several do."""
        return self._named_again(self._schema, value, like)

    def _named_again(self, schema: Any, value: Any, like: Any) -> Any:
        if isinstance(schema, str) and schema not in AVRO_PRIMITIVE:
            schema = self._named[schema]
        if isinstance(schema, list):
            return self._branch_again(schema, value, like)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self._named_again(kind, value, like)
        if kind == "array" and isinstance(value, list):
            likes = like if isinstance(like, list) and len(like) == len(value) else [None] * len(value)
            pairs = zip(value, likes, strict=True)
            return [self._named_again(schema["items"], inner, old) for inner, old in pairs]
        olds = like if isinstance(like, dict) else {}
        if kind == "map" and isinstance(value, dict):
            inside = schema["values"]
            return {name: self._named_again(inside, inner, olds.get(name)) for name, inner in value.items()}
        if kind in RECORDS and isinstance(value, dict):
            fields = dict(value)
            for row in schema["fields"]:
                name = row["name"]
                if name in fields:
                    fields[name] = self._named_again(row["type"], fields[name], olds.get(name))
            return fields
        return value

    def _branch_again(self, schema: Sequence[Any], value: Any, like: Any) -> Any:
        if value is None and "null" in schema:
            return None
        label = like[0] if isinstance(like, tuple) else ""
        fitting = self._fitting(schema, value)
        is_alone = len(fitting) == 1
        if not is_alone and like is not None and bare(like) == value:
            is_named = isinstance(like, tuple)
            fitting = [b for b in fitting if (_label(b) == label if is_named else self._is_unnamed(b))]
        if not fitting or (is_alone and _label(fitting[0]) in AVRO_PRIMITIVE):
            return value  # refused when it is written, or clear without its name
        if len(fitting) > 1:
            names = ", ".join(map(_label, fitting))
            raise expressions.BadExpression(
                f"its result may be any of {names}, which an expression cannot tell"
            )
        name = _label(fitting[0])
        old = like[1] if label == name else None if label else like
        return name, self._named_again(fitting[0], value, old)

    def _fitting(self, schema: Sequence[Any], value: Any) -> list[Any]:
        """The branches that a value without a branch name may belong to; of the unnamed ones only the closest."""
        from barnabas.schemas.codecs.avro import holds

        fitting = [branch for branch in schema if branch != "null" and self._validates(value, branch)]
        unnamed = [branch for branch in fitting if self._is_unnamed(branch)]
        closest = [b for b in unnamed if holds(str(b["type"] if isinstance(b, dict) else b), value)]
        named = [b for b in fitting if not self._is_unnamed(b) and self._has_fields(b, value)]
        return (closest or unnamed)[:1] + named

    def _is_unnamed(self, branch: Any) -> bool:
        return branch in AVRO_PRIMITIVE if isinstance(branch, str) else "name" not in branch

    def _has_fields(self, branch: Any, value: Any) -> bool:
        """Whether a record type has fields for everything in a value."""
        whole = self._named.get(branch, branch) if isinstance(branch, str) else branch
        names = {row["name"] for row in whole.get("fields", ())} if isinstance(whole, dict) else set()
        return not isinstance(value, dict) or value.keys() <= names

    def walk(self, value: Any, visit: Visit) -> Any:
        """See rules.Shape. The name of a union branch is kept if the new value still has that type."""
        whole = Field("", "", "", self._tags, value) if self._tags else None
        return self._walked(self._schema, value, visit, whole)

    def _walked(self, schema: Any, value: Any, visit: Visit, field: Field | None) -> Any:
        if isinstance(schema, str) and schema not in AVRO_PRIMITIVE:
            schema = self._named[schema]
        if isinstance(schema, list):
            branch = self._branch(schema, value)
            if not isinstance(value, tuple):
                return self._walked(branch, value, visit, field)
            new_value = self._walked(branch, value[1], visit, field)
            return (value[0], new_value) if self._validates(new_value, branch) else new_value
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("enum", "fixed") and TAGS in schema:
            field = field or Field("", "", "", frozenset(), value)
            field = field._replace(tags=field.tags | tags_at(schema))
        if isinstance(kind, (dict, list)):
            return self._walked(kind, value, visit, field)
        if kind == "array":
            return [self._walked(schema["items"], inner, visit, field) for inner in value]
        if kind == "map":
            return {
                name: self._walked(schema["values"], inner, visit, field) for name, inner in value.items()
            }
        if kind in RECORDS:
            new_value = dict(value)
            if field is not None:
                visit(field._replace(kind="RECORD"), new_value)
            visit(
                Field(schema["name"], "", "RECORD", tags_at(schema), new_value), new_value
            )  # the type may have tags
            for row in schema["fields"]:
                name = row["name"]
                if name in new_value:
                    inside = Field(f"{schema['name']}.{name}", name, "", tags_at(row), new_value)
                    new_value[name] = self._walked(row["type"], new_value[name], visit, inside)
            return new_value
        return value if field is None else visit(field._replace(kind=kind.upper()), value)

    def _branch(self, schema: Sequence[Any], value: Any) -> Any:
        if isinstance(value, tuple):
            return next(branch for branch in schema if _label(branch) == value[0])
        if value is None and "null" in schema:
            return "null"
        others = [branch for branch in schema if branch != "null"]
        if len(others) == 1:
            return others[0]
        return next((branch for branch in others if self._validates(value, branch)), others[0])

    def _validates(self, value: Any, branch: Any) -> bool:
        import fastavro.validation

        whole = self._named.get(branch, branch) if isinstance(branch, str) else branch
        try:
            return bool(fastavro.validation.validate(value, whole, raise_errors=False))
        except Exception:  # types that are defined elsewhere
            return True


def _label(schema: Any) -> str:
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)


class ProtobufShape:
    """tags: those of fields, messages and enums, by their full names."""

    def __init__(self, tags: Mapping[str, frozenset[str]]) -> None:
        self._tags = tags

    def argument(self, value: Any, field: Field | None = None) -> Any:
        """See rules.Shape."""
        if field is not None:
            return expressions.field_argument(value, field.native)
        return expressions.argument(value)

    def result(self, value: Any, like: Any) -> Any:
        """See rules.Shape."""
        return expressions.protobuf_result(value, like)

    def walk(self, value: Any, visit: Visit) -> Any:
        """See rules.Shape. Modifies the message. Fields that are not set are skipped. Raises BadExpression."""
        try:
            self._walk(value, visit)
        except (TypeError, ValueError) as error:
            if isinstance(error, (Mismatch, expressions.BadExpression)):
                raise
            raise expressions.BadExpression(f"its result is no value of the field: {error}") from error
        return value

    def _tags_of(self, descriptor: Any) -> frozenset[str]:
        """The tags of a field and, if it is an enum, of its type."""
        tags = self._tags.get(descriptor.full_name, frozenset())
        kind = descriptor.enum_type
        return tags if kind is None else tags | self._tags.get(kind.full_name, frozenset())

    def _walk(self, value: Any, visit: Visit) -> None:
        name = value.DESCRIPTOR.full_name
        visit(Field(name, "", "RECORD", self._tags.get(name, frozenset()), value), value)
        extensions = [descriptor for descriptor, _ in value.ListFields() if descriptor.is_extension]
        for descriptor in (*value.DESCRIPTOR.fields, *extensions):
            if descriptor.is_extension:
                content = value.Extensions[descriptor]
            elif descriptor.has_presence and not value.HasField(descriptor.name):
                continue
            else:
                content = getattr(value, descriptor.name)
            tags = self._tags_of(descriptor)
            field = Field(descriptor.full_name, descriptor.name, "", tags, value, descriptor)
            if descriptor.message_type is not None:
                self._walk_messages(field, content, visit)
                continue
            field = field._replace(kind=_proto_kind(descriptor))
            if descriptor.is_repeated:
                content[:] = [visit(field, inner) for inner in content]
                continue
            new_value = visit(field, content)
            if new_value is content:
                continue
            if descriptor.is_extension:
                value.Extensions[descriptor] = new_value
            else:
                setattr(value, descriptor.name, new_value)

    def _walk_messages(self, field: Field, messages: Any, visit: Visit) -> None:
        descriptor = field.native
        if descriptor.message_type.GetOptions().map_entry:
            inside = descriptor.message_type.fields_by_name["value"]
            if inside.message_type is not None:
                for key in list(messages):
                    self._walk_message(field._replace(native=inside), messages[key], visit)
                return
            tags = field.tags | self._tags_of(inside)
            field = field._replace(kind=_proto_kind(inside), native=inside, tags=tags)
            for key in list(messages):
                new_value = visit(field, messages[key])
                if new_value is not messages[key]:
                    messages[key] = new_value
        else:
            for inner in messages if descriptor.is_repeated else (messages,):
                self._walk_message(field, inner, visit)

    def _walk_message(self, field: Field, message: Any, visit: Visit) -> None:
        """Messages of Google and Confluent that stand for one value are looked at as that value."""
        name = message.DESCRIPTOR.full_name
        if name in LEAVES:
            new_value = visit(field._replace(kind=LEAVES[name]), message)
            if new_value is not message:
                message.CopyFrom(expressions.protobuf_leaf(new_value, field.native))
        elif name in WRAPPERS:
            inside = message.DESCRIPTOR.fields_by_name["value"]
            new_value = visit(field._replace(kind=_proto_kind(inside), native=inside), message.value)
            if new_value is not message.value:
                message.value = new_value
        elif name == ANY:
            self._walk_any(field, message, visit)
        else:
            visit(
                field._replace(kind="RECORD" if message.DESCRIPTOR.file.name not in OPAQUE else "MESSAGE"),
                message,
            )
            if message.DESCRIPTOR.file.name not in OPAQUE:
                self._walk(message, visit)

    def _walk_any(self, field: Field, packed: Any, visit: Visit) -> None:
        """Raises BadExpression for a message that the schema does not know: nobody can tell what is in it."""
        from google.protobuf import message_factory

        try:
            message_type = packed.DESCRIPTOR.file.pool.FindMessageTypeByName(packed.TypeName())
        except KeyError:
            raise expressions.BadExpression(
                f"{field.full_name} holds a {packed.TypeName() or 'message without a type'}, which the schema does not "
                "know, and rules for fields cannot look into"
            ) from None
        inner = message_factory.GetMessageClass(message_type)()
        packed.Unpack(inner)
        visit(field._replace(kind="RECORD"), inner)
        self._walk_message(field._replace(tags=frozenset()), inner, visit)
        packed.Pack(inner, packed.type_url.rpartition("/")[0] or "type.googleapis.com")


PROTO_KINDS: Final = {
    **dict.fromkeys((3, 4, 6, 16, 18), "LONG"),
    **dict.fromkeys((5, 13, 7, 15, 17), "INT"),
    1: "DOUBLE",
    2: "FLOAT",
    8: "BOOLEAN",
    9: "STRING",
    12: "BYTES",
    14: "ENUM",
}
"""By descriptor.proto's numbers for the types of fields."""
LEAVES: Final = {"google.protobuf.Timestamp": "LONG", "confluent.type.Decimal": "BYTES"}
"""Messages that CEL knows as one value."""
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
ANY: Final = "google.protobuf.Any"
OPAQUE: Final = frozenset(
    {f"google/protobuf/{name}.proto" for name in ("struct", "duration", "field_mask", "empty", "timestamp")}
    | {"confluent/type/variant.proto"}
)
"""Files whose messages are not looked into."""


def _proto_kind(descriptor: Any) -> str:
    return PROTO_KINDS.get(descriptor.type, "RECORD")
