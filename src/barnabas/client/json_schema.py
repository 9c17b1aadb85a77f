"""Whether a JSON value suits a JSON Schema. Needs jsonschema-rs, of the extra `services`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any


class BadSchema(ValueError):
    """A text that is no JSON Schema, or refers to what is not there."""


class Unsuited(ValueError):
    """A value that its schema does not allow; the message says where and why."""


class JsonSchema:
    """A schema that values are checked by. tree: the schema itself, from its text.

    dependencies: names and texts of the schemas that it refers to. Raises BadSchema, and ImportError without jsonschema-rs.
    """

    def __init__(self, text: str, dependencies: Iterable[tuple[str, str]] = ()) -> None:
        import jsonschema_rs

        self._invalid, self._unresolved = jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError
        self._parts: dict[int, Callable[[Any], bool]] = {}
        try:
            self.tree: Any = json.loads(text)
            self.documents = {name: json.loads(other) for name, other in dependencies}
            self._registry = jsonschema_rs.Registry(list(self.documents.items()))
            self._validator = self._of(self.tree)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise BadSchema(str(error)) from error

    def _of(self, tree: Any) -> Any:
        import jsonschema_rs

        # Regular expressions in linear time: no value can make one take for ever.
        options = jsonschema_rs.RegexOptions()
        return jsonschema_rs.validator_for(tree, registry=self._registry, pattern_options=options)

    def allows(self, part: Any, value: Any) -> bool:
        """Whether a value suits a part of the schema; a part that cannot be looked at alone suits everything."""
        if not isinstance(part, dict):
            return part is not False
        found = self._parts.get(id(part))
        if found is None:
            kept = {
                name: self.tree[name] for name in ("$schema", "$defs", "definitions") if name in self.tree
            }
            try:
                found = self._of({**kept, **part}).is_valid
            except (self._invalid, self._unresolved, ValueError):
                found = _anything
            self._parts[id(part)] = found  # `tree` keeps the part, and so its id
        return bool(found(value))

    def check(self, value: Any) -> None:
        """Raises Unsuited."""
        try:
            self._validator.validate(value)
        except self._invalid as error:
            place = "/".join(str(part) for part in error.instance_path)
            raise Unsuited(f"/{place}: {error.message[:200]}") from None
        except ValueError as error:
            raise Unsuited(str(error)[:200]) from None


def _anything(_value: Any) -> bool:
    return True
