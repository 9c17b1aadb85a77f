"""Records in `_schemas` that no registry wrote: each is skipped with a line in the log, and the next one counts."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.options import ClientOptions
from barnabas.client.tables.replay import Change, Replay
from barnabas.registry.decisions import decide_register
from barnabas.registry.errors import RegistryError
from barnabas.registry.library import Library
from barnabas.registry.model import Content
from barnabas.registry.records import INT_MAX, BadRecord, Entry, Key, decode, noop_entry
from barnabas.registry.requests import Wanted
from barnabas.registry.state import State
from barnabas.registry.store import Store, StoreOptions, Value
from barnabas.registry.subjects import parse_subject
from barnabas.schemas.model import AVRO
from tests.support.examples import examples

NAMES = [
    "subject", "version", "id", "schema", "schemaType", "references", "metadata", "ruleSet", "deleted", "guid",
    "compatibilityLevel", "alias", "mode", "idsGiven", "name", "context",
]  # fmt: skip
KINDS = ["SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT", "NOOP", "OTHER"]
VERSION = {"subject": "s", "version": 1, "id": 1, "schema": '"string"', "deleted": False}
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, 1, -1, 1 << 70, 1.5, float("inf"), float("nan"), "", "s", "1", ":.a:b", "AVRO", "FULL"]
    ),
)
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
    ),
    max_leaves=12,
)


@given(st.sampled_from(KINDS), values, values, st.dictionaries(st.sampled_from(NAMES), values, max_size=8))
@settings(max_examples=examples(500), deadline=None)
def test_whatever_a_record_holds_it_is_read_or_refused(
    kind: str, subject: Any, version: Any, value: Any
) -> None:
    key = {"keytype": kind, "magic": 1, "subject": subject, "version": version}
    with suppress(BadRecord):
        State().replay(decode(json.dumps(key).encode(), json.dumps(value).encode()))


@pytest.mark.parametrize(
    "bad",
    [
        Entry(Key("DELETE_SUBJECT", "s"), {"version": "x"}),
        Entry(Key("NOOP"), {"idsGiven": [1]}),
        Entry(Key("NOOP"), {"idsGiven": {".": 1 << 31}}),
        Entry(Key("SCHEMA", "s", 1), {**VERSION, "id": 1 << 31}),
        Entry(Key("SCHEMA", "s", 1), {**VERSION, "metadata": "x"}),
        Entry(Key("SCHEMA", "s", 1), {**VERSION, "metadata": {"tags": {"a": "b"}}}),
        Entry(Key("SCHEMA", "s", 1), {**VERSION, "ruleSet": {"domainRules": [7]}}),
        Entry(Key("CONFIG", "s"), {"alias": 5}),
        Entry(Key("CONFIG", "s"), {"normalize": "yes"}),
        Entry(Key("CONFIG", "s"), {"defaultMetadata": "x"}),
        Entry(Key("CONFIG", "s"), {"overrideRuleSet": True}),
        Entry(Key("SCHEMA", 7), None),  # type: ignore[arg-type]  # as a bug could make it
    ],
    ids=lambda entry: f"{entry.key.kind}-{str(entry.value)[-20:]}",
)
def test_the_records_behind_it_count(bad: Entry) -> None:
    store = Store(ClientOptions("127.0.0.1:1"), StoreOptions())
    noop = noop_entry({".": 7})
    replay: Replay[Key, Value, int] = Replay(store)
    replay.take([Change(0, bad.key, bad.value), Change(1, noop.key, noop.value)], 2)
    assert replay.next_offset == 2
    assert store.state.next_id(".") == 8
    assert not store.state.subjects
    assert not store.state.configs


def test_ids_end_where_clients_cannot_write_them() -> None:
    state = State()
    state.replay(noop_entry({".": INT_MAX}))
    wanted = Wanted(Content(AVRO, '"string"'))
    with pytest.raises(RegistryError, match="used all ids"):
        decide_register(state, Library(state), parse_subject("s"), wanted)
