"""What MirrorMaker 2 measures of itself, under Kafka's names. No I/O.

Source: Kafka's MirrorSourceMetrics, MirrorCheckpointMetrics. Those of Prometheus are as its JMX exporter writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from barnabas.observe.metric import Metric, Sample

WINDOW_S: Final = 30.0
PARTITION: Final = ("source", "target", "topic", "partition")
GROUP: Final = ("source", "target", "group", "topic", "partition")
STATISTICS: Final = {"": "the last one", "-min": "the least", "-max": "the most", "-avg": "the average"}


def _kafkas(connector: str, attribute: str, unit: str, help: str, labels: tuple[str, ...]) -> Metric:
    properties = ",".join(f"{label}={{{label}}}" for label in labels)
    name = f"kafka_connect_mirror_{connector.lower()}_{attribute.replace('-', '_')}"
    return Metric(f"kafka.connect.mirror:type={connector},{properties}", attribute, name, unit, help, labels)


def _spread(connector: str, attribute: str, help: str, labels: tuple[str, ...]) -> tuple[Metric, ...]:
    return tuple(
        _kafkas(
            connector, attribute + suffix, "ms", f"{help} {which[0].upper()}{which[1:]} of a minute.", labels
        )
        for suffix, which in STATISTICS.items()
    )


def _own(name: str, unit: str, help: str) -> Metric:
    properties = ",".join(f"{label}={{{label}}}" for label in PARTITION)
    return Metric(
        f"barnabas.mirror:type=mirror,name={name},{properties}",
        "Value",
        f"barnabas_mirror_{name}",
        unit,
        help,
        PARTITION,
    )


_SOURCE: Final = "MirrorSourceConnector"
COUNT: Final = _kafkas(_SOURCE, "record-count", "records", "Records that were copied.", PARTITION)
BYTES: Final = _kafkas(_SOURCE, "byte-count", "bytes", "Size of the values that were read.", PARTITION)
AGES: Final = _spread(_SOURCE, "record-age-ms", "Age of records when they are read.", PARTITION)
LATENCIES: Final = _spread(
    _SOURCE, "replication-latency-ms", "Age of records when they are in the target.", PARTITION
)
CHECKPOINTS: Final = _spread(
    "MirrorCheckpointConnector", "checkpoint-latency-ms", "Age of checkpoints when they are written.", GROUP
)
LAG: Final = _own("lag_records", "records", "Offsets of the source that are not copied yet.")
LAG_S: Final = _own("lag_seconds", "s", "Age of the newest copied record while there are newer ones.")
MISSED: Final = _own(
    "missed_total", "offsets", "Offsets that were deleted in the source before they were copied."
)
METRICS: Final = (COUNT, BYTES, *AGES, *LATENCIES, *CHECKPOINTS, LAG, LAG_S, MISSED)


@dataclass(slots=True)
class Spread:
    """Values of this window and of the one before."""

    last: int = 0
    lo: int = 0
    hi: int = 0
    total: int = 0
    count: int = 0
    _before: tuple[int, int, int, int] = (0, 0, 0, 0)
    _until_s: float = 0.0

    def note(self, value: int) -> None:
        """Another value."""
        self.last = value
        if not self.count or value < self.lo:
            self.lo = value
        if not self.count or value > self.hi:
            self.hi = value
        self.total += value
        self.count += 1

    def turn(self, now_s: float) -> None:
        """Begins the next window when it is time. now_s: of the monotonic clock."""
        if now_s < self._until_s:
            return
        fresh = now_s < self._until_s + WINDOW_S
        self._before = (self.lo, self.hi, self.total, self.count) if fresh else (0, 0, 0, 0)
        self.lo = self.hi = self.total = self.count = 0
        self._until_s = now_s + WINDOW_S

    def samples(self, metrics: tuple[Metric, ...], labels: tuple[str, ...]) -> Iterator[Sample]:
        """Nothing without values."""
        parts = [part for part in ((self.lo, self.hi, self.total, self.count), self._before) if part[3]]
        if not parts:
            return
        average = sum(part[2] for part in parts) / sum(part[3] for part in parts)
        values = (self.last, min(part[0] for part in parts), max(part[1] for part in parts), average)
        for metric, value in zip(metrics, values, strict=True):
            yield Sample(metric, value, labels)


@dataclass(slots=True)
class Copied:
    """One partition of a source. position: where copying goes on; end: of the source as it last said, -1 before that;
    reached_ms: the timestamp of the newest record that was read, -1 before. missed: offsets."""

    labels: tuple[str, ...]
    count: int = 0
    bytes: int = 0
    ages: Spread = field(default_factory=Spread)
    latencies: Spread = field(default_factory=Spread)
    position: int = -1
    end: int = -1
    reached_ms: int = -1
    missed: int = 0

    @property
    def lag(self) -> int:
        """How many offsets are not read yet; -1 while that is unknown."""
        return -1 if min(self.position, self.end) < 0 else max(self.end - self.position, 0)

    def turn(self, now_s: float) -> None:
        """See Spread."""
        self.ages.turn(now_s)
        self.latencies.turn(now_s)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """As Kafka's beans have them, and how far it is behind."""
        labels = self.labels
        yield Sample(COUNT, self.count, labels)
        yield Sample(BYTES, self.bytes, labels)
        yield from self.ages.samples(AGES, labels)
        yield from self.latencies.samples(LATENCIES, labels)
        yield Sample(MISSED, self.missed, labels)
        lag = self.lag
        if lag >= 0:
            yield Sample(LAG, lag, labels)
        if lag == 0 or (lag > 0 and self.reached_ms >= 0):
            yield Sample(LAG_S, max(now_ms - self.reached_ms, 0) / 1000 if lag else 0.0, labels)
