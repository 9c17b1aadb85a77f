"""JSON Schemas: read with their references, written compactly. Drafts 4 to 2020-12. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from barnabas.http.json_text import BadJson, parse_json
from barnabas.registry.errors import InvalidSchema
from barnabas.registry.formats.avro import sort_names
from barnabas.registry.formats.base import Dependency, Parsed, Problem

Schema = Any
"""An object or a boolean, as JSON."""

ROOT: Final = ""


class JsonSchema:
    """A schema that was read. documents: it and what it refers to, by the names in references."""

    def __init__(self, tree: Schema, documents: dict[str, Schema]) -> None:
        self.tree = tree
        self.resolver = Resolver(tree, documents)
        self.canonical = _dump(tree)

    def normalized(self) -> str:
        """The names of each object in order."""
        return _dump(sort_names(self.tree))

    def problems_reading(self, writer: Parsed) -> Sequence[Problem]:
        """Why this schema refuses what `writer` took."""
        from barnabas.registry.formats.json_compatibility import problems

        assert isinstance(writer, JsonSchema)
        return problems(self, writer)

    def formatted(self, style: str) -> str:
        """Empty is the stored form; JSON Schema has no other."""
        if style in ("", "default"):
            return self.canonical
        raise InvalidSchema(f"format {style!r} is not known to JSON Schema, which has none")


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read_json_schema(text: str, dependencies: Sequence[Dependency] = (), *, new: bool = True) -> JsonSchema:
    """new: every reference must lead somewhere, and the schema must suit its draft's own schema.

    Raises InvalidSchema that names the place.
    """
    documents = {d.name: _parse(d.text, f"reference {d.name}: ") for d in dependencies}
    tree = _parse(text, "")
    try:
        made = JsonSchema(tree, documents)
        if new:
            _check_meta(tree)
            for path, reference, base in references_in(tree):
                if made.resolver.find(reference, base) is None:
                    raise InvalidSchema(
                        f"{path}: $ref {reference!r} leads nowhere; define it, or name in `references` the subject that does"
                    )
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    return made


def _parse(text: str, where: str) -> Schema:
    try:
        tree = parse_json(text)
    except BadJson as error:
        raise InvalidSchema(f"{where}the schema is not JSON: {error}") from None
    if not isinstance(tree, (dict, bool)):
        raise InvalidSchema(f"{where}a JSON Schema is an object, true or false")
    return tree


def _check_meta(tree: Schema) -> None:
    import jsonschema_rs

    if isinstance(tree, dict) and "$schema" not in tree:
        tree = {"$schema": DEFAULT_DRAFT, **tree}
    try:
        jsonschema_rs.meta.validate(tree)
    except jsonschema_rs.ValidationError as error:
        path = "/".join(str(part) for part in error.instance_path)
        raise InvalidSchema(f"#/{path}: {error.message[:300]}") from None
    except (jsonschema_rs.ReferencingError, ValueError):
        return  # a $schema that is not one of the drafts: it is not known what it demands


DEFAULT_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
"""What a schema without `$schema` is taken for, as in Confluent's registry."""
DATA_KEYWORDS: Final = frozenset({"enum", "const", "default", "examples"})
"""Their values are data: a `$ref` in them is none."""


def references_in(tree: Schema) -> Iterator[tuple[str, str, str]]:
    """(path, reference, base URI) of each `$ref`."""
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
"""Their values are schemas by a name that the user chose."""


def _base_of(node: dict[str, Any], base: str) -> str:
    own = node.get("$id") or node.get("id")
    return urljoin(base, own) if isinstance(own, str) and not own.startswith("#") else base


class Resolver:
    """Finds what `$ref` names: a place in the same document, an `$id`, an anchor, another document."""

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
        """The URI against which the references in a node are read."""
        return self._bases.get(id(node), ROOT)

    def find(self, reference: str, base: str) -> Schema | None:
        """What a reference names; None when it leads nowhere."""
        whole = reference if reference in self._documents else urljoin(base, reference)
        if whole in self._anchors:
            return self._anchors[whole]
        address, fragment = urldefrag(whole)
        fragment = unquote(fragment)
        document = self._documents.get(address, self._anchors.get(address))
        if document is None:
            # Relative to a base of its own, a name of `references` is still meant as it stands.
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
