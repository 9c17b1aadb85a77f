"""`barnabas verify transactions` ends, or says what it waits for, whatever call of librdkafka does not come back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.terminal.errors import CliError, UsageError
from barnabas.verify import transactions as verify_transactions
from barnabas.verify.transactions import Run, Verified

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "too slow", False, True, False))


class Lazy:
    """A cluster of one empty partition in which some calls, once the writing is over, hang or fail."""

    def __init__(self) -> None:
        self.hangs: set[str] = set()
        self.raises: dict[str, Exception] = {}
        self.is_over = threading.Event()
        self.released = threading.Event()
        self.is_hanging = threading.Event()

    @contextlib.contextmanager
    def administering(self, *_: Any) -> Iterator[Any]:
        topics = {"shop": SimpleNamespace(partitions=[SimpleNamespace(number=0)])}
        yield SimpleNamespace(topics=SimpleNamespace(list=lambda: topics))

    def consumer(self, settings: dict[str, Any]) -> Any:
        self.call("consumer")
        return Client(self)

    def producer(self, settings: dict[str, Any]) -> Any:
        self.call("producer")
        return Client(self)

    def call(self, name: str) -> None:
        if self.is_over.is_set():
            if name in self.hangs:
                self.is_hanging.set()
                self.released.wait()
            if name in self.raises:
                raise self.raises[name]


class Client:
    """A producer or a consumer."""

    def __init__(self, cluster: Lazy) -> None:
        self.cluster = cluster

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            self.cluster.call(name)
            return {"get_watermark_offsets": (0, 0)}.get(name)

        return call

    def commit_transaction(self, timeout_s: float) -> None:
        self.cluster.call("commit_transaction")
        time.sleep(0.01)

    def poll(self, timeout_s: float) -> Any:
        self.cluster.call("poll")
        time.sleep(min(timeout_s, 0.01))
        if "end" in self.cluster.hangs:
            return None
        end = KafkaError(KafkaError._PARTITION_EOF)
        return SimpleNamespace(topic=lambda: "shop", partition=lambda: 0, error=lambda: end)

    def committed(self, partitions: Any, timeout: float) -> Any:
        self.cluster.call("committed")
        return [SimpleNamespace(offset=1 << 40, error=None)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lazy]:
    monkeypatch.setattr(verify_transactions, "END_S", 0.4)
    monkeypatch.setattr(verify_transactions, "GRACE_S", 0.4)
    monkeypatch.setattr(verify_transactions, "PAUSE_S", 0.01)
    monkeypatch.setattr(verify_transactions, "OVERTAKEN_SHARE", 0.0)
    monkeypatch.setattr(verify_transactions, "ABORTED_SHARE", 0.0)
    cluster = Lazy()
    monkeypatch.setattr(verify_transactions, "administering", cluster.administering)
    yield cluster
    cluster.released.set()


def verify(cluster: Lazy, *, first_hang: bool = False) -> Verified:
    """first_hang: the writing ends when a call hangs already."""
    run = Run(cluster, ["shop"], writers=1, seed=1)  # type: ignore[arg-type]
    run.start()
    give_up = time.monotonic() + 60
    while not run.history.txns:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    cluster.is_over.set()
    if first_hang:
        assert cluster.is_hanging.wait(60)
    try:
        return run.finish()
    finally:
        cluster.released.set()
        for worker in (*run.writers, run.reader):
            worker.join(60)
            assert not worker.is_alive()


@pytest.mark.parametrize(
    ("name", "waited_for"),
    [
        ("commit_transaction", "writer 0 has not ended .* it waits for a commit"),
        ("init_transactions", "writer 0 .* it waits for a producer to begin with its transactional id"),
        ("get_watermark_offsets", "the reader .* it waits for the ends of what is stable"),
        ("close", "writer 0 .* it waits for its consumer's close"),
        ("committed", "the reader of offsets .* the committed offset of group verify-.*-writer-0"),
        ("end", "not read to the end within 0 s: shop-0 after offset -1"),
    ],
)
def test_a_call_that_does_not_return(
    cluster: Lazy, monkeypatch: pytest.MonkeyPatch, name: str, waited_for: str
) -> None:
    if name == "get_watermark_offsets":
        monkeypatch.setattr(verify_transactions, "LOOK_S", 0.0)
    cluster.hangs.add(name)
    with pytest.raises(CliError, match=waited_for):
        verify(cluster, first_hang=name in ("commit_transaction", "get_watermark_offsets"))


def test_a_transactional_id_that_nobody_may_begin_with(cluster: Lazy) -> None:
    cluster.raises["init_transactions"] = TIMED_OUT
    with pytest.raises(CliError, match="the last transaction of writer 0 was not ended: too slow"):
        verify(cluster)


def test_a_cluster_that_is_gone_at_the_end(cluster: Lazy) -> None:
    cluster.raises["consumer"] = CliError("no broker answers at shop:9092")
    with pytest.raises(CliError, match="no broker answers"):
        verify(cluster)


def test_a_producer_that_cannot_be_configured_ends_the_run_at_once(cluster: Lazy) -> None:
    cluster.is_over.set()
    cluster.raises["producer"] = UsageError("librdkafka refuses the configuration: acks")
    run = Run(cluster, ["shop"], writers=1, seed=1)  # type: ignore[arg-type]
    run.start()
    assert run.over.wait(60)
    with pytest.raises(UsageError, match="refuses the configuration"):
        run.finish()


def test_brokers_that_come_back_are_waited_for(cluster: Lazy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers and readers find no broker for a while; nothing of that is an error in the end."""
    monkeypatch.setattr(verify_transactions, "END_S", 60.0)
    for name in ("consumer", "producer", "init_transactions"):
        cluster.raises[name] = CliError("no broker answers") if name != "init_transactions" else TIMED_OUT
    timer = threading.Timer(0.3, cluster.raises.clear)
    timer.start()
    verified = verify(cluster)
    timer.join()
    assert [violation.rule for violation in verified.violations] == []
    assert verified.transactions["committed"] > 0
