"""What data contracts have to know of Avro, JSON Schema and Protobuf: the fields of a value, their kinds and tags. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from barnabas.codecs import Mismatch, expressions
from barnabas.codecs.json_references import NotFound, References
from barnabas.codecs.rules import Field, Visit

TAGS: Final = "confluent:tags"
AVRO_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
JSON_KINDS: Final = {
    "string": "STRING",
    "integer": "INT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "object": "RECORD",
    "array": "ARRAY",
    "null": "NULL",
}


def bare(value: Any) -> Any:
    """An Avro value without the names of union branches, which stand as (name, value)."""
    if isinstance(value, tuple):
        return bare(value[1])
    if isinstance(value, dict):
        return {name: bare(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [bare(inner) for inner in value]
    return value


class AvroShape:
    """schema: as fastavro parses it. named: its named types."""

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._schema, self._named = schema, named

    def argument(self, value: Any, field: Field | None = None) -> Any:
        """See rules.Shape."""
        return expressions.argument(bare(value))

    def result(self, value: Any, like: Any) -> Any:
        """See rules.Shape. Expressions do not see which branch of a union a value is of: it is that of the value before
        where that is the same, and else the only one that fits. Raises BadExpression where several do."""
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
        if kind in ("record", "error") and isinstance(value, dict):
            made = dict(value)
            for row in schema["fields"]:
                name = row["name"]
                if name in made:
                    made[name] = self._named_again(row["type"], made[name], olds.get(name))
            return made
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
            return value  # refused where it is written, or as well known without its name
        if len(fitting) > 1:
            names = ", ".join(map(_label, fitting))
            raise expressions.BadExpression(
                f"its result may be any of {names}, which an expression cannot tell"
            )
        name = _label(fitting[0])
        old = like[1] if label == name else None if label else like
        return name, self._named_again(fitting[0], value, old)

    def _fitting(self, schema: Sequence[Any], value: Any) -> list[Any]:
        """The branches that a value without its branch's name may be of: of those without names the closest."""
        from barnabas.codecs.avro import holds

        fitting = [branch for branch in schema if branch != "null" and self._validates(value, branch)]
        unnamed = [branch for branch in fitting if self._is_unnamed(branch)]
        closest = [b for b in unnamed if holds(str(b["type"] if isinstance(b, dict) else b), value)]
        named = [b for b in fitting if not self._is_unnamed(b) and self._has_fields(b, value)]
        return (closest or unnamed)[:1] + named

    def _is_unnamed(self, branch: Any) -> bool:
        return branch in AVRO_PRIMITIVE if isinstance(branch, str) else "name" not in branch

    def _has_fields(self, branch: Any, value: Any) -> bool:
        """Whether a record has fields for all that is in a value."""
        whole = self._named.get(branch, branch) if isinstance(branch, str) else branch
        names = {row["name"] for row in whole.get("fields", ())} if isinstance(whole, dict) else set()
        return not isinstance(value, dict) or value.keys() <= names

    def walk(self, value: Any, visit: Visit) -> Any:
        """See rules.Shape. The name of a union's branch is kept where the new value is still of that type."""
        return self._walked(self._schema, value, visit, None)

    def _walked(self, schema: Any, value: Any, visit: Visit, field: Field | None) -> Any:
        if isinstance(schema, str) and schema not in AVRO_PRIMITIVE:
            schema = self._named[schema]
        if isinstance(schema, list):
            branch = self._branch(schema, value)
            if not isinstance(value, tuple):
                return self._walked(branch, value, visit, field)
            made = self._walked(branch, value[1], visit, field)
            return (value[0], made) if self._validates(made, branch) else made
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self._walked(kind, value, visit, field)
        if kind == "array":
            return [self._walked(schema["items"], inner, visit, field) for inner in value]
        if kind == "map":
            return {
                name: self._walked(schema["values"], inner, visit, field) for name, inner in value.items()
            }
        if kind in ("record", "error"):
            made = dict(value)
            for row in schema["fields"]:
                name = row["name"]
                if name in made:
                    tags = frozenset(row.get(TAGS) or ())
                    inside = Field(f"{schema['name']}.{name}", name, "", tags, made)
                    made[name] = self._walked(row["type"], made[name], visit, inside)
            return made
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
        except Exception:  # types that are named elsewhere
            return True


def _label(schema: Any) -> str:
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)


class JsonShape:
    """tree: the schema. documents: what it refers to, by name. fits: whether a value suits a part of it."""

    def __init__(
        self,
        tree: Any,
        documents: Mapping[str, Any],
        fits: Callable[[Any, Any], bool],
    ) -> None:
        self._tree, self._references, self._fits = tree, References(tree, documents), fits

    def argument(self, value: Any, field: Field | None = None) -> Any:
        """See rules.Shape."""
        return expressions.argument(value)

    def result(self, value: Any, like: Any) -> Any:
        """See rules.Shape."""
        return value

    def walk(self, value: Any, visit: Visit) -> Any:
        """See rules.Shape. Fields are named by their paths from `$` on, those in arrays as the array."""
        return self._walked(self._tree, value, visit, None, "$", ())

    def _walked(
        self,
        node: Any,
        value: Any,
        visit: Visit,
        field: Field | None,
        path: str,
        above: tuple[int, ...],
    ) -> Any:
        """above: the parts of the schema that this very value was looked at by; a schema may lead in a circle."""
        if value is None or not isinstance(node, dict) or id(node) in above:
            return value
        above = (*above, id(node))
        for name in ("$dynamicRef", "$recursiveRef"):
            if name in node:
                raise expressions.BadExpression(f"rules for fields cannot follow {name} in the schema")
        if "$ref" in node:
            try:
                node = self._references.resolved(node["$ref"], node)
            except NotFound as error:
                raise expressions.BadExpression(f"rules for fields: {error}") from error
            return self._walked(node, value, visit, field, path, above)
        for part in self._parts(node, value):
            value = self._walked(part, value, visit, field, path, above)
        if isinstance(value, list) and isinstance(node.get("items"), dict):
            return [self._walked(node["items"], inner, visit, field, path, ()) for inner in value]
        if isinstance(value, dict):
            properties = node.get("properties")
            if not isinstance(properties, dict):
                return value
            made = dict(value)
            for name, inner in properties.items():
                if made.get(name) is not None:
                    tags = inner.get(TAGS) if isinstance(inner, dict) else None
                    inside = Field(f"{path}.{name}", name, "", frozenset(tags or ()), made)
                    made[name] = self._walked(inner, made[name], visit, inside, f"{path}.{name}", ())
            return made
        if any(name in node for name in ("allOf", "oneOf", "anyOf")):
            return value
        kind = _json_kind(node, value)
        return visit(field._replace(kind=kind), value) if field is not None and kind else value

    def _parts(self, node: dict[str, Any], value: Any) -> Iterator[Any]:
        """Of allOf, oneOf and anyOf, those that the value is one of."""
        yield from node.get("allOf") or ()
        for part in node.get("oneOf") or ():
            if self._fits(part, value):
                yield part
                break
        yield from (part for part in node.get("anyOf") or () if self._fits(part, value))


def _json_kind(node: Mapping[str, Any], value: Any) -> str:
    """The kind of a value that is neither object nor array; empty where the schema names none."""
    if node.get("enum") is not None or node.get("const") is not None:
        return "ENUM"
    kinds = node.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if _is_of(kind, value)), None)
    return JSON_KINDS.get(str(kinds), "")


def _is_of(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in ("integer", "number")
    return kind == ("number" if isinstance(value, float) else "string")


class ProtobufShape:
    """files: descriptors of the schema's file and of those it imports, with options uninterpreted, as they were written."""

    def __init__(self, *files: Any) -> None:
        self._tags: dict[str, frozenset[str]] = {}
        for held in files:
            prefix = f"{held.package}." if held.package else ""
            for message in held.message_type:
                self._collect(message, prefix)

    def _collect(self, message: Any, prefix: str) -> None:
        name = f"{prefix}{message.name}"
        for field in message.field:
            tags = _proto_tags(field.options)
            if tags:
                self._tags[f"{name}.{field.name}"] = tags
        for inner in message.nested_type:
            self._collect(inner, f"{name}.")

    def argument(self, value: Any, field: Field | None = None) -> Any:
        """See rules.Shape."""
        if field is not None:
            return expressions.field_argument(value, field.native)
        return expressions.argument(value)

    def result(self, value: Any, like: Any) -> Any:
        """See rules.Shape."""
        return expressions.protobuf_result(value, like)

    def walk(self, value: Any, visit: Visit) -> Any:
        """See rules.Shape. Changes the message. A field that is not set is left out. Raises BadExpression."""
        try:
            self._walk(value, visit)
        except (TypeError, ValueError) as error:
            if isinstance(error, (Mismatch, expressions.BadExpression)):
                raise
            raise expressions.BadExpression(f"its result is no value of the field: {error}") from error
        return value

    def _walk(self, value: Any, visit: Visit) -> None:
        for descriptor in value.DESCRIPTOR.fields:
            if descriptor.has_presence and not value.HasField(descriptor.name):
                continue
            held = getattr(value, descriptor.name)
            if descriptor.message_type is not None:
                self._walk_messages(descriptor, held, visit)
                continue
            tags = self._tags.get(descriptor.full_name, frozenset())
            field = Field(
                descriptor.full_name, descriptor.name, _proto_kind(descriptor), tags, value, descriptor
            )
            if descriptor.is_repeated:
                held[:] = [visit(field, inner) for inner in held]
            else:
                made = visit(field, held)
                if made is not held:
                    setattr(value, descriptor.name, made)

    def _walk_messages(self, descriptor: Any, held: Any, visit: Visit) -> None:
        if descriptor.message_type.full_name.startswith(("google.protobuf.", "confluent.type.")):
            return  # one value to whoever reads it, not a message with fields
        if descriptor.message_type.GetOptions().map_entry:
            if descriptor.message_type.fields_by_name["value"].message_type is not None:
                for key in list(held):
                    self._walk(held[key], visit)
        elif descriptor.is_repeated:
            for inner in held:
                self._walk(inner, visit)
        else:
            self._walk(held, visit)


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
"""By the numbers that descriptor.proto gives the types of fields."""
TAG_LIST: Final = re.compile(r"\btags\s*:\s*(\[[^\]]*\]|\"[^\"]*\"|'[^']*')")
QUOTED: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'")


def _proto_kind(descriptor: Any) -> str:
    return PROTO_KINDS.get(descriptor.type, "RECORD")


def _proto_tags(options: Any) -> frozenset[str]:
    """Of `(confluent.field_meta) = {tags: [...]}` or `(confluent.field_meta).tags = "..."`."""
    found: set[str] = set()
    for option in options.uninterpreted_option:
        names = [part.name_part.lstrip(".") for part in option.name]
        if names == ["confluent.field_meta"]:
            for listed in TAG_LIST.findall(option.aggregate_value):
                found.update(first or second for first, second in QUOTED.findall(listed))
        elif names == ["confluent.field_meta", "tags"]:
            found.add(option.string_value.decode())
    return frozenset(found)
