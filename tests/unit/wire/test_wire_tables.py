"""The tables: error codes, catalogue of messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.wire_samples import all_messages

from barnabas.wire.errors import RETRIABLE, ApiError, ErrorCode, error_from_code
from barnabas.wire.messages import CATALOGUE, message_class, request_class, response_class
from barnabas.wire.schema import Struct


def test_catalogue_agrees_with_the_classes() -> None:
    for key, (name, _module, flexible) in CATALOGUE.items():
        request, response = request_class(key), response_class(key)
        assert request.__name__ == name + "Request"
        assert response.__name__ == name + "Response"
        assert message_class(name + "Request") is request
        for cls in (request, response):
            assert key == cls.API_KEY
            assert flexible == cls.FLEXIBLE_FROM
        assert request.VERSIONS == response.VERSIONS
        assert (request.IS_REQUEST, response.IS_REQUEST) == (True, False)
    with pytest.raises(KeyError):
        message_class("NoSuchRequest")


def test_error_codes_equal_kio() -> None:
    theirs = pytest.importorskip("kio.schema.errors").ErrorCode
    assert {code.name.lower(): int(code) for code in ErrorCode} == {code.name: int(code) for code in theirs}
    assert {int(code) for code in RETRIABLE} == {int(code) for code in theirs if code.retriable}


def test_errors() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.NONE.retriable
    assert error_from_code(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    error = ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "no member 'a' in 'g'")
    assert (error.code, str(error)) == (25, "no member 'a' in 'g'")
    assert ApiError(ErrorCode.NONE).message == "NONE"


def test_every_key_up_to_92_is_known_or_left_out_on_purpose() -> None:
    controllers = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82}
    assert set(CATALOGUE) == set(range(93)) - controllers
    assert len(all_messages()) == 2 * len(CATALOGUE)


def test_no_error_text_stands_in_the_way_of_its_answer() -> None:
    """A text that a version has no room for is left out; its error code is sent all the same."""
    fields = [
        f"{kind.__name__}.{name}"
        for key in CATALOGUE
        for kind in structs(response_class(key))
        for name, field in kind.FIELDS.items()
        if name.endswith("message")
        and field.kind == "string"
        and field.versions != "0+"
        and not field.ignorable
    ]
    assert not fields


def structs(kind: type[Struct]) -> Iterator[type[Struct]]:
    """A message and all structs in it."""
    yield kind
    for field in kind.FIELDS.values():
        if isinstance(field.element, type):
            yield from structs(field.element)
