"""Records as the serializers of the AWS Glue Schema Registry write them, and functions that the console is started with."""

from __future__ import annotations

import json
import plistlib
import uuid
import zlib
from pathlib import Path

import pytest

from barnabas.console.main import ConsoleOptions
from barnabas.console.records import glue
from barnabas.console.records.decoding import Decoder, Shown
from barnabas.console.records.glue import GlueSchemas
from barnabas.console.records.lazy import Lazy
from barnabas.http.server import HttpOptions
from barnabas.services.access import Access
from barnabas.services.row import ServiceContext
from barnabas.services.rows.console import CONSOLE, options_of
from barnabas.terminal.errors import UsageError

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"country","type":"string"}]}'
JSON = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"id":{"type":"integer"}}}'
PROTOBUF = """syntax = "proto3";
package shop;
message Order { int64 id = 1; message Line { string sku = 1; } }
message Address { string city = 1; }
"""
ORDER = {"id": 7, "country": "DE"}
WRITTEN = (
    ("AVRO", AVRO, "030054fab3a0acba4ff0a445b6bbae5a3a080e044445", ORDER),
    ("AVRO", AVRO, "0305e361fe4c461a404cab2a6f5cda87aa2d789ce363717105000115009c", ORDER),
    ("JSON", JSON, "0300df8663e9013a4218a130365b274f41787b226964223a377d", {"id": 7}),
    ("JSON", JSON, "03050e436e8b846c486abfe0713ba166ebd5789cab56ca4c51b232af05000b59027b", {"id": 7}),
    ("PROTOBUF", PROTOBUF, "030080d25349e23f419baadcc6097c6a19ac020a03612d31", {"sku": "a-1"}),
    (
        "PROTOBUF",
        PROTOBUF,
        "03050e56660391d845bda7dd3e146606d571789c63e2624ed435040001fe00cf",
        {"sku": "a-1"},
    ),
)
"""(format, schema, bytes, document): written by software.amazon.glue:schema-registry-serde 1.1.24 for Java."""


def note(folder: Path, version: str, kind: str, definition: str) -> None:
    """What `aws glue get-schema-version` answers."""
    fields = {
        "SchemaVersionId": version,
        "SchemaDefinition": definition,
        "DataFormat": kind,
        "VersionNumber": 1,
    }
    (folder / f"{version}.json").write_text(json.dumps(fields))


def shown(decoder: Decoder, data: bytes, how: str = "auto") -> Shown:
    return decoder.shown("orders", "value", data, how)


@pytest.mark.parametrize(("kind", "definition", "written", "document"), WRITTEN)
def test_what_javas_serializers_write_is_read_with_the_schema_of_a_file(
    tmp_path: Path, kind: str, definition: str, written: str, document: object
) -> None:
    data = bytes.fromhex(written)
    version = str(uuid.UUID(bytes=data[2:18]))
    decoder = Decoder(lambda: None, GlueSchemas(tmp_path))
    note(tmp_path, version, kind, definition)
    for how in ("auto", "schema"):
        content = shown(decoder, data, how)
        assert (content.kind, content.document, content.schema) == (kind.lower(), document, version)


def test_what_is_missing_or_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glue, "LOOK_AGAIN_S", 0.0)
    data = bytes.fromhex(WRITTEN[0][2])
    version = str(uuid.UUID(bytes=data[2:18]))
    assert "--glue-schemas" in str(shown(Decoder(lambda: None), data).error)
    decoder = Decoder(lambda: None, GlueSchemas(tmp_path))
    assert f"get-schema-version --schema-version-id {version}" in str(shown(decoder, data).error)
    path = tmp_path / f"{version}.json"
    for content in ("", "[]", "{}", "\xff", "[" * 100_000):
        path.write_text(content, "latin-1")
        assert "is not an answer of aws glue" in str(shown(decoder, data).error)
    note(tmp_path, version, "AVRO", "{")
    assert "cannot be used" in str(shown(decoder, data).error)
    note(tmp_path, version, "AVRO", AVRO)
    assert shown(decoder, data).document == ORDER  # a file that comes later is found
    assert shown(decoder, data[:-1]).error is not None


def test_other_bytes_that_begin_alike_and_bytes_that_grow_are_not_followed(tmp_path: Path) -> None:
    assert shown(Decoder(lambda: None), b"\x03\x00" + bytes(16)).error is None
    assert shown(Decoder(lambda: None), b"\x03\x00").error is None
    version = uuid.uuid4()
    note(tmp_path, str(version), "JSON", JSON)
    head = b"\x03\x05" + version.bytes
    decoder = Decoder(lambda: None, GlueSchemas(tmp_path))
    assert "more than 64 MiB" in str(shown(decoder, head + zlib.compress(bytes(65 << 20))).error)
    assert "and cut" in str(shown(decoder, head + zlib.compress(b"{}")[:-1]).error)
    assert "is not" in str(shown(decoder, head + b"{}").error)


class One:
    """A record for filters."""

    partition = 0

    def __init__(self, data: bytes) -> None:
        self.data = data

    def key(self, row: int) -> bytes | None:
        return None

    def value(self, row: int) -> bytes | None:
        return self.data

    def headers(self, row: int) -> tuple[()]:
        return ()


def test_filters_see_what_such_schemas_and_functions_decode(tmp_path: Path) -> None:
    data = bytes.fromhex(WRITTEN[1][2])
    note(tmp_path, str(uuid.UUID(bytes=data[2:18])), "AVRO", AVRO)
    decoder = Decoder(lambda: None, GlueSchemas(tmp_path), {"plist": plistlib.loads})
    record = Lazy(decoder, "orders", ("auto", "auto"), One(data))
    assert record.document("value") == ORDER
    assert '"DE"' in str(record.text("value"))
    record = Lazy(decoder, "orders", ("auto", "plist"), One(plistlib.dumps(ORDER)))
    assert record.document("value") == ORDER
    assert "plist cannot decode it" in str(shown(decoder, b"no", "plist").error)


def test_options_name_folders_and_functions(tmp_path: Path) -> None:
    values = {word.replace("-", "_"): option.default for word, option in CONSOLE.options.items()}

    def options(**some: list[str]) -> ConsoleOptions:
        client = {"bootstrap.servers": "localhost"}
        return options_of(ServiceContext({**values, **some}, client, HttpOptions(""), Access()))

    cluster = options(glue_schemas=[str(tmp_path)], decoder=["plist=plistlib:loads"]).clusters[0]
    assert (cluster.glue, cluster.decoders) == (tmp_path, {"plist": plistlib.loads})
    for name, text, reason in (
        ("glue_schemas", "/no/such", "there is no such folder"),
        ("glue_schemas", f"other={tmp_path}", "there is no cluster of this name"),
        ("decoder", "json=plistlib:loads", "is none of auto"),
        ("decoder", "a b=plistlib:loads", "small letters"),
        ("decoder", "plist=plistlib", "is not MODULE:FUNCTION"),
        ("decoder", "plist=no_such_module:loads", "ModuleNotFoundError"),
        ("decoder", "plist=plistlib:nothing", "AttributeError"),
        ("decoder", "plist=plistlib:__doc__", "is not a function"),
    ):
        with pytest.raises(UsageError, match=reason):
            options(**{name: [text]})
