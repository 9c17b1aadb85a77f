"""Validates JSON values by a JSON Schema. Needs jsonschema-rs, of the extra `services`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote

from barnabas.schemas.json_validators import documents_of, validator_of

ROOT: Final = "json-schema:///-"
"""The name of the schema itself; other names are relative to it."""


class BadSchema(ValueError):
    """A text is not a JSON Schema, or refers to something that does not exist."""


class Unsuited(ValueError):
    """A value is not allowed by its schema; the message says where and why."""


class JsonSchema:
    """A schema for validating values. tree: the parsed schema.

    dependencies: names and texts of the schemas that it refers to. Raises BadSchema, and ImportError without jsonschema-rs.
    """

    def __init__(self, text: str, dependencies: Iterable[tuple[str, str]] = ()) -> None:
        import jsonschema_rs

        self._invalid, self._unresolved = jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError
        self._parts: dict[int, Callable[[Any], bool]] = {}
        self._patterns: dict[str, Callable[[Any], bool]] = {}
        self._places: dict[int, str] = {}
        self._whole: Any = None
        try:
            self.tree: Any = json.loads(text)
            self.documents = {name: json.loads(other) for name, other in dependencies}
            self._registry = documents_of(self.documents.items())
            self._validator = validator_of(self.tree, self._registry)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise BadSchema(str(error)) from error

    def allows(self, part: Any, value: Any) -> bool:
        """Whether a part of the schema, or of a document that it refers to, allows a value. Raises BadSchema."""
        if not isinstance(part, dict):
            return part is not False
        is_valid = self._parts.get(id(part))
        if is_valid is None:
            if not self._places:
                self._places = _places(((ROOT, self.tree), *self.documents.items()))
            # Validated in its own place, so that its references can be resolved.
            looked_at = {"$ref": self._places[id(part)]}
            if isinstance(self.tree, dict) and "$schema" in self.tree:
                looked_at["$schema"] = self.tree["$schema"]
            try:
                is_valid = validator_of(looked_at, self._with_itself()).is_valid
            except (self._invalid, self._unresolved, ValueError) as error:
                raise BadSchema(f"a part of the schema cannot be looked at alone: {error}") from error
            self._parts[id(part)] = is_valid  # `tree` keeps the part alive, and so its id unique
        return bool(is_valid(value))

    def matches(self, pattern: str, name: str) -> bool:
        """Whether a regular expression of `patternProperties` is found in a name."""
        is_match = self._patterns.get(pattern)
        if is_match is None:
            is_match = self._patterns[pattern] = validator_of({"pattern": pattern}, self._registry).is_valid
        return bool(is_match(name))

    def _with_itself(self) -> Any:
        """The registry of schemas that may be referred to, including this one."""
        if self._whole is None:
            own = (_uri(ROOT, self.tree), self.tree)
            self._whole = documents_of([*self.documents.items(), own])
        return self._whole

    def check(self, value: Any) -> None:
        """Raises Unsuited if the schema does not allow the value."""
        try:
            self._validator.validate(value)
        except self._invalid as error:
            place = "/".join(str(part) for part in error.instance_path)
            raise Unsuited(f"/{place}: {error.message[:200]}") from None
        except ValueError as error:
            raise Unsuited(str(error)[:200]) from None


def _uri(name: str, document: Any) -> str:
    """The URI of a document, which its references are relative to: its id, if it has one."""
    root = document if isinstance(document, dict) else {}
    key = "id" if "draft-04" in str(root.get("$schema")) else "$id"
    identifier = root[key].partition("#")[0] if isinstance(root.get(key), str) else ""
    return identifier or name.partition("#")[0]


def _places(documents: Iterable[tuple[str, Any]]) -> dict[int, str]:
    """The reference to each object in the documents, by the object's identity."""
    places: dict[int, str] = {}
    waiting = [(f"{_uri(name, document)}#", document) for name, document in documents]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, dict):
            places[id(node)] = place
            for key, inner in node.items():
                waiting.append(
                    (f"{place}/{quote(key.replace('~', '~0').replace('/', '~1'), safe='')}", inner)
                )
        elif isinstance(node, list):
            waiting.extend((f"{place}/{index}", inner) for index, inner in enumerate(node))
    return places
