"""The numbers of requests: how many, how long, of what size, with which errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.observe import metrics
from barnabas.observe.metric import PERCENTILES, Distribution, Metric, Sample

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.runtime.timing import Histogram, RequestStats

US_PER_MS: Final = 1000


def of_requests(services: Services) -> Iterator[Sample]:
    """The samples of each kind of request that has come. As in Kafka, Fetch is the sum of the two kinds of fetches."""
    kinds = [stats for stats in services.times.all if stats.requests]
    fetches = [stats for stats in kinds if stats in (services.consumer_fetches, services.follower_fetches)]
    if len(fetches) == 1:
        kinds.append(fetches[0].plus(services.times.of("Fetch"), "Fetch"))
    elif fetches:
        kinds.append(fetches[0].plus(fetches[1], "Fetch"))
    for stats in kinds:
        yield from _of_kind(stats)


def _of_kind(stats: RequestStats) -> Iterator[Sample]:
    name, count = stats.name, stats.requests
    for version, requests in stats.versions.items():
        yield Sample(metrics.REQUESTS, requests, (name, str(version)))
    for error, answers in stats.errors.items():
        yield Sample(metrics.ERRORS, answers, (name, error))
    for part, histogram in stats.parts:
        yield distributed(metrics.TIMES[part], histogram, (name,), US_PER_MS, count)
    yield distributed(metrics.REQUEST_BYTES, stats.size, (name,), 1, count)


def distributed(
    metric: Metric,
    histogram: Histogram,
    labels: tuple[str, ...] = (),
    per_unit: int = US_PER_MS,
    count: int | None = None,
) -> Sample:
    """The sample of a histogram. per_unit: how many of its units make one of the metric's. count: how many values there
    really were, if the histogram has only a part of them."""
    low, high = histogram.extremes()
    seen = histogram.count
    total = histogram.sum / per_unit
    if count is not None and seen:
        total *= count / seen
    known = seen if count is None else count
    quantiles = tuple(value / per_unit for value in histogram.quantiles(PERCENTILES))
    return Sample(
        metric, known, labels, Distribution(known, total, quantiles, low / per_unit, high / per_unit)
    )
