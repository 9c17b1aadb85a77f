"""Whether a JSON value suits a JSON Schema. Needs jsonschema-rs, of the extra `services`."""

from __future__ import annotations

import json
from collections.abc import Iterable
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

        self._invalid = jsonschema_rs.ValidationError
        try:
            self.tree: Any = json.loads(text)
            registry = jsonschema_rs.Registry([(name, json.loads(other)) for name, other in dependencies])
            # Regular expressions in linear time: no value can make one take for ever.
            options = jsonschema_rs.RegexOptions()
            self._validator = jsonschema_rs.validator_for(
                self.tree, registry=registry, pattern_options=options
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise BadSchema(str(error)) from error

    def check(self, value: Any) -> None:
        """Raises Unsuited."""
        try:
            self._validator.validate(value)
        except self._invalid as error:
            place = "/".join(str(part) for part in error.instance_path)
            raise Unsuited(f"/{place}: {error.message[:200]}") from None
        except ValueError as error:
            raise Unsuited(str(error)[:200]) from None
