"""No schema makes anything connect to another machine or read a file, wherever it is used and whatever it names."""

from __future__ import annotations

import ast
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.pipelines.formats.base import NoColumns
from barnabas.pipelines.formats.encoding import JsonWriter
from barnabas.pipelines.formats.json_schema import JsonReader
from barnabas.schemas.codecs.contracts import JsonLanguage
from barnabas.schemas.codecs.schemas import JsonCodec
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.formats.json_schema import read_json_schema
from barnabas.schemas.framing import Schema
from barnabas.schemas.json_validation import BadSchema, JsonSchema
from barnabas.schemas.model import Reference

SOURCE: Final = Path(__file__).parents[3] / "src" / "barnabas"
BUILDER: Final = SOURCE / "schemas/json_validators.py"
ERRORS: Final = {"ValidationError", "ReferencingError"}
DRAFTS: Final = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)

PROPERTIES: Final = {"a": {"type": "string"}}
NAMING: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "$schema": lambda uri: {"$schema": uri},
    "$schema inside": lambda uri: {"properties": {"a": {"$schema": uri}}},
    "$ref": lambda uri: {"$ref": uri},
    "$ref inside": lambda uri: {"properties": {"a": {"anyOf": [{"$ref": f"{uri}#/a"}]}}},
    "$ref in $defs": lambda uri: {"$defs": {"a": {"$ref": uri}}, "definitions": {"b": {"$ref": uri}}},
    "$dynamicRef": lambda uri: {"$dynamicRef": uri},
    "$recursiveRef": lambda uri: {"$recursiveRef": uri},
    "$id": lambda uri: {"$id": uri, "$ref": "other"},
    "id": lambda uri: {"id": uri, "$ref": "other"},
    "$id inside": lambda uri: {"properties": {"a": {"$id": uri, "$ref": "other#x"}}},
    "$id and $schema inside": lambda uri: {"$ref": "#/$defs/a", "$defs": {"a": {"$id": uri, "$schema": f"{uri}/b"}}},
    "$vocabulary": lambda uri: {"$vocabulary": {uri: True}},
}  # fmt: skip


def codec(text: str, dependencies: list[tuple[str, str]]) -> None:
    JsonCodec(text, given(dependencies)).encode({"a": "b"})


def validator(text: str, dependencies: list[tuple[str, str]]) -> None:
    json_schema = JsonSchema(text, dependencies)
    for part in (json_schema.tree, *json_schema.documents.values()):
        for inner in [part, *(part.get("properties") or {}).values()]:
            with suppress(BadSchema):
                json_schema.allows(inner, {"a": "b"})
    json_schema.matches("^a", "a")
    json_schema.check({"a": "b"})


def schema(text: str, dependencies: list[tuple[str, str]]) -> Schema:
    return Schema(1, "JSON", text, tuple(dependencies))


def given(dependencies: list[tuple[str, str]]) -> list[Dependency]:
    return [Dependency(name, Reference(name, name, 1), text) for name, text in dependencies]


USES: Final[dict[str, Callable[[str, list[tuple[str, str]]], Any]]] = {
    "the registry, new": lambda text, others: read_json_schema(text, given(others)),
    "the registry, stored": lambda text, others: read_json_schema(text, given(others), new=False),
    "a validator": validator,
    "the proxy and the command line": codec,
    "data contracts": lambda text, others: JsonLanguage(schema(text, others)),
    "a pipeline's target": lambda text, others: JsonWriter(schema(text, others)).encode({"a": "b"}),
    "a pipeline's source": lambda text, others: JsonReader(schema(text, others)),
}


class Server:
    """Accepts connections, closes and counts them."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.connections = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            peer, _ = self.listening.accept()
            with peer:
                if peer.recv(4, socket.MSG_PEEK) == b"stop":
                    return
            self.connections += 1

    def count(self) -> int:
        """The connections until now; ends the server."""
        with socket.create_connection(("127.0.0.1", self.port)) as own:
            own.sendall(b"stop")
            self._thread.join()
        self.listening.close()
        return self.connections


@pytest.mark.parametrize("use", USES, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("naming", NAMING, ids=lambda name: name.replace(" ", "-"))
def test_no_schema_causes_a_fetch(tmp_path: Path, use: str, naming: str) -> None:
    server = Server()
    there = tmp_path / "there.json"
    there.write_text('{"type": "string"}')
    for uri in (f"http://127.0.0.1:{server.port}/x", there.as_uri()):
        for draft in ({}, *({"$schema": name} for name in DRAFTS)):
            bad = json.dumps({"type": "object", "properties": PROPERTIES, **draft, **NAMING[naming](uri)})
            good = json.dumps({"type": "object", "properties": {"a": {"$ref": "other.json"}}, **draft})
            for text, others in ((bad, []), (good, [("other.json", bad)])):
                with suppress(InvalidSchema, BadSchema, NoColumns, ValueError):
                    USES[use](text, others)
    assert server.count() == 0


def test_a_file_that_exists_is_not_a_part_of_a_schema(tmp_path: Path) -> None:
    there = tmp_path / "there.json"
    there.write_text('{"type": "string"}')
    with pytest.raises(BadSchema, match="was not given"):
        JsonSchema(json.dumps({"$ref": there.as_uri()}))


def test_one_module_builds_validators() -> None:
    uses = []
    for path in SOURCE.rglob("*.py"):
        if path == BUILDER or "jsonschema" not in path.read_text():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                ("jsonschema", "referencing")
            ):
                uses.append(f"{where} imports from {node.module}")
            elif isinstance(node, ast.Import):
                uses += [
                    f"{where} imports {a.name}" for a in node.names if a.name in ("jsonschema", "referencing")
                ]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "jsonschema_rs":
                uses += [f"{where} uses {ast.unparse(node)}"] * (node.attr not in ERRORS)
    assert uses == [], "build validators with barnabas.schemas.json_validators"
