"""Measuring: producing at a rate, consuming, and from send to receive; for kafka-*-perf-test and `barnabas perf`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MEGABYTE: Final = 1024 * 1024
BATCH_RECORDS: Final = 2000
WINDOW_SECONDS: Final = 5.0


@dataclass(slots=True)
class Latencies:
    """Milliseconds from send to acknowledgement; of `keep_every` values one is kept."""

    keep_every: int = 1
    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    kept: list[float] = field(default_factory=list)

    def add(self, latency_ms: float) -> None:
        """Note a latency."""
        if self.count % self.keep_every == 0:
            self.kept.append(latency_ms)
        self.count += 1
        self.total_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)

    @property
    def average_ms(self) -> float:
        """Mean; 0 when there is none."""
        return self.total_ms / self.count if self.count else 0.0

    def percentiles(self, wanted: Sequence[float]) -> list[float]:
        """The latencies at these fractions, of those that were kept."""
        ordered = sorted(self.kept)
        return [
            ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] if ordered else 0.0
            for fraction in wanted
        ]


@dataclass(slots=True)
class ProduceRun:
    """One measured producer."""

    producer: Any
    topic: str
    payloads: Sequence[bytes]
    count: int
    rate: float
    """Records a second; 0 or below for as fast as possible."""
    latencies: Latencies = field(default_factory=Latencies)
    failed: int = 0
    bytes: int = 0
    began: float = 0.0

    def run(self, report: Any = None) -> float:
        """Send everything and wait for it; seconds. report(run, count, latencies, seconds): every five seconds."""
        self.latencies.keep_every = max(1, self.count // 500_000)
        self.began = window_began = time.perf_counter()
        window = Latencies(self.latencies.keep_every)
        sent = 0
        while sent < self.count:
            allowed = self.allowance(sent)
            if allowed == 0:
                self.producer.poll(0.001)
                continue
            batch = min(BATCH_RECORDS, self.count - sent, allowed)
            self.send(sent, batch, window)
            sent += batch
            now = time.perf_counter()
            if report is not None and now - window_began >= WINDOW_SECONDS and window.count:
                report(window, now - window_began)
                window, window_began = Latencies(self.latencies.keep_every), now
        while self.producer.flush(0.5):
            pass
        return time.perf_counter() - self.began

    def allowance(self, sent: int) -> int:
        """How many records the rate allows to send now."""
        if self.rate <= 0:
            return BATCH_RECORDS
        return max(0, int((time.perf_counter() - self.began) * self.rate) + 1 - sent)

    def send(self, first: int, count: int, window: Latencies) -> None:
        """One batch; its acknowledgements carry the time of their own send."""
        sent_at = time.perf_counter()
        both = (self.latencies, window)

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                self.failed += 1
                return
            latency_ms = (time.perf_counter() - sent_at) * 1000
            for latencies in both:
                latencies.add(latency_ms)

        payloads = self.payloads
        waiting = [{"value": payloads[(first + i) % len(payloads)]} for i in range(count)]
        self.bytes += sum(len(record["value"]) for record in waiting)
        while waiting:
            self.producer.produce_batch(self.topic, waiting, on_delivery=delivered)
            waiting = [record for record in waiting if record.pop("_error", None) is not None]
            self.producer.poll(0.01 if waiting else 0)


@dataclass(slots=True)
class ConsumeRun:
    """One measured consumer, in a group of its own."""

    consumer: Any
    topic: str
    count: int
    timeout_s: float
    messages: int = 0
    bytes: int = 0
    assigned_at: float = 0.0

    def run(self) -> tuple[float, float]:
        """Read `count` records, or until nothing comes; seconds of joining and of fetching."""
        began = last = time.perf_counter()

        def assigned(_consumer: Any, _parts: Any) -> None:
            self.assigned_at = self.assigned_at or time.perf_counter()

        self.consumer.subscribe([self.topic], on_assign=assigned)
        while self.messages < self.count and time.perf_counter() - last < self.timeout_s:
            messages = self.consumer.consume(min(BATCH_RECORDS * 5, self.count - self.messages), 0)
            messages = messages or self.consumer.consume(1, 0.1)
            good = [message for message in messages if message.error() is None]
            if good:
                last = time.perf_counter()
                self.messages += len(good)
                self.bytes += sum(len(message.value() or b"") + len(message.key() or b"") for message in good)
        joining = max(self.assigned_at - began, 0.0)
        return joining, max(last - began - joining, 1e-9)
