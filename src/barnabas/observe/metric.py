"""What a metric is: its names in Kafka and in Prometheus, its unit and its meaning; and its values."""

from __future__ import annotations

import re
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

PERCENTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
PERCENTILE_NAMES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""As the JMX exporter's configuration for Kafka writes the label `quantile`."""


@dataclass(frozen=True, eq=False, slots=True)
class Metric:
    """One metric, declared once: it equals only itself, so that tables of metrics compare no texts.

    mbean, attribute: Kafka's names; {label} stands for the value of a label. name: Prometheus's, which ends with _total for
    a number that only grows.
    unit: of the value. labels: their names. has_parts: its samples are distributions: percentiles with a count and a sum.
    """

    mbean: str
    attribute: str
    name: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    has_parts: bool = False

    @property
    def only_grows(self) -> bool:
        """Whether it counts something since the start."""
        return self.name.endswith("_total")

    def mbean_of(self, labels: tuple[str, ...]) -> str:
        """The name of the MBean with these values of the labels; properties whose value is empty are left out, as Kafka does
        for the sum of all topics."""
        name = self.mbean
        for label, value in zip(self.labels, labels, strict=True):
            if value:
                name = name.replace(f"{{{label}}}", quoted(value))
            else:
                name = re.sub(rf",[^,={{}}]+=\{{{label}\}}", "", name)
        return name


class Distribution(NamedTuple):
    """How many values there were, and how large. quantiles: of the recent ones, in the order of PERCENTILES; low, high: the
    extremes of these."""

    number: float
    sum: float
    quantiles: tuple[float, ...]
    low: float = 0.0
    high: float = 0.0


class Sample(NamedTuple):
    """A value of a metric now. labels: their values. parts: for a metric that has parts, whose `value` is their count."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()
    parts: Distribution | None = None


class Measure(Protocol):
    """Asks a broker for its numbers, from another thread than the broker's. node_id: the broker's. started_s: when the
    numbers began, as time.monotonic says it."""

    node_id: int
    started_s: float

    def __call__(self) -> Future[list[Sample]]:
        """The values of its metrics."""

    def slow(self) -> list[dict[str, Any]]:
        """Its last slow requests with the parts of their time, the newest last (see runtime/slow.py)."""


def quoted(value: str) -> str:
    """The value of a property of an MBean's name: in quotation marks if it has characters with a meaning there, as Java's
    ObjectName.quote writes it."""
    if not re.search(r'[,=:*?"\n\\]', value):
        return value
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return '"' + re.sub(r'([*?"])', r"\\\1", escaped) + '"'
