"""How a kind of step is defined: its entries in a pipeline file, their check before Spark starts, and its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.pipelines.entries.document import Item, entries
from barnabas.pipelines.entries.shapes import EntryShape, Hidden
from barnabas.pipelines.plan.errors import suggestion

if TYPE_CHECKING:
    from barnabas.pipelines.plan.operators import Operator
    from barnabas.pipelines.spark.frame import Frame


@dataclass(frozen=True, slots=True)
class StepRule:
    """One kind of step. shape: the entries that it accepts. check: makes an operator of the entry in the file (raises
    PipelineError). apply: compiles the operator."""

    name: str
    doc: str
    shape: EntryShape
    check: Callable[[Item], Operator]
    apply: Callable[[Frame, Any], Frame]


@dataclass(frozen=True, slots=True)
class StepList:
    """The shape of a list of steps: each is a mapping of one name to the step's options, or the name alone."""

    known: Mapping[str, StepRule]

    def check(self, item: Item) -> None:
        """See shapes.Shape."""
        for kind, options in entries(item):
            rule = self.known.get(kind)
            if rule is None:
                options.fail(f"there is no step {kind!r}; {suggestion(kind, self.known)}")
            rule.check(options)

    def hidden(self, item: Item) -> Iterator[Hidden]:
        """See shapes.Shape."""
        for row in item.items():
            for kind, options in row.value.items() if isinstance(row.value, dict) else ():
                if kind in self.known:
                    yield from self.known[kind].shape.hidden(options)

    def schema(self) -> dict[str, Any]:
        """See shapes.Shape."""
        steps = {name: {**rule.shape.schema(), "description": rule.doc} for name, rule in self.known.items()}
        group = {
            "type": "object",
            "properties": steps,
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
        step = {"anyOf": [group, {"enum": list(steps)}]}
        return {"anyOf": [{"type": "array", "items": step}, step]}


def rules(*step_rules: StepRule) -> dict[str, StepRule]:
    """The rules by their names."""
    return {rule.name: rule for rule in step_rules}
