"""Which media type an answer has, by the Accept header."""

from __future__ import annotations

import pytest

from barnabas.http.errors import HttpError
from barnabas.proxy.call import as_number, negotiate

OFFERED = ("application/vnd.kafka.v2+json", "application/json", "application/vnd.kafka+json")


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, 0), ("", 0), ("*/*", 0), ("application/*", 0), ("text/html, */*;q=0.1", 0), ("application/json", 1),
        ("Application/JSON ; charset=utf-8", 1), ("application/json;q=0.5, application/vnd.kafka.v2+json;q=0.4", 1),
        ("application/json;q=0.5, application/*", 0), ("application/vnd.kafka.v2+json;q=0, */*", 1),
        ("application/vnd.kafka+json", 2),
    ],
)  # fmt: skip
def test_the_media_type_that_is_wanted_most(accept: str | None, wanted: int) -> None:
    assert negotiate(accept, OFFERED) == OFFERED[wanted]


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "*/*;q=x", "json", "text/*"])
def test_what_cannot_be_served_is_406(accept: str) -> None:
    with pytest.raises(HttpError, match="Not Acceptable") as refused:
        negotiate(accept, OFFERED)
    assert (refused.value.status, refused.value.code) == (406, 406)


def test_numbers_may_be_texts_of_digits() -> None:
    assert [as_number(value, "n") for value in (7, "7", "0")] == [7, 7, 0]
    for value in ("", "-1", "1.0", "\u0661", True, None, 1.5, "9" * 30):
        with pytest.raises(HttpError):
            as_number(value, "n")
