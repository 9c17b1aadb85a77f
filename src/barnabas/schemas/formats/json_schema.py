"""JSON Schemas: parsed with their references, printed without spaces. Drafts 4 to 2020-12. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.avro import sort_names
from barnabas.schemas.formats.base import Dependency, TooDeep
from barnabas.schemas.json_text import BadJson, parse_json
from barnabas.schemas.json_validators import check_draft
from barnabas.schemas.model import JSON

Schema = Any
"""An object or a boolean, as JSON."""

ROOT: Final = ""


class JsonSchema:
    """A parsed schema. documents: the schemas that it refers to, by their names in `references`."""

    language: Final = JSON

    def __init__(self, tree: Schema, documents: dict[str, Schema]) -> None:
        self.tree = tree
        self.resolver = Resolver(tree, documents)
        self.canonical = _dump(tree)

    def normalized(self) -> str:
        """The text with the names in each object sorted."""
        return _dump(sort_names(self.tree))

    def field_names(self) -> list[str]:
        """The names of the properties of an object."""
        properties = self.tree.get("properties") if isinstance(self.tree, dict) else None
        return list(properties) if isinstance(properties, dict) else []

    def formatted(self, style: str) -> str:
        """The text in a format: empty or `default`, the stored form. Raises InvalidSchema for any other."""
        if style in ("", "default"):
            return self.canonical
        raise InvalidSchema(f"format {style!r} is unknown: JSON Schema has no formats")


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read_json_schema(text: str, dependencies: Sequence[Dependency] = (), *, new: bool = True) -> JsonSchema:
    """Parse a schema. new: also check that every `$ref` can be resolved, and that the schema is valid in its draft.

    Raises InvalidSchema, which names the place.
    """
    documents = {d.name: _parse(d.text, f"reference {d.name}: ") for d in dependencies}
    tree = _parse(text, "")
    try:
        json_schema = JsonSchema(tree, documents)
        if new:
            _check_meta(tree)
            for path, reference, base in references_in(tree):
                if json_schema.resolver.find(reference, base) is None:
                    raise InvalidSchema(
                        f"{path}: $ref {reference!r} cannot be resolved; define it, or add the subject that defines it "
                        "to `references`"
                    )
    except RecursionError:
        raise TooDeep from None
    return json_schema


def _parse(text: str, where: str) -> Schema:
    try:
        tree = parse_json(text)
    except BadJson as error:
        raise InvalidSchema(f"{where}the schema is not JSON: {error}") from None
    if not isinstance(tree, (dict, bool)):
        raise InvalidSchema(f"{where}a JSON Schema must be an object, true or false")
    return tree


def _check_meta(tree: Schema) -> None:
    import jsonschema_rs

    if isinstance(tree, dict) and "$schema" not in tree:
        tree = {"$schema": DEFAULT_DRAFT, **tree}
    try:
        check_draft(tree)
    except jsonschema_rs.ValidationError as error:
        path = "/".join(str(part) for part in error.instance_path)
        raise InvalidSchema(f"#/{path}: {error.message[:300]}") from None
    except (jsonschema_rs.ReferencingError, ValueError):
        return  # $schema is not a known draft, so its rules are unknown


DEFAULT_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
"""The draft that is assumed for a schema without `$schema`, as in Confluent's registry."""
DATA_KEYWORDS: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data: a `$ref` in them is not a reference."""


def references_in(tree: Schema) -> Iterator[tuple[str, str, str]]:
    """(path, reference, base URI) of each `$ref` in a schema."""
    pending: list[tuple[Any, str, str, bool]] = [(tree, "#", ROOT, True)]
    while pending:
        node, path, base, is_schema = pending.pop()
        if isinstance(node, list):
            pending += [(child, f"{path}/{index}", base, True) for index, child in enumerate(node)]
        if not isinstance(node, dict):
            continue
        if is_schema:
            base = _base_of(node, base)
            reference = node.get("$ref")
            if isinstance(reference, str):
                yield path, reference, base
        for name, child in node.items():
            if is_schema and name in DATA_KEYWORDS:
                continue
            named = is_schema and name in NAMED_SCHEMAS
            pending.append((child, f"{path}/{name}", base, not named))


NAMED_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "definitions", "$defs", "dependentSchemas"}
)
"""Keywords whose values contain schemas by names that users chose."""


def _base_of(node: dict[str, Any], base: str) -> str:
    own = node.get("$id") or node.get("id")
    return urljoin(base, own) if isinstance(own, str) and not own.startswith("#") else base


class Resolver:
    """Finds the schema that a `$ref` refers to, by a place in a document, an `$id`, an anchor or a document's name."""

    def __init__(self, tree: Schema, documents: dict[str, Schema]) -> None:
        self._documents = {**documents, ROOT: tree}
        self._anchors: dict[str, Schema] = {}
        self._bases: dict[int, str] = {}
        for name, document in self._documents.items():
            self._index(document, name)

    def _index(self, document: Schema, name: str) -> None:
        pending: list[tuple[Any, str]] = [(document, name)]
        while pending:
            node, base = pending.pop()
            if isinstance(node, dict):
                own = _base_of(node, base)
                if own != base:
                    self._anchors.setdefault(own.rstrip("#"), node)
                    base = own
                self._bases[id(node)] = base
                for keyword in ("$anchor", "$id", "id"):
                    anchor = node.get(keyword)
                    if isinstance(anchor, str) and (keyword == "$anchor" or anchor.startswith("#")):
                        self._anchors.setdefault(f"{base}#{anchor.lstrip('#')}", node)
                pending += [(child, base) for child in node.values()]
            elif isinstance(node, list):
                pending += [(child, base) for child in node]

    def base(self, node: Schema) -> str:
        """The URI against which the references in a node are resolved."""
        return self._bases.get(id(node), ROOT)

    def find(self, reference: str, base: str) -> Schema | None:
        """The schema that a reference refers to; None if there is none."""
        whole = reference if reference in self._documents else urljoin(base, reference)
        if whole in self._anchors:
            return self._anchors[whole]
        address, fragment = urldefrag(whole)
        fragment = unquote(fragment)
        document = self._documents.get(address, self._anchors.get(address))
        if document is None:
            # A name in `references` is not relative to the base URI of the node.
            plain, fragment = urldefrag(reference)
            document = self._documents.get(plain)
        if document is None or not fragment:
            return document
        if not fragment.startswith("/"):
            return self._anchors.get(f"{address}#{fragment}")
        return _pointed(document, fragment)


def _pointed(document: Any, pointer: str) -> Any:
    node = document
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdigit() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node if isinstance(node, (dict, bool)) else None
