"""Every message, in every version, comes back as it was sent, however it is cut out of a buffer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.wire_samples import all_data, all_messages, sample

from barnabas.wire.schema import Data, Message


@pytest.mark.parametrize("cls", [*all_messages(), *all_data()], ids=lambda cls: cls.__name__)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 3))
def test_round_trip(cls: type[Message], seed: int, size: int) -> None:
    for version in cls.VERSIONS:
        message = sample(cls, version, random.Random(seed + version), size)
        encoded = message.encode(version)
        assert cls.decode(encoded, version) == message
        padded = memoryview(bytearray(b"pad" + encoded + b"rest"))
        again, end = cls.decode_at(padded, version, 3)
        assert again == message
        assert end == 3 + len(encoded)
        assert again.encode(version) == encoded
        assert b"".join(bytes(part) for part in message.encode_parts(version, b"head")) == b"head" + encoded


@pytest.mark.parametrize("cls", all_data(), ids=lambda cls: cls.__name__)
def test_versioned_data_round_trip(cls: type[Data]) -> None:
    for version in cls.VERSIONS:
        message = sample(cls, version, random.Random(version), 2)
        encoded = message.encode_versioned(version)
        assert encoded[:2] == version.to_bytes(2, "big")
        assert cls.decode_versioned(encoded) == message


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_defaults_round_trip(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        assert cls.decode(cls().encode(version), version) == cls()
