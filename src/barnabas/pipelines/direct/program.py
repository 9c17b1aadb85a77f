"""Programs that make records without Spark, as plain data. planning.py makes them, parcels.py runs them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

PARCEL: Final = "_barnabas_parcel"
"""The column of parcels; no field can have this name."""
PARCEL_ROWS: Final = "_barnabas_parcel_rows"
"""The column with the number of records in each parcel."""
ONE_TOPIC: Final = b"barnabas.one-topic"
"""A mark in the metadata of a schema: all rows are for one topic."""


@dataclass(frozen=True, slots=True)
class Step:
    """op: operations.Op. out: the slot of its result. arguments: slots. kind: values.SlotType that it works with."""

    op: int
    out: int
    arguments: tuple[int, ...] = ()
    kind: int = 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a column is made of slots, see `machine.Template`."""

    shape: int
    slots: tuple[int, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordRecipe:
    """How the record of an output is made. topic: its name, or how it is made. key, value, headers: None keeps what the
    source's record has."""

    output: str
    topic: str | Recipe
    key: Recipe | None
    value: Recipe | None
    headers: tuple[tuple[str, Recipe], ...] | None


@dataclass(frozen=True, slots=True)
class Program:
    """reader: what parses the value: `lines`, `objects`, `separated` or nothing, with its options. base: the slot of the
    first field that it reads. kinds: of all slots. constants: values of slots that are the same for every record. parts:
    slots with the machine.Part of the record that they show. with_headers: whether a step looks at headers."""

    reader: Mapping[str, Any]
    base: int
    kinds: tuple[int, ...]
    constants: tuple[tuple[int, Any], ...]
    parts: tuple[tuple[int, int], ...]
    with_headers: bool
    steps: tuple[Step, ...]
    outputs: tuple[RecordRecipe, ...]

    def text(self) -> str:
        """The program as the value of an option of the data source."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Program:
        """The program that `text` returned as text."""
        whole = json.loads(text)
        return cls(
            whole["reader"],
            whole["base"],
            tuple(whole["kinds"]),
            tuple((slot, value) for slot, value in whole["constants"]),
            tuple((slot, part) for slot, part in whole["parts"]),
            whole["with_headers"],
            tuple(
                Step(raw["op"], raw["out"], tuple(raw["arguments"]), raw["kind"]) for raw in whole["steps"]
            ),
            tuple(_record_recipe(raw) for raw in whole["outputs"]),
        )


def _recipe(raw: Mapping[str, Any]) -> Recipe:
    return Recipe(raw["shape"], tuple(raw["slots"]), tuple(raw["texts"]))


def _record_recipe(raw: Mapping[str, Any]) -> RecordRecipe:
    key, value, headers, topic = raw["key"], raw["value"], raw["headers"], raw["topic"]
    return RecordRecipe(
        raw["output"],
        topic if isinstance(topic, str) else _recipe(topic),
        None if key is None else _recipe(key),
        None if value is None else _recipe(value),
        None if headers is None else tuple((name, _recipe(header)) for name, header in headers),
    )
