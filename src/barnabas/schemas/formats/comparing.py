"""Compares schemas of one language. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.schemas.formats.base import Parsed, Problem
from barnabas.schemas.formats.pairs import STEPS_MAX, Steps
from barnabas.schemas.model import AVRO, JSON


def problems_reading(reader: Parsed, writer: Parsed, steps: Steps | None = None) -> Sequence[Problem]:
    """Why `reader` cannot read data written with `writer`, a schema of the same language; empty if it can.

    Raises OverBudget if finding out takes more steps.
    """
    steps = steps or Steps(STEPS_MAX)
    if reader.language == AVRO:
        from barnabas.schemas.formats import avro_compatibility
        from barnabas.schemas.formats.avro import AvroSchema

        assert isinstance(reader, AvroSchema)
        assert isinstance(writer, AvroSchema)
        return avro_compatibility.problems(reader.root, writer.root, steps)
    if reader.language == JSON:
        from barnabas.schemas.formats import json_compatibility
        from barnabas.schemas.formats.json_schema import JsonSchema

        assert isinstance(reader, JsonSchema)
        assert isinstance(writer, JsonSchema)
        return json_compatibility.problems(reader, writer, steps)
    from barnabas.schemas.formats import protobuf_compatibility
    from barnabas.schemas.formats.protobuf import ProtobufSchema

    assert isinstance(reader, ProtobufSchema)
    assert isinstance(writer, ProtobufSchema)
    return protobuf_compatibility.problems(reader.descriptor, writer.descriptor, steps)
