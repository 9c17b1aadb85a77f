"""What a Protobuf schema means: protoc is the judge, over the files that Google publishes."""

from __future__ import annotations

import base64
import importlib.resources
from collections.abc import Iterator, Mapping
from pathlib import Path

import google.rpc
import pytest
from google.api import annotations_pb2, client_pb2, field_behavior_pb2
from google.protobuf import descriptor_pb2 as pb

from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.formats.comparing import problems_reading
from barnabas.schemas.formats.protobuf import read_protobuf
from barnabas.schemas.model import Reference

OPTIONS = (annotations_pb2, client_pb2, field_behavior_pb2)
"""Imported so that protobuf knows these options, and writes them in one way."""
protoc = pytest.importorskip("grpc_tools.protoc")

ROOTS = (
    Path(google.rpc.__path__[0]).parents[
        1
    ],  # google/api, google/type and others, as used by the APIs of Google's cloud
    Path(str(importlib.resources.files("grpc_tools")))
    / "_proto",  # protoc's own: descriptor.proto, timestamp.proto
)
PUBLISHED = {
    str(path.relative_to(r)): path.read_text() for r in ROOTS for path in (r / "google").rglob("*.proto")
}


def compiled(texts: Mapping[str, str], folder: Path) -> dict[str, pb.FileDescriptorProto]:
    """protoc's descriptors of files and of what they import, by name."""
    for name, text in texts.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    out = folder / "descriptors"
    words = ["protoc", f"-I{folder}", *(f"-I{root}" for root in ROOTS), "--include_imports", f"-o{out}"]
    words.append("--retain_options")  # those for protoc itself as well

    assert protoc.main([*words, *sorted(texts)]) == 0
    return {file.name: file for file in pb.FileDescriptorSet.FromString(out.read_bytes()).file}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pb.FileDescriptorProto]:
    return compiled(PUBLISHED, tmp_path_factory.mktemp("published"))


def imported(files: Mapping[str, pb.FileDescriptorProto], name: str) -> list[str]:
    """All files that one needs, each after those that it needs itself."""
    names: dict[str, None] = {}
    for other in files[name].dependency:
        names |= dict.fromkeys([*imported(files, other), other])
    return list(names)


def parts(message: pb.FileDescriptorProto | pb.DescriptorProto) -> Iterator[pb.FieldDescriptorProto]:
    yield from message.extension
    if isinstance(message, pb.DescriptorProto):
        yield from message.field
    inner = message.nested_type if isinstance(message, pb.DescriptorProto) else message.message_type
    for one in inner:
        yield from parts(one)


def without_empty_options(message: object) -> None:
    """protoc keeps `options {}` of a method whose braces are empty; it means nothing."""
    assert isinstance(message, pb.FileDescriptorProto | pb.DescriptorProto.__base__)
    for field, value in list(message.ListFields()):
        if field.type != field.TYPE_MESSAGE:
            continue
        if field.name == "options" and not value.ByteSize():
            message.ClearField("options")
            continue
        for one in value if field.is_repeated else [value]:
            without_empty_options(one)


def meaning(file: pb.FileDescriptorProto) -> bytes:
    """A descriptor without its name and comments, and without the JSON names that follow from the fields' names."""
    copy = pb.FileDescriptorProto.FromString(file.SerializeToString())
    copy.ClearField("name")
    copy.ClearField("source_code_info")
    for field in parts(copy):
        first, *rest = field.name.split("_")
        if field.json_name == first + "".join(word[:1].upper() + word[1:] for word in rest):
            field.ClearField("json_name")
    without_empty_options(copy)
    return copy.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_files(name: str, theirs: dict[str, pb.FileDescriptorProto], tmp_path: Path) -> None:
    """Parsed here, a file is what protoc says; so is the text in which it is stored."""
    needed = imported(theirs, name)
    schema = read_protobuf(
        PUBLISHED[name], [Dependency(other, Reference(other, other, 1), PUBLISHED[other]) for other in needed]
    )
    ours = pb.FileDescriptorProto.FromString(base64.b64decode(schema.formatted("serialized")))
    assert meaning(ours) == meaning(theirs[name])
    if not name.startswith("google/protobuf/"):  # protoc has these inside, and takes no others
        assert meaning(compiled({name: schema.canonical}, tmp_path)[name]) == meaning(theirs[name])
    again = read_protobuf(
        schema.normalized(),
        [Dependency(other, Reference(other, other, 1), PUBLISHED[other]) for other in needed],
    )
    assert not problems_reading(again, schema)
    assert not problems_reading(schema, again)
