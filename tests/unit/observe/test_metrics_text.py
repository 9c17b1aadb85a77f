"""Many samples of one metric as text: what Prometheus's own parser reads is what was measured."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from barnabas.observe import metrics
from barnabas.observe.metric import Sample
from barnabas.services.metrics_text import KEPT, MANY, Labels, written

OPEN = "application/openmetrics-text; version=1.0.0"


def samples(count: int, topic: str = 'a"\\\nb') -> list[Sample]:
    """Sizes and ends of so many partitions."""
    labels = [(topic, str(number)) for number in range(count)]
    sizes = [Sample(metrics.LOG_SIZE, number, one) for number, one in enumerate(labels)]
    return sizes + [Sample(metrics.LOG_END, number * 0.5, one) for number, one in enumerate(labels)]


@pytest.mark.parametrize("accept", ["", OPEN])
def test_what_is_written_is_read_again_also_at_the_next_scrape(accept: str) -> None:
    labels, wanted = Labels(), samples(MANY + 1)
    parse = openmetrics.text_string_to_metric_families if accept else text_string_to_metric_families
    for _ in range(2):
        text = written(wanted, accept, labels)[0].decode()
        found = {
            (sample.name, sample.labels["topic"], sample.labels["partition"]): sample.value
            for family in parse(text)
            for sample in family.samples
            if sample.name in (metrics.LOG_SIZE.name, metrics.LOG_END.name)
        }
        assert found == {(one.metric.name, *one.labels): one.value for one in wanted}


def test_labels_of_topics_that_are_gone_are_forgotten() -> None:
    labels = Labels()
    for number in range(2 * KEPT):
        written(samples(MANY, f"topic-{number}"), "", labels)
        assert len(labels.of(metrics.LOG_SIZE.labels, MANY)) <= (KEPT + 1) * MANY
