"""Whether one Avro schema can read another's data: Avro's own Java library is the judge, over generated pairs."""

from __future__ import annotations

import copy
import json
import random
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.schemas.formats.avro import read_avro
from barnabas.schemas.formats.comparing import problems_reading
from tests.clients.foreign import SHORT_JAVA, need

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.java

JARS: Final = Path(pyspark.__file__).parent / "jars"
PAIRS: Final = 3_000
SEED: Final = 20_261
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS: Final[dict[str, Any]] = {
    "null": None, "boolean": True, "int": 1, "long": 2, "float": 0.5, "double": 0.25, "bytes": "a", "string": "s",
}  # fmt: skip
NAMES: Final = ("A", "B", "C")
FIELDS: Final = ("a", "b", "c", "d")
SYMBOLS: Final = ("X", "Y", "Z")


class Maker:
    """Makes schemas of few names, so that two of them have much in common."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def schema(self) -> Any:
        self.defined: set[str] = set()
        return self.type(3)

    def type(self, depth: int, *, in_union: bool = False) -> Any:
        kinds = ["primitive"] * 4 + ["enum", "fixed"]
        if depth:
            kinds += ["record"] * 4 + ["array", "map"] + ([] if in_union else ["union"] * 3)
        kind = self.chance.choice(kinds)
        if kind == "primitive":
            return self.chance.choice(PRIMITIVES)
        if kind == "array":
            return {"type": "array", "items": self.type(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.type(depth - 1)}
        if kind == "union":
            return self.union(depth)
        return self.named(kind, depth)

    def union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {}
        for _ in range(self.chance.randint(1, 4)):
            branch = self.type(depth - 1, in_union=True)
            key = branch if isinstance(branch, str) else branch.get("name") or branch["type"]
            branches.setdefault(key, branch)
        return list(branches.values())

    def named(self, kind: str, depth: int) -> Any:
        free = [name for name in NAMES if name not in self.defined]
        if not free:
            return self.chance.choice([*self.defined, "int"])
        name = self.chance.choice(free)
        self.defined.add(name)
        schema: dict[str, Any] = {"type": kind, "name": name}
        if self.chance.random() < 0.3:
            schema["namespace"] = self.chance.choice(("n", "m"))
        if self.chance.random() < 0.2:
            schema["aliases"] = [self.chance.choice([other for other in NAMES if other != name])]
        if kind == "fixed":
            schema["size"] = self.chance.choice((4, 8))
        elif kind == "enum":
            schema["symbols"] = self.chance.sample(SYMBOLS, self.chance.randint(1, 3))
            if self.chance.random() < 0.3:
                schema["default"] = schema["symbols"][0]
        else:
            schema["fields"] = [self.field(field, depth - 1) for field in self.some_fields()]
        return schema

    def some_fields(self) -> list[str]:
        return self.chance.sample(FIELDS, self.chance.randint(0, 3))

    def field(self, name: str, depth: int) -> Any:
        row = {"name": name, "type": self.type(depth)}
        first = row["type"][0] if isinstance(row["type"], list) and row["type"] else row["type"]
        if isinstance(first, str) and first in DEFAULTS and self.chance.random() < 0.5:
            row["default"] = DEFAULTS[first]
        if self.chance.random() < 0.2:
            row["aliases"] = [self.chance.choice([other for other in FIELDS if other != name])]
        return row

    def changed(self, schema: Any) -> Any:
        """A later version: one or two parts of it are other ones."""
        schema_now = copy.deepcopy(schema)
        for _ in range(self.chance.randint(1, 2)):
            schema_now = self.change(schema_now)
        return schema_now

    def change(self, schema: Any) -> Any:
        places: list[tuple[Any, Any]] = []

        def walk(node: Any) -> None:
            for key, child in enumerate(node) if isinstance(node, list) else list(node.items()):
                if isinstance(node, list) or key in ("type", "items", "values"):
                    places.append((node, key))
                if isinstance(child, dict | list):
                    walk(child)

        if not isinstance(schema, dict | list):
            return self.schema()
        walk(schema)
        node, key = self.chance.choice(places)
        self.defined = set(NAMES)
        old = node[key]
        simple = [kind for kind in PRIMITIVES if kind != old]
        if isinstance(old, str) and old in PRIMITIVES:
            node[key] = self.chance.choice(simple)
            node.pop("default", None) if isinstance(node, dict) else None
        elif isinstance(old, list) and key == "fields":
            pass
        elif isinstance(node, dict) and node.get("type") == "enum":
            node["symbols"] = self.chance.sample(SYMBOLS, self.chance.randint(1, 3))
            node.pop("default", None)
        elif isinstance(node, dict) and node.get("type") == "fixed":
            node["size"] = self.chance.choice((4, 8))
        elif isinstance(node, dict) and node.get("type") == "record":
            node["fields"] = [field for field in node["fields"] if self.chance.random() < 0.7]
            there = {field["name"] for field in node["fields"]}
            for name in FIELDS:
                if name not in there and self.chance.random() < 0.3:
                    node["fields"].append(self.field(name, 0))
        return schema


def is_schema(schema: Any) -> bool:
    try:
        read_avro(json.dumps(schema))
    except Exception:
        return False
    return True


def test_generated_pairs_get_the_same_verdict() -> None:
    chance = random.Random(SEED)
    maker = Maker(chance)
    pairs: list[tuple[Any, Any]] = []
    while len(pairs) < PAIRS:
        writer = maker.schema()
        reader = maker.changed(writer) if chance.random() < 0.8 else maker.schema()
        if is_schema(reader) and is_schema(writer):
            pairs.append((reader, writer))
    lines = "".join(f"{json.dumps(reader)}\t{json.dumps(writer)}\n" for reader, writer in pairs)
    program = Path(__file__).with_name("AvroRules.java")
    command = [need("java"), *SHORT_JAVA, "-cp", f"{JARS}/*", str(program)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    verdicts = done.stdout.split()
    for verdict in ("COMPATIBLE", "INCOMPATIBLE"):
        assert verdicts.count(verdict) > PAIRS // 10
    different = []
    for (reader, writer), theirs in zip(pairs, verdicts, strict=True):
        problems = problems_reading(read_avro(json.dumps(reader)), read_avro(json.dumps(writer)))
        # REFUSED: newer versions of the library do not find names without a namespace from within a namespace.
        if theirs in ("COMPATIBLE", "INCOMPATIBLE") and theirs != (
            "INCOMPATIBLE" if problems else "COMPATIBLE"
        ):
            different.append((json.dumps(reader), json.dumps(writer), theirs, problems[:1]))
    assert different == []
