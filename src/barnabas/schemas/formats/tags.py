"""Adds and removes tags on parts of a schema (`confluent:tags`). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.json_text import BadJson, parse_json
from barnabas.schemas.model import JSON

TAGS: Final = "confluent:tags"


def change_tags(kind: str, text: str, changes: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """The text of a valid schema with its tags changed. changes: the rows that add tags, and those that remove some.

    An entity is named by its path: `namespace.Record.field`. Raises InvalidSchema for a path that names none.
    """
    try:
        tree = parse_json(text)
    except BadJson as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None
    entities = dict(_json_entities(tree, "object") if kind == JSON else _avro_entities(tree, "", ""))
    for rows, adding in zip(changes, (True, False), strict=True):
        for row in rows:
            path = row["schemaEntity"]["entityPath"]
            if path not in entities:
                known = ", ".join(list(entities)[:20]) or "none"
                raise InvalidSchema(f"no part of the schema is named {path!r}; its parts: {known}")
            _change(entities[path], row["tags"], adding=adding)
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def _change(entity: dict[str, Any], tags: list[str], *, adding: bool) -> None:
    tags_left = [tag for tag in entity.get(TAGS) or () if adding or tag not in tags]
    if adding:
        tags_left += [tag for tag in tags if tag not in tags_left]
    if tags_left:
        entity[TAGS] = tags_left
    else:
        entity.pop(TAGS, None)


def _avro_entities(node: Any, namespace: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, list):
        for branch in node:
            yield from _avro_entities(branch, namespace, path)
    elif isinstance(node, dict):
        kind = node.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            name = node["name"]
            namespace = name.rpartition(".")[0] or node.get("namespace", namespace)
            full = name if "." in name or not namespace else f"{namespace}.{name}"
            yield full, node
            for field in node.get("fields", ()):
                yield f"{full}.{field['name']}", field
                yield from _avro_entities(field["type"], namespace, full)
        for part in ("items", "values", "type"):
            if isinstance(node.get(part), (dict, list)):
                yield from _avro_entities(node[part], namespace, path)


def _json_entities(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(node, dict):
        return
    yield path, node
    properties = node.get("properties")
    if isinstance(properties, Mapping):
        for name, child in properties.items():
            yield from _json_entities(child, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        yield from _json_entities(node.get(part), f"{path}.{part}")
