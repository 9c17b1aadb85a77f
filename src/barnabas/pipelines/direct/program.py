"""Programs that make records of lines without Spark, as plain data. planning.py makes them, parcels.py runs them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

PARCEL: Final = "_barnabas_parcel"
"""The column of parcels; no field can have this name."""
PARCEL_ROWS: Final = "_barnabas_parcel_rows"
"""The column with the number of lines in each parcel."""
ONE_TOPIC: Final = b"barnabas.one-topic"
"""A mark in the metadata of a schema: all rows are for one topic."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a value is made of fields, see `lines.Template`."""

    shape: int
    fields: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """How the record of an output is made. key: None keeps the source record's key."""

    output: str
    topic: str
    key: Recipe | None
    value: Recipe
    headers: tuple[tuple[str, Recipe], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """combined: whether lines have the format `combined-log`, not `common-log`. fields: group and Kind of each value
    that is made of a line. A line is not plain if one of them cannot be made."""

    combined: bool
    fields: tuple[tuple[int, int], ...]
    outputs: tuple[Made, ...]

    def text(self) -> str:
        """The program as the value of an option of the data source."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Program:
        """The program that `text` returned as text."""

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
