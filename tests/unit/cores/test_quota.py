"""Quotas: who is limited, what counts, how long to wait."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cores.quota import Quota, QuotaCore, RateWindows, TokenBucket, Use
from barnabas.cores.quota_entities import (
    Component,
    Match,
    QuotaTable,
    altered_quotas,
    config_entity,
    entity_config,
    matching_quotas,
)
from barnabas.wire.errors import ApiError, ErrorCode

START_MS = 1_700_000_000_000


def core(**limits: dict[str, str]) -> QuotaCore:
    """limits: clients="..." style: entity path with __ for / -> texts."""
    quotas = QuotaCore()
    quotas.configure({tuple(path.split("__", 1)): texts for path, texts in limits.items()})  # type: ignore[misc]
    return quotas


def test_nobody_waits_without_a_quota() -> None:
    quotas = QuotaCore()
    assert not quotas.limits(Quota.PRODUCE)
    assert quotas.record(Use(Quota.PRODUCE, 1e12, START_MS, "u", "c")) == 0
    assert quotas.tracked() == 0


def test_a_client_over_its_rate_waits_until_the_average_is_right() -> None:
    """10 s count: 11 windows, the current one not full. 2,000 bytes in no time at 100/s: 200/s observed."""
    quotas = core(clients__c={"producer_byte_rate": "100"})
    assert quotas.record(Use(Quota.PRODUCE, 1000, START_MS, "u", "c")) == 0
    assert quotas.record(Use(Quota.PRODUCE, 1000, START_MS, "u", "c")) == 10_000
    assert quotas.record(Use(Quota.PRODUCE, 1000, START_MS, "u", "other")) == 0
    assert quotas.rate(Use(Quota.PRODUCE, 0, START_MS, "u", "c")) == 200.0


def test_uses_are_forgotten_after_all_windows_have_passed() -> None:
    quotas = core(clients__c={"producer_byte_rate": "100"})
    assert quotas.record(Use(Quota.PRODUCE, 5000, START_MS, client_id="c")) > 0
    assert quotas.record(Use(Quota.PRODUCE, 1, START_MS + 10_999, client_id="c")) > 0
    assert quotas.record(Use(Quota.PRODUCE, 1, START_MS + 11_000, client_id="c")) == 0


def test_request_time_makes_nobody_wait_longer_than_a_window() -> None:
    quotas = core(clients__c={"request_percentage": "1"})
    assert quotas.record(Use(Quota.REQUEST, 100_000, START_MS, client_id="c")) == 1000


def test_a_fetch_that_was_answered_empty_does_not_count() -> None:
    quotas = core(clients__c={"consumer_byte_rate": "100"})
    fetched = Use(Quota.FETCH, 5000, START_MS, client_id="c")
    assert quotas.record(fetched) > 0
    quotas.unrecord(fetched)
    assert quotas.rate(fetched) == 0
    assert quotas.record(Use(Quota.FETCH, 900, START_MS, client_id="c")) == 0


def test_topic_changes_may_come_in_bursts() -> None:
    quotas = core(clients__c={"controller_mutation_rate": "2"})
    use = Use(Quota.MUTATION, 22, START_MS, client_id="c")
    assert quotas.record(use) == 0
    assert quotas.exhausted_ms(use) == 0
    assert quotas.record(Use(Quota.MUTATION, 10, START_MS, client_id="c")) == 5000
    assert quotas.exhausted_ms(use) == 5000
    later = Use(Quota.MUTATION, 1, START_MS + 5000, client_id="c")
    assert quotas.exhausted_ms(later) == 0


def test_connections_are_limited_by_address() -> None:
    quotas = core(
        **{
            "ips__10.0.0.1": {"connection_creation_rate": "1"},
            "ips__<default>": {"connection_creation_rate": "5"},
        }
    )
    for _ in range(10):
        assert quotas.record(Use(Quota.CONNECTION, 1, START_MS, ip="10.0.0.1")) == 0
    assert quotas.record(Use(Quota.CONNECTION, 1, START_MS, ip="10.0.0.1")) == 1000
    assert quotas.record(Use(Quota.CONNECTION, 1, START_MS, ip="10.0.0.2")) == 0
    nothing = core(**{"ips__10.0.0.1": {"connection_creation_rate": "0"}})
    assert nothing.record(Use(Quota.CONNECTION, 1, START_MS, ip="10.0.0.1")) == 1000


PRECEDENCE = [
    "users__u/clients/c",
    "users__u/clients/<default>",
    "users__u",
    "users__<default>/clients/c",
    "users__<default>/clients/<default>",
    "users__<default>",
    "clients__c",
    "clients__<default>",
]
OWNERS = [("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c")]


@given(st.sets(st.sampled_from(PRECEDENCE)))
def test_the_most_precise_entity_counts(present: set[str]) -> None:
    configs = {
        tuple(path.split("__")): {"producer_byte_rate": str(rank)}
        for rank, path in enumerate(PRECEDENCE)
        if path in present
    }
    limit = QuotaTable(configs).find("producer_byte_rate", "u", "c")  # type: ignore[arg-type]
    if not present:
        assert limit is None
        return
    best = min(PRECEDENCE.index(path) for path in present)
    assert limit is not None
    assert (limit.rate, limit.owner) == (best, OWNERS[best])


def test_an_entity_without_this_quota_is_passed_over() -> None:
    table = QuotaTable(
        {("users", "u"): {"consumer_byte_rate": "1"}, ("clients", "c"): {"producer_byte_rate": "2"}}
    )
    limit = table.find("producer_byte_rate", "u", "c")
    assert limit is not None
    assert limit.rate == 2


events = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10_000)), max_size=60)


@given(events, st.integers(1, 5000))
def test_who_waits_as_told_stays_near_the_rate(steps: list[tuple[int, int]], rate: int) -> None:
    """A client that obeys never uses more, over its whole life, than rate * time + burst + one request."""
    quotas = core(clients__c={"producer_byte_rate": str(rate)})
    now_ms, used, largest = START_MS, 0, 0
    for pause_ms, amount in steps:
        now_ms += pause_ms
        now_ms += quotas.record(Use(Quota.PRODUCE, amount, now_ms, client_id="c"))
        used, largest = used + amount, max(largest, amount)
    elapsed_s = (now_ms - START_MS) / 1000
    # Windows drop out whole: up to the span of all of them may be used again at once.
    assert used <= 2 * rate * (elapsed_s + 22) + 2 * largest + 1


@given(events)
def test_the_total_is_that_of_the_windows_that_count(steps: list[tuple[int, int]]) -> None:
    windows = RateWindows(3, 1000)
    now_ms = START_MS
    added: list[tuple[int, int]] = []
    starts: list[int] = []
    for pause_ms, amount in steps:
        now_ms += pause_ms
        windows.add(amount, now_ms)
        starts = [start for start in starts if now_ms - start < 3000]
        if not starts or now_ms - starts[-1] >= 1000:
            starts.append(now_ms)
        added.append((starts[-1], amount))
        expected = sum(amount for start, amount in added if now_ms - start < 3000)
        assert windows.rate(now_ms) * windows.elapsed_ms(now_ms) / 1000 == pytest.approx(expected)
        assert 2000 <= windows.elapsed_ms(now_ms) < 4000


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 50)), max_size=40), st.integers(1, 20))
def test_a_bucket_never_gives_more_than_burst_and_refill(steps: list[tuple[int, int]], rate: int) -> None:
    bucket = TokenBucket(11.0)
    now_ms, used = START_MS, 0
    for pause_ms, amount in steps:
        now_ms += pause_ms
        if bucket.tokens(rate, now_ms) >= amount:
            bucket.spend(amount, rate, now_ms)
            used += amount
        assert used <= rate * 11 + rate * (now_ms - START_MS) / 1000 + 1e-6


@given(events, st.sampled_from([Quota.PRODUCE, Quota.MUTATION]))
def test_forgetting_silent_clients_changes_no_answer(steps: list[tuple[int, int]], quota: Quota) -> None:
    one = core(clients__c={quota.value: "50"})
    two = core(clients__c={quota.value: "50"})
    now_ms = START_MS
    for pause_ms, amount in steps:
        now_ms += pause_ms * 5
        use = Use(quota, amount, now_ms, client_id="c")
        two.expire(now_ms)
        assert one.record(use) == two.record(use)
    two.expire(now_ms + 10_000_000)
    assert two.tracked() == 0


@given(events)
def test_the_same_calls_give_the_same_answers(steps: list[tuple[int, int]]) -> None:
    def run() -> list[int]:
        quotas = core(clients__c={"producer_byte_rate": "77"})
        times = itertools.accumulate((pause for pause, _ in steps), initial=START_MS)
        return [
            quotas.record(Use(Quota.PRODUCE, amount, now, client_id="c"))
            for now, (_, amount) in zip(times, steps, strict=False)
        ]

    assert run() == run()


names = st.none() | st.text(min_size=1)


@given(st.fixed_dictionaries({}, optional={"user": names, "client-id": names}).filter(bool))
def test_entities_are_found_again(entity: dict[str, str | None]) -> None:
    assert config_entity(entity_config(entity)) == entity


def test_entities_have_kafka_s_paths() -> None:
    assert entity_config({"user": "a b", "client-id": None}) == ("users", "a%20b/clients/<default>")
    assert entity_config({"client-id": "<default>"}) == ("clients", "%3Cdefault%3E")
    assert entity_config({"ip": "::1"}) == ("ips", "%3A%3A1")
    assert config_entity(("topics", "t")) is None


@pytest.mark.parametrize(
    "entity",
    [{}, {"host": "x"}, {"user": ""}, {"ip": "10.0.0.1", "user": "u"}, {"ip": "ten"}],
)
def test_bad_entities(entity: dict[str, str | None]) -> None:
    with pytest.raises(ApiError) as error:
        entity_config(entity)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_altering() -> None:
    user = {"user": "u"}
    current = {"SCRAM-SHA-256": "secret", "consumer_byte_rate": "5.0"}
    texts = altered_quotas(user, current, [("producer_byte_rate", 1024), ("consumer_byte_rate", None)])
    assert texts == {"SCRAM-SHA-256": "secret", "producer_byte_rate": "1024.0"}
    assert altered_quotas({"ip": None}, {}, [("connection_creation_rate", 0)]) == {
        "connection_creation_rate": "0.0"
    }
    for entity, key, value in (
        (user, "connection_creation_rate", 1.0),
        (user, "nope", 1.0),
        ({"ip": None}, "producer_byte_rate", 1.0),
        (user, "producer_byte_rate", 0.0),
        (user, "producer_byte_rate", -1.0),
        (user, "producer_byte_rate", 1.5),
        (user, "request_percentage", float("nan")),
        (user, "request_percentage", float("inf")),
    ):
        with pytest.raises(ApiError) as error:
            altered_quotas(entity, {}, [(key, value)])
        assert error.value.code == ErrorCode.INVALID_REQUEST


def test_describing() -> None:
    rate = {"producer_byte_rate": "1.0"}
    configs = {
        ("users", "u"): rate,
        ("users", "<default>"): rate,
        ("users", "u/clients/c"): rate,
        ("clients", "c"): rate,
        ("ips", "10.0.0.1"): {"connection_creation_rate": "2.0"},
        ("users", "scram"): {"SCRAM-SHA-256": "secret"},
        ("topics", "t"): {"retention.ms": "1"},
    }

    def described(*components: Component, strict: bool = False) -> list[dict[str, str | None]]:
        return [entity for entity, _ in matching_quotas(configs, components, strict=strict)]

    assert len(described()) == 5
    assert described(strict=True) == []
    assert described(Component("user", Match.EXACT, "u")) == [{"user": "u"}, {"user": "u", "client-id": "c"}]
    assert described(Component("user", Match.EXACT, "u"), strict=True) == [{"user": "u"}]
    assert described(Component("user", Match.DEFAULT)) == [{"user": None}]
    assert described(Component("client-id", Match.ANY), strict=True) == [{"client-id": "c"}]
    assert described(Component("ip", Match.ANY)) == [{"ip": "10.0.0.1"}]
    for components in (
        (Component("user", 9),),
        (Component("user", Match.EXACT),),
        (Component("user", Match.ANY), Component("user", Match.ANY)),
        (Component("ip", Match.ANY), Component("user", Match.ANY)),
        (Component("group", Match.ANY),),
    ):
        with pytest.raises(ApiError):
            described(*components)
