"""Hostile input: whatever the bytes, decoding gives a message or WireError, never anything else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.wire_samples import all_data, all_messages, sample

from barnabas.wire.header import decode_request_header
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas.group_log import decode_group_record
from barnabas.wire.schema import Message

EVERY = [*all_messages(), *all_data()]
PREFIXES_MAX = 150


def decode_or_refuse(cls: type[Message], data: bytes, version: int) -> bool:
    try:
        cls.decode(data, version)
    except WireError:
        return False
    return True


def versions_of(cls: type[Message]) -> list[int]:
    """First, last, and both sides of the step to flexible."""
    wanted = {cls.VERSIONS[0], cls.VERSIONS[-1]}
    if cls.FLEXIBLE_FROM is not None:
        wanted |= {cls.FLEXIBLE_FROM, cls.FLEXIBLE_FROM - 1}
    return sorted(wanted & set(cls.VERSIONS))


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_prefix(cls: type[Message]) -> None:
    for version in versions_of(cls):
        data = sample(cls, version, random.Random(version), 2).encode(version)
        step = max(1, len(data) // PREFIXES_MAX)
        for end in range(0, len(data), step):
            # All that is in a message is needed, so a part of it is never taken for the whole.
            assert not decode_or_refuse(cls, data[:end], version), f"version {version}, {end} bytes"


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_changed_bytes(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in versions_of(cls):
        data = bytearray(sample(cls, version, rng, 2).encode(version))
        for _ in range(40 if data else 0):
            changed = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
                )
            decode_or_refuse(cls, bytes(changed), version)


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
@settings(max_examples=8, deadline=None)
@given(data=st.binary(max_size=200))
def test_garbage(cls: type[Message], data: bytes) -> None:
    for version in versions_of(cls):
        decode_or_refuse(cls, data, version)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.binary(max_size=60))
def test_garbage_headers_and_records(data: bytes) -> None:
    for read in (decode_request_header, lambda d: decode_group_record(d, d)):
        try:
            read(data)
        except WireError:
            pass
