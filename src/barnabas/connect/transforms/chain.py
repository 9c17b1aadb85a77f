"""The transforms of a connector, in order, with their predicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.connect.errors import OptionError
from barnabas.connect.records import Record
from barnabas.connect.transforms.base import Predicate, Transform
from barnabas.connect.transforms.finding import make_predicate, make_transform


class Step:
    """One transform, and whether it applies."""

    def __init__(self, transform: Transform, predicate: Predicate | None, negate: bool) -> None:
        self.transform, self.predicate, self.negate = transform, predicate, negate

    def __call__(self, record: Record) -> Record | None:
        if self.predicate is not None and self.predicate.holds(record) == self.negate:
            return record
        return self.transform.apply(record)

    @property
    def class_name(self) -> str:
        """Of the transform, for the headers of dead letters."""
        return type(self.transform).__name__


def aliases(config: Mapping[str, Any], name: str) -> list[str]:
    """The names in a list like `transforms`."""
    text = config.get(name) or ""
    parts = text if isinstance(text, list) else str(text).split(",")
    return [part.strip() for part in parts if part.strip()]


def make_chain(config: Mapping[str, Any]) -> list[Step]:
    """The transforms of a connector's options. Raises OptionError."""
    predicates = {alias: make_predicate(config, alias) for alias in aliases(config, "predicates")}
    steps = []
    for alias in aliases(config, "transforms"):
        prefix = f"transforms.{alias}."
        named = str(config.get(f"{prefix}predicate") or "").strip()
        if named and named not in predicates:
            raise OptionError(
                f"{prefix}predicate is {named!r}, but predicates does not name it", f"{prefix}predicate"
            )
        negate = str(config.get(f"{prefix}negate", "false")).lower() == "true"
        steps.append(Step(make_transform(config, alias), predicates[named] if named else None, negate))
    return steps
