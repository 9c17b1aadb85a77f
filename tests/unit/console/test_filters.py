"""Filters of records: what they mean, what is refused, and that none of them fails on any record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.records.filters import BadFilter, compile_filter


class Seen:
    """A record as filters see it."""

    partition, offset, timestamp = 1, 5, 1_700_000_000_000

    def __init__(self, document: Any = None, text: str | None = "", key: str | None = "k-1") -> None:
        self._document, self._text, self._key = document, text, key

    def text(self, part: str) -> str | None:
        return self._key if part == "key" else self._text

    def document(self, part: str) -> Any:
        return self._document if part == "value" else None

    def header(self, name: str) -> str | None:
        return {"source": "shop-1"}.get(name)


DOCUMENT = {"country": "DE", "amount": 12.5, "items": [{"sku": "a"}], "n": "7", "paid": True, "none": None}
SEEN = Seen(DOCUMENT, '{"country":"DE"}')
TRUE = [
    "value.country = 'DE' and amount > 3.5", "headers['source'] like 'shop%'", "headers.source ilike 'SHOP-_'",
    "items[0].sku in ('b', 'a')", "n > 6", "n < 10", "paid", "none is null", "missing is null", "country is not null",
    "offset = 5 or missing = 1", "timestamp > '2023-01-01'", "timestamp between '2023-11-14' and '2023-11-15T00:00:00Z'",
    "key rlike '^k-[0-9]$'", "length(items) = 1", "substring(key, 1, 1) = 'k'", "cast(n as int) % 2 = 1", "amount * 2 = 25",
    "value like '%country%'", "lower(country) = 'de' and paid = true", "partition in (1, 2)", "not country = 'FR'",
    "coalesce(missing, country) = 'DE'", "missing <=> null", "startswith(country, 'D') and contains(key, '-')",
    "paid is true",
]  # fmt: skip
FALSE = [
    "missing = 1", "missing <> 1", "not missing = 1", "country = 5", "country > amount", "items = 'a'", "amount / 0 = 1",
    "key = null", "offset > 5", "country in ('FR', null)", "items[7].sku = 'a'", "country.x.y = 'a'", "-amount > 0",
]  # fmt: skip
REFUSED = [
    "a =", "select 1", "exists(select 1 from t)", "foo(key)", "key rlike '('", "key between 1", "x" * 5_000,
    "(" * 2_000 + "1",
    "timestamp > 'soon'", "key rlike headers['x']", "a in (select 1)", "cast(a as date) = 1", "a; drop table b", "",
    " and ".join(["a = 1"] * 400),
]  # fmt: skip


@pytest.mark.parametrize("text", TRUE)
def test_it_fits(text: str) -> None:
    assert compile_filter(text)(SEEN) is True


@pytest.mark.parametrize("text", FALSE)
def test_it_does_not_fit(text: str) -> None:
    assert compile_filter(text)(SEEN) is False


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30])
def test_it_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadFilter) as caught:
        compile_filter(text)
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(DOCUMENT)), inner, max_size=4)
    ),
)
COMPILED = [compile_filter(text) for text in TRUE + FALSE]


@given(JSON, st.none() | st.text(max_size=10), st.none() | st.text(max_size=5))
def test_no_filter_fails_on_any_record(document: Any, text: str | None, key: str | None) -> None:
    record = Seen(document, text, key)
    for fits in COMPILED:
        assert fits(record) in (True, False)


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        compile_filter(text)(SEEN)
    except BadFilter:
        pass


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id >", "something is missing after '>', at character 4"),
        ("(id = 1", ") is missing, at character 7"),
        ("id = 1)", "')' does not fit there, at character 7"),
        ("a = 1 AND", "something is missing after 'AND', at character 9"),
        ("name = 'x", "a quotation mark is not closed"),
    ],
)
def test_mistakes_are_told_in_words_for_whoever_writes_filters(text: str, reason: str) -> None:
    with pytest.raises(BadFilter) as caught:
        compile_filter(text)
    assert str(caught.value) == reason
