"""Client telemetry: who is asked for which metrics, and who pushes out of turn."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from barnabas.cores.telemetry import INSTANCES_MAX, Client, Subscription, TelemetryCore
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import ZERO_UUID

INTERVAL_MS = 10_000
ZSTD = 4


def client(number: int = 1, client_id: str = "orders-1", software: str = "librdkafka") -> Client:
    return Client(UUID(int=number), client_id, software, "2.16.0", "10.0.0.7", 50_000)


def wants(*metrics: str, interval_ms: int = INTERVAL_MS, **match: str) -> Subscription:
    return Subscription(metrics, interval_ms, {key: re.compile(text) for key, text in match.items()})


def core(*subscriptions: Subscription) -> TelemetryCore:
    return TelemetryCore(1000, subscriptions or (wants("*"),))


def refusal(call: object) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        call()  # type: ignore[operator]
    return error.value.code


def push(
    of: TelemetryCore, at_ms: int, number: int = 1, *, subscription: int | None = None, compression: int = ZSTD,
    size_bytes: int = 1000, terminating: bool = False,
) -> None:  # fmt: skip
    one = client(number)
    wanted = of.wanted(one).subscription_id if subscription is None else subscription
    of.push(one, wanted, compression, size_bytes, at_ms, terminating=terminating)


def test_all_expressions_must_match_all_of_a_value() -> None:
    subscriptions = core(
        wants("a.", client_id="orders-.*", client_software_name="librdkafka"),
        wants("b.", interval_ms=5000, client_id="orders-[0-9]"),
        wants("c.", client_id="orders"),
        wants("d.", client_source_address=r"10\.0\..*", client_source_port="50000"),
    )
    assert subscriptions.wanted(client()).metrics == ("a.", "b.", "d.")
    assert subscriptions.wanted(client()).interval_ms == 5000
    assert subscriptions.wanted(client(client_id="other")).metrics == ("d.",)


def test_nobody_is_asked_for_anything_without_a_subscription() -> None:
    nothing = TelemetryCore(1000).wanted(client())
    assert (nothing.metrics, nothing.interval_ms) == ((), 300_000)


def test_one_that_wants_all_makes_the_others_needless() -> None:
    assert core(wants("a."), wants("*")).wanted(client()).metrics == ("*",)


def test_the_subscription_id_changes_with_what_is_wanted_and_survives_a_restart() -> None:
    before = core(wants("a.")).wanted(client())
    assert core(wants("a.")).wanted(client()) == before
    assert core(wants("a.", "b.")).wanted(client()).subscription_id != before.subscription_id
    assert core(wants("a.", interval_ms=1000)).wanted(client()).subscription_id != before.subscription_id


def test_a_client_keeps_to_its_interval() -> None:
    known = core()
    known.subscribe(client(), 0)
    push(known, 1)  # the first may come at once
    assert refusal(lambda: push(known, INTERVAL_MS)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    push(known, INTERVAL_MS + 1)
    assert refusal(lambda: known.subscribe(client(), INTERVAL_MS + 2)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    known.subscribe(client(), 2 * INTERVAL_MS + 1)


def test_a_client_says_good_bye_out_of_turn_and_only_once() -> None:
    known = core()
    known.subscribe(client(), 0)
    push(known, 1)
    push(known, 2, terminating=True)
    assert refusal(lambda: push(known, 3 * INTERVAL_MS)) == ErrorCode.INVALID_REQUEST


def test_a_changed_subscription_is_asked_for_at_once() -> None:
    known = core()
    old = known.subscribe(client(), 0).subscription_id
    push(known, 1)
    known.configure((wants("a."),))
    at_ms = INTERVAL_MS + 1
    assert refusal(lambda: push(known, at_ms, subscription=old)) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert known.subscribe(client(), at_ms + 1).metrics == ("a.",)
    push(known, at_ms + 2)


def test_what_a_push_may_not_be() -> None:
    known = core()
    assert refusal(lambda: push(known, 0, number=ZERO_UUID.int)) == ErrorCode.INVALID_REQUEST
    assert refusal(lambda: push(known, 0, compression=9)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refusal(lambda: push(known, INTERVAL_MS, size_bytes=1001)) == ErrorCode.TELEMETRY_TOO_LARGE
    push(known, 2 * INTERVAL_MS, compression=0)


def test_a_client_of_before_a_restart_goes_on() -> None:
    wanted = core().subscribe(client(), 0)
    push(core(), 5, subscription=wanted.subscription_id)


def test_silent_clients_are_forgotten_and_there_are_never_too_many() -> None:
    known = core()
    for number in range(1, INSTANCES_MAX + 3):
        known.subscribe(client(number), 0)
    assert len(known.instances) == INSTANCES_MAX
    assert known.expire(3 * INTERVAL_MS) == []
    assert len(known.expire(3 * INTERVAL_MS + 1)) == INSTANCES_MAX
