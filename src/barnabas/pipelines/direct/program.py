"""What is made of a line without Spark, as plain data. planning.py makes it of a pipeline, parcels.py does it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

PARCEL: Final = "_barnabas_parcel"
"""The column of parcels: fields cannot have its name."""
PARCEL_ROWS: Final = "_barnabas_parcel_rows"
"""How many lines are in it."""
ONE_TOPIC: Final = b"barnabas.one-topic"
"""In the metadata of a schema: all rows are for one topic."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a value is made of fields, see `lines.Template`."""

    shape: int
    fields: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """The record of an output. key: None leaves the one that the record came with."""

    output: str
    topic: str
    key: Recipe | None
    value: Recipe
    headers: tuple[tuple[str, Recipe], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """fields: group and Kind of everything that is made of a line. A line that fails in one of them is not plain."""

    combined: bool
    fields: tuple[tuple[int, int], ...]
    outputs: tuple[Made, ...]

    def text(self) -> str:
        """As an option of the data source."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Program:
        def recipe(raw: Mapping[str, list[str]]) -> Recipe:
            return Recipe(int(raw["shape"]), tuple(map(int, raw["fields"])), tuple(raw["texts"]))  # type: ignore[call-overload]

        whole = json.loads(text)
        outputs = tuple(
            Made(
                raw["output"],
                raw["topic"],
                None if raw["key"] is None else recipe(raw["key"]),
                recipe(raw["value"]),
                tuple((name, recipe(header)) for name, header in raw["headers"]),
            )
            for raw in whole["outputs"]
        )
        return cls(whole["combined"], tuple((group, kind) for group, kind in whole["fields"]), outputs)
