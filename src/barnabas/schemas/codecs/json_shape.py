"""What data contracts have to know of JSON Schema: the fields of a value, their kinds and tags. Pure.

All parts of a schema that a value is looked at by count together: what a reference leads to and what stands beside it,
the parts of allOf, those of oneOf and anyOf that the value is one of, `then` or `else`. A tag in any of them is one of the
value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from barnabas.schemas import expressions
from barnabas.schemas.codecs import TAGS, tags_at
from barnabas.schemas.codecs.json_references import NotFound, References
from barnabas.schemas.codecs.rules import Field, Visit

KINDS: Final = {
    "string": "STRING",
    "integer": "INT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "object": "RECORD",
    "array": "ARRAY",
    "null": "NULL",
}
UNSEEN: Final = (
    "not",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "extends",
    "disallow",
)
"""Keywords with schemas that are not followed: a tag in one of them refuses the value."""
DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")

Node = Mapping[str, Any]


class JsonShape:
    """tree: the schema. documents: what it refers to, by name. fits: whether a value suits a part of it.

    matches: whether a regular expression is found in a name."""

    def __init__(
        self,
        tree: Any,
        documents: Mapping[str, Any],
        fits: Callable[[Any, Any], bool],
        matches: Callable[[str, str], bool],
    ) -> None:
        self._tree, self._references = tree, References(tree, documents)
        self._fits, self._matches = fits, matches
        self._tagged: dict[int, bool] = {}

    def argument(self, value: Any, field: Field | None = None) -> Any:
        """See rules.Shape."""
        return expressions.argument(value)

    def result(self, value: Any, like: Any) -> Any:
        """See rules.Shape."""
        return value

    def walk(self, value: Any, visit: Visit) -> Any:
        """See rules.Shape. Fields are named by their paths from `$` on, those in arrays as the array."""
        whole = Field("$", "", "", frozenset(), value, declared=False)
        return self._walked([self._tree], value, visit, whole, "$")

    def _walked(self, schemas: Sequence[Any], value: Any, visit: Visit, field: Field, path: str) -> Any:
        """schemas: those by which the value is looked at, all of them."""
        if value is None:
            return value
        nodes: dict[int, Node] = {}
        for schema in schemas:
            self._collect(schema, value, nodes)
        tags = frozenset(tag for node in nodes.values() for tag in tags_at(node))
        if tags:
            field = field._replace(tags=field.tags | tags, declared=True)
        if isinstance(value, list):
            return [
                self._walked(self._of_item(nodes, index), inner, visit, field, path)
                for index, inner in enumerate(value)
            ]
        if isinstance(value, dict):
            return self._walked_object(nodes, value, visit, field, path)
        kind = next((kind for node in nodes.values() if (kind := _kind(node, value))), "")
        if kind in ("", "RECORD", "ARRAY"):  # the schema names none, or the value is not of it
            field, kind = field._replace(declared=field.declared and bool(kind)), _kind_of(value)
        return visit(field._replace(kind=kind), value)

    def _walked_object(
        self, nodes: Mapping[int, Node], value: dict[str, Any], visit: Visit, field: Field, path: str
    ) -> Any:
        """A value for which the schema names no property has the tags of the object that contains it. An object with
        properties of its own is passed to `visit` as a record, which is refused if it has tags; any other object is a map,
        and its tags are those of its values."""
        named = {name for node in nodes.values() for name in node.get("properties") or ()}
        if named:
            visit(field._replace(kind="RECORD"), value)
        maps = (*field.maps, field.full_name)
        members = dict(value)
        for name, inner in value.items():
            if inner is None:
                continue
            place, schemas = f"{path}.{name}", self._of_property(nodes, name)
            inside = Field(place, name, "", frozenset(), members, declared=bool(schemas))
            if name not in named:
                inside = inside._replace(tags=field.tags, maps=maps)
            members[name] = self._walked(schemas, inner, visit, inside, place)
        return members

    def _of_item(self, nodes: Mapping[int, Node], index: int) -> list[Any]:
        schemas = []
        for node in nodes.values():
            items, first = node.get("items"), node.get("prefixItems")
            rest = items
            if isinstance(items, list):
                first, rest = items, node.get("additionalItems")
            if isinstance(first, list) and index < len(first):
                schemas.append(first[index])
            elif isinstance(rest, dict):
                schemas.append(rest)
        return schemas

    def _of_property(self, nodes: Mapping[int, Node], name: str) -> list[Any]:
        schemas = []
        for node in nodes.values():
            properties, patterns = node.get("properties"), node.get("patternProperties")
            own = []
            if isinstance(properties, dict) and name in properties:
                own.append(properties[name])
            if isinstance(patterns, dict):
                own += [inner for pattern, inner in patterns.items() if self._matches(pattern, name)]
            if not own and isinstance(node.get("additionalProperties"), dict):
                own.append(node["additionalProperties"])
            schemas += own
        return schemas

    def _collect(self, node: Any, value: Any, nodes: dict[int, Node]) -> None:
        """Adds the parts of the schema that this very value is looked at by; a schema may lead in a circle.

        Raises BadExpression for what cannot be followed."""
        if not isinstance(node, dict) or id(node) in nodes:
            return
        nodes[id(node)] = node
        for name in DYNAMIC:
            if name in node:
                raise expressions.BadExpression(f"rules for fields cannot follow {name} in the schema")
        for name in UNSEEN:
            if self._has_tags(node.get(name)):
                raise expressions.BadExpression(f"rules for fields cannot follow the tags in {name}")
        if "$ref" in node:
            self._collect(self._resolved(node), value, nodes)
        for part in self._parts(node, value):
            self._collect(part, value, nodes)

    def _resolved(self, node: dict[str, Any]) -> Any:
        try:
            return self._references.resolved(node["$ref"], node)
        except NotFound as error:
            raise expressions.BadExpression(f"rules for fields: {error}") from error

    def _parts(self, node: Node, value: Any) -> Iterator[Any]:
        """Of the parts for the same value, those that count for it."""
        yield from node.get("allOf") or ()
        for name in ("oneOf", "anyOf"):
            parts = node.get(name)
            if not isinstance(parts, list):
                continue
            fitting = [part for part in parts if self._fits(part, value)]
            if not fitting and any(map(self._has_tags, parts)):
                raise expressions.BadExpression(
                    f"the value is none of its {name}, so which tags it has is not known"
                )
            yield from fitting
        if "if" in node:
            holds = self._fits(node["if"], value)
            yield from (node["if"], node.get("then")) if holds else (node.get("else"),)
        if isinstance(value, dict):
            for name in ("dependentSchemas", "dependencies"):
                parts = node.get(name)
                if isinstance(parts, dict):
                    yield from (part for key, part in parts.items() if key in value)

    def _has_tags(self, part: Any) -> bool:
        """Whether tags stand anywhere in a part of the schema, or where it leads."""
        if not isinstance(part, (dict, list)):
            return False
        known = self._tagged.get(id(part))
        if known is None:
            known = self._tagged[id(part)] = self._finds_tags(part)
        return known

    def _finds_tags(self, part: Any) -> bool:
        waiting, seen = [part], set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, list):
                waiting += node
            elif isinstance(node, dict):
                if TAGS in node or any(name in node for name in DYNAMIC):
                    return True
                if isinstance(node.get("$ref"), str):
                    waiting.append(self._resolved(node))
                waiting += node.values()
        return False


def _kind(node: Node, value: Any) -> str:
    """The kind of a value that is neither object nor array; empty where the schema names none."""
    if node.get("enum") is not None or node.get("const") is not None:
        return "ENUM"
    kinds = node.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if _is_of(kind, value)), None)
    return KINDS.get(str(kinds), "")


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    return "INT" if isinstance(value, int) else "DOUBLE" if isinstance(value, float) else "STRING"


def _is_of(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in ("integer", "number")
    return kind == ("number" if isinstance(value, float) else "string")
