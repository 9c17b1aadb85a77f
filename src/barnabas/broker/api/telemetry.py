"""Metrics that clients push about themselves (KIP-714): subscriptions, and the newest values for display.

Metrics arrive as OTLP, read by the library opentelemetry-proto, an extra of the installation. Without it nothing can
receive metrics, and like a Kafka broker without a receiver, this one does not announce the two APIs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from barnabas.config import broker_metrics, client_options
from barnabas.cores.telemetry import Client, Subscription, TelemetryCore
from barnabas.records.compression import Codec, CompressionError, decompress
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.telemetry")

KIND: Final = "client-metrics"
"""Where subscriptions are stored under /config."""
APIS: Final = frozenset({71, 72})
UNPACKED_BYTES_MAX: Final = 16 << 20
VALUES_BYTES_MAX: Final = 1 << 20
"""Per client."""
ALL_VALUES_BYTES_MAX: Final = 64 << 20
SERIES_BYTES: Final = 200
"""Approximate memory of a series in addition to its texts."""
DELTA: Final = 1
LOUD: Final = "rdkafka"


def can_receive() -> bool:
    """Whether the library that reads pushed metrics is installed."""
    try:
        return importlib.util.find_spec("opentelemetry.proto.metrics.v1") is not None
    except ModuleNotFoundError:
        return False


Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One value of a push. is_delta: the change since the previous push."""

    name: str
    labels: Labels
    value: float
    is_delta: bool


@dataclass(slots=True)
class Values:
    """The newest values of one client. Deltas are summed up."""

    client: Client
    received_ms: int = 0
    pushes: int = 0
    size_bytes: int = 0
    series: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def take(self, points: list[Point], now_ms: int) -> None:
        """Store one push of a client; now_ms: when it arrived."""
        self.received_ms = now_ms
        self.pushes += 1
        for point in points:
            key = point.name, point.labels
            before = self.series.get(key)
            if before is None:
                texts_bytes = len(point.name) + sum(len(name) + len(text) for name, text in point.labels)
                if self.size_bytes + texts_bytes + SERIES_BYTES > VALUES_BYTES_MAX:
                    continue
                self.size_bytes += texts_bytes + SERIES_BYTES
            self.series[key] = point.value + (before or 0.0) if point.is_delta else point.value


class Telemetry:
    """The pushed metrics of one broker's clients."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.core = TelemetryCore(config.get(broker_metrics.TELEMETRY_MAX_BYTES))
        self.values: dict[UUID, Values] = {}
        self.receives = can_receive()
        self._clock = clock
        self._size_bytes = 0

    def configure(self, configs: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Take the subscriptions from the cluster image's configs."""
        self.core.configure([_subscription(texts) for (kind, _), texts in configs.items() if kind == KIND])

    def is_announced_to(self, software: tuple[str, str]) -> bool:
        """Whether a client should be told that it can push metrics.

        librdkafka prints a line to standard error when it receives an instance id, so the APIs are hidden from it while
        there is no subscription; it learns of a new one with its next connection. Other clients ask again from time to time.
        """
        if not self.receives:
            return False
        return self.core.has_subscriptions or LOUD not in " ".join(software)

    def client_of(self, connection: Connection, instance_id: UUID) -> Client:
        """The client that pushes or asks. Raises ApiError when nothing receives metrics."""
        if not self.receives:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "this broker does not receive metrics of clients")
        name, version = connection.client_software
        host, _, port = connection.peer.rpartition(":")
        return Client(instance_id, connection.client_id or "", name, version, host, int(port))

    async def receive(self, connection: Connection, instance_id: UUID, codec: int, data: bytes) -> None:
        """Store what a client pushed. Raises ApiError(INVALID_RECORD) when it cannot be read."""
        try:
            points = await asyncio.get_running_loop().run_in_executor(None, read_points, codec, data)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, f"pushed metrics cannot be read: {error}") from None
        self.keep(self.client_of(connection, instance_id), points)

    def keep(self, client: Client, points: list[Point]) -> None:
        """Store new values. Above the limit the oldest values are dropped, however many clients push."""
        values = self.values.pop(client.instance_id, None) or Values(client)
        self.values[client.instance_id] = values  # moves to the end: ordered by last push
        before_bytes = values.size_bytes
        values.take(points, self._clock.now_ms())
        self._size_bytes += values.size_bytes - before_bytes
        while self._size_bytes > ALL_VALUES_BYTES_MAX:
            self._drop(next(iter(self.values)))

    def _drop(self, instance_id: UUID) -> None:
        self._size_bytes -= self.values.pop(instance_id).size_bytes

    def expire(self) -> None:
        """Drop clients that have been silent for too long."""
        self.core.expire(int(self._clock.monotonic_ms()))
        for gone in self.values.keys() - self.core.instances.keys():
            self._drop(gone)


def _subscription(texts: Mapping[str, str]) -> Subscription:
    options = client_options.CLIENT_METRICS

    def get(name: str) -> Any:
        return options[name].parse(texts[name]) if name in texts else options[name].default

    match: dict[str, re.Pattern[str]] = {}
    for condition in get(client_options.MATCH.name):
        label, _, pattern = condition.partition("=")
        match[label.strip()] = re.compile(pattern.strip())
    names = tuple(name for name in get(client_options.METRICS.name) if name)
    return Subscription(names, get(client_options.INTERVAL_MS.name), match)


def read_points(codec: int, data: bytes) -> list[Point]:
    """The points of one push. Raises ValueError when it is damaged or decompresses to too much."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        message = MetricsData.FromString(decompress(Codec(codec), data, UNPACKED_BYTES_MAX))
    except (CompressionError, DecodeError) as error:
        raise ValueError(str(error)) from error
    return [
        point
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in _points(metric)
    ]


def _points(metric: Any) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    is_delta = kind != "gauge" and getattr(data, "aggregation_temporality", 0) == DELTA
    for point in data.data_points:
        labels = tuple(sorted((attribute.key, _text(attribute.value)) for attribute in point.attributes))
        if kind in ("gauge", "sum"):
            which = point.WhichOneof("value")
            if which is not None:
                yield Point(metric.name, labels, float(getattr(point, which)), is_delta)
        else:  # histograms and summaries: only their count and sum
            yield Point(f"{metric.name}.count", labels, float(point.count), is_delta)
            yield Point(f"{metric.name}.sum", labels, float(point.sum), is_delta)


def _text(value: Any) -> str:
    which = value.WhichOneof("value")
    return "" if which is None else str(getattr(value, which))
