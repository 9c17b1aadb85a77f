"""Values of metrics as the families of prometheus-client, which writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from barnabas.observe.metric import PERCENTILE_NAMES, Metric, Sample


def families(by_metric: Mapping[Metric, Sequence[Sample]]) -> Iterator[Family]:
    """The families of samples, which are given by their metric."""
    for metric, samples in by_metric.items():
        if metric.has_parts:
            yield from _distributions(metric, samples)
            continue
        of_kind = CounterMetricFamily if metric.only_grows else GaugeMetricFamily
        family = of_kind(metric.name, metric.help, labels=metric.labels)
        for sample in samples:
            family.add_metric(sample.labels, sample.value)
        yield family


def _distributions(metric: Metric, samples: Sequence[Sample]) -> Iterator[Family]:
    """Percentiles, counts and sums with the names that the JMX exporter gives them."""
    percentiles = Family(metric.name, metric.help, "unknown")
    counts = Family(f"{metric.name}_count", f"{metric.help} How many.", "unknown")
    sums = Family(f"{metric.name}_sum", f"{metric.help} Their sum.", "unknown")
    for sample in samples:
        labels = dict(zip(metric.labels, sample.labels, strict=True))
        assert sample.parts is not None
        for quantile, value in zip(PERCENTILE_NAMES, sample.parts.quantiles, strict=True):
            percentiles.add_sample(metric.name, {**labels, "quantile": quantile}, value)
        counts.add_sample(counts.name, labels, sample.parts.number)
        sums.add_sample(sums.name, labels, sample.parts.sum)
    yield from (percentiles, counts, sums)
