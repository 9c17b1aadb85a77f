"""`barnabas start --otlp URL`: pushes the metrics of a broker, and of the services beside it, to a collector of
OpenTelemetry (OTLP over HTTP, as protobuf).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.http.measuring import REGISTRY
from barnabas.http_client import Address, NoAnswer, Service, parts_of
from barnabas.observe.families import families
from barnabas.services.metrics_text import beside_others, by_metric

if TYPE_CHECKING:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from prometheus_client.metrics_core import Metric as Family

    from barnabas.observe.metric import Measure

log = logging.getLogger("barnabas.otlp")

PATH: Final = "/v1/metrics"
TIMEOUT_S: Final = 10.0
MEDIA_TYPE: Final = "application/x-protobuf"
METRICS_PER_PIECE: Final = 20
ANSWER_MAX_BYTES: Final = 500


def collector_of(url: str) -> Address:
    """The address to which metrics are pushed: OTLP's own path is added to a URL without one. Raises BadAddress."""
    parts = parts_of(url)
    return Address(url if parts.path.strip("/") else url.rstrip("/") + PATH)


class Pusher:
    """Pushes all metrics at once, again and again, from a thread of its own. instance: tells brokers apart."""

    def __init__(self, address: Address, measure: Measure, instance: str, interval_s: float) -> None:
        self._service = Service(address, timeout_s=TIMEOUT_S)
        self._url = address.url
        self._measure, self._instance, self._interval_s = measure, instance, interval_s
        self._started_ns = time.time_ns()
        self._ended = threading.Event()
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Begin to push."""
        self._thread.start()

    def stop(self) -> None:
        """End. What has changed since the last push is not pushed."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            try:
                trouble = self._push()
            except Exception as error:
                trouble = str(error)
            if trouble is not None and trouble != self._trouble:
                log.warning("metrics cannot be pushed", extra={"url": self._url, "reason": trouble})
            elif trouble is None and self._trouble is not None:
                log.info("metrics are pushed again", extra={"url": self._url})
            self._trouble = trouble
        self._service.close()

    def _push(self) -> str | None:
        """Why a push failed; None if it did not."""
        samples = self._measure().result(TIMEOUT_S)
        with beside_others():
            of_broker = families(by_metric(samples))
            request = request_of(
                [*of_broker, *REGISTRY.collect()], self._instance, self._started_ns, time.time_ns()
            )
            body = request.SerializeToString()
        try:
            answer = self._service.ask(
                "POST", body=body, headers={"content-type": MEDIA_TYPE}, bytes_max=ANSWER_MAX_BYTES
            )
        except NoAnswer as error:
            return str(error)
        if answer.status < 300:
            return None
        return f"the collector answers {answer.status}: {answer.body.decode(errors='replace')[:200]}"


def request_of(
    all_families: Iterable[Family], instance: str, started_ns: int, now_ns: int
) -> ExportMetricsServiceRequest:
    """OTLP's message. started_ns: when counters began, in nanoseconds since 1970."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for name, value in (("service.name", "barnabas"), ("service.instance.id", instance)):
        attribute = resource.resource.attributes.add()
        attribute.key, attribute.value.string_value = name, value
    scope = resource.scope_metrics.add()
    scope.scope.name = "barnabas"
    times = {"start_time_unix_nano": started_ns, "time_unix_nano": now_ns}
    for number, family in enumerate(all_families, 1):
        if family.type == "histogram":
            _add_histogram(scope.metrics.add(), family, times)
        else:
            for name, samples in _by_name(family.samples):
                _add_numbers(scope.metrics.add(), name, family, samples, times)
        if number % METRICS_PER_PIECE == 0:
            time.sleep(0)  # the broker's loop may have the interpreter
    return request


def _by_name(samples: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    by_name: dict[str, list[Any]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    yield from by_name.items()


def _add_numbers(
    metric: Any, name: str, family: Family, samples: Sequence[Any], times: Mapping[str, int]
) -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

    metric.name, metric.description = name, family.documentation
    if family.type == "counter":
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        points = metric.sum.data_points
    else:
        points = metric.gauge.data_points
    for sample in samples:
        point = points.add(as_double=float(sample.value), **times)
        _label(point, sample.labels)


def _add_histogram(metric: Any, family: Family, times: Mapping[str, int]) -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

    metric.name, metric.description, metric.unit = family.name, family.documentation, "s"
    metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    for labels, bounds, counts, total in _histograms(family.samples):
        point = metric.histogram.data_points.add(count=sum(counts), sum=total, **times)
        point.explicit_bounds.extend(bounds)
        point.bucket_counts.extend(counts)
        _label(point, labels)


def _histograms(
    samples: Sequence[Any],
) -> Iterator[tuple[Mapping[str, str], list[float], list[int], float]]:
    """(labels, upper bounds but the infinite, how many values in each bucket, their sum). Prometheus counts what is below
    each bound, OTLP what is between two."""
    histograms: dict[tuple[tuple[str, str], ...], tuple[list[tuple[float, float]], list[float]]] = {}
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        below, total = histograms.setdefault(tuple(labels.items()), ([], []))
        if sample.name.endswith("_bucket"):
            below.append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            total.append(sample.value)
    for key, (below, total) in histograms.items():
        below.sort()
        numbers = [number for _, number in below]
        counts = [int(after - before) for before, after in zip([0.0, *numbers], numbers, strict=False)]
        yield dict(key), [bound for bound, _ in below[:-1]], counts, sum(total)


def _label(point: Any, labels: Mapping[str, str]) -> None:
    for name, value in labels.items():
        if value:
            attribute = point.attributes.add()
            attribute.key, attribute.value.string_value = name, value
