"""What Confluent's registry answers, as its documentation and its own tests state it: tests/differential/registry.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2 as pb

from barnabas.schemas.formats.known_files import GOOGLE_TYPES
from barnabas.schemas.formats.protobuf import GOOGLE, read_protobuf
from tests.unit.registry.test_api import Api

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "differential" / "registry.json").read_text()
)


def test_answers_are_those_of_confluents_registry() -> None:
    api = Api()
    for row in ROWS:
        status, answer = api(*row["send"], takes_new_fields=row.get("new_fields", True))
        shown = f"{row['send']}: {status} {answer}"
        assert status == row["status"], shown
        assert row.get("is", answer) == answer, shown
        assert set(row.get("has", ())) <= set(answer), shown
        assert row.get("code") in (None, answer.get("error_code")), shown
        assert str(answer.get("message")).startswith(row.get("message", "")), shown


@pytest.mark.parametrize("name", GOOGLE_TYPES)
def test_built_in_files_are_googles(name: str) -> None:
    module = pytest.importorskip(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    theirs = pb.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    ours = pb.FileDescriptorProto()
    importing = read_protobuf(f'syntax = "proto3"; import "{name}"; message M {{}}')
    importing.descriptor.dependencies[0].CopyToProto(ours)
    theirs.ClearField("options")
    for message in (*theirs.message_type, *ours.message_type):
        for descriptor in (message, *message.nested_type):
            for field in descriptor.field:
                field.ClearField("json_name")
    assert ours == theirs


@pytest.mark.parametrize("name", GOOGLE)
def test_files_of_protobuf_itself_need_no_reference(name: str) -> None:
    read_protobuf(f'syntax = "proto3"; import "google/protobuf/{name}.proto"; message M {{}}')
