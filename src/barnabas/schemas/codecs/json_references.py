"""Resolves the references in a JSON Schema: pointers, anchors and ids, in it and in the documents beside it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

BASE: Final = "http://schema.invalid/"
"""The base URI of a document without an id."""
NAMES: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependencies", "dependentSchemas"}
)
"""Keywords whose value maps names, not keywords, to schemas."""
VALUES: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose value is data."""
OLD_DRAFTS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")


class NotFound(ValueError):
    """A reference has no target, or cannot be followed."""


class References:
    """tree: the schema. documents: those that it refers to, by name. Both are kept: parts are identified by object id."""

    def __init__(self, tree: Any, documents: Mapping[str, Any]) -> None:
        self._kept = (tree, documents)
        self._resources: dict[str, Any] = {}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._bases: dict[int, str] = {}
        for name, document in (*documents.items(), ("", tree)):
            base = urljoin(BASE, name.partition("#")[0])
            self._resources[base] = document
            self._index(document, base)

    def resolved(self, reference: Any, node: Any) -> Any:
        """The schema that a reference in `node` refers to. Raises NotFound."""
        base = self._bases.get(id(node))
        if not isinstance(reference, str) or base is None:
            raise NotFound(f"the reference {str(reference)[:100]!r} cannot be followed")
        name, _, fragment = reference.partition("#")
        if name:
            base = urljoin(base, name)
            if base not in self._resources:
                base = urljoin(BASE, name)
        node_found = self._resources.get(base)
        fragment = unquote(fragment)
        if fragment.startswith("/"):
            node_found = _pointed(node_found, fragment)
        elif fragment:
            node_found = self._anchors.get((base, fragment))
        if not isinstance(node_found, bool) and id(node_found) not in self._bases:
            raise NotFound(f"the reference {reference[:100]!r} leads to no schema")
        return node_found

    def _index(self, document: Any, base: str) -> None:
        draft = str(document.get("$schema")) if isinstance(document, dict) else ""
        is_old = any(name in draft for name in OLD_DRAFTS)
        key_of_id = "id" if "draft-03" in draft or "draft-04" in draft else "$id"
        waiting: list[tuple[Any, str, bool]] = [(document, base, False)]
        while waiting:
            node, base, is_names = waiting.pop()
            if isinstance(node, list):
                waiting.extend((inner, base, False) for inner in node)
            if not isinstance(node, dict):
                continue
            if not is_names and not (is_old and "$ref" in node):
                base = self._identified(node, node.get(key_of_id), base)
            self._bases[id(node)] = base
            for key, inner in node.items():
                if is_names or key not in VALUES:
                    waiting.append((inner, base, not is_names and key in NAMES))

    def _identified(self, node: dict[str, Any], identifier: Any, base: str) -> str:
        """The base URI for references in a schema."""
        if isinstance(identifier, str):
            name, _, anchor = identifier.partition("#")
            if name:
                base = urljoin(base, name)
                self._resources[base] = node
            if anchor:
                self._anchors[base, anchor] = node
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(key), str):
                self._anchors[base, node[key]] = node
        return base


def _pointed(node: Any, pointer: str) -> Any:
    """The part of `node` at a JSON pointer, or None."""
    for part in pointer[1:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(part)
        elif isinstance(node, list) and part.isdecimal() and part.isascii() and int(part) < len(node):
            node = node[int(part)]
        else:
            return None
    return node
