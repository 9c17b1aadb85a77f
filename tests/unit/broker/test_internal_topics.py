"""How many replicas of an internal topic have to have a record before it counts."""

from __future__ import annotations

import pytest

from barnabas.broker.cluster.internal_topics import (
    INTERNAL,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
    creation,
)
from barnabas.config.loader import load

FACTOR, MIN_ISR = "transaction.state.log.replication.factor", "transaction.state.log.min.isr"


def min_in_sync(brokers: int, **options: str) -> str:
    texts = {"node.id": "1", "log.dirs": "x", "zookeeper.connect": "zoo:2181"}
    texts |= {name.replace("__", "."): text for name, text in options.items()}
    configs = creation(load(overrides=texts), TRANSACTION_TOPIC, brokers)[2]
    return str(configs["min.insync.replicas"])


@pytest.mark.parametrize(("brokers", "wanted"), [(1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_what_nobody_has_set_survives_the_loss_of_a_broker(brokers: int, wanted: str) -> None:
    assert min_in_sync(brokers) == wanted


@pytest.mark.parametrize(
    ("brokers", "factor", "asked", "wanted"), [(3, "3", "3", "3"), (3, "3", "1", "1"), (3, "2", "3", "2")]
)
def test_what_is_set_holds_as_far_as_there_are_replicas(
    brokers: int, factor: str, asked: str, wanted: str
) -> None:
    assert min_in_sync(brokers, **{FACTOR: factor, MIN_ISR: asked}) == wanted


def test_offsets_have_no_option_of_their_own() -> None:
    assert INTERNAL[OFFSETS_TOPIC].min_in_sync is None
    assert INTERNAL[SHARE_STATE_TOPIC].min_in_sync is not None
