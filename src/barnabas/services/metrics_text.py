"""Metrics as text for Prometheus: prometheus-client writes it, except for the values of single partitions and topics.

Of these a broker may have tens of thousands, whose lines are all alike. They are written here, a few hundred at a time: the
thread lets the broker's loop have the interpreter after each piece.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client.metrics_core import Metric as Family

from barnabas.http.measuring import page
from barnabas.observe.families import families
from barnabas.observe.metric import Metric, Sample

LINES_PER_PIECE: Final = 250
MANY: Final = 500
"""From so many samples on, the lines of a metric are written here."""
KEPT: Final = 4
"""So many times as many labels may be kept as a scrape needs."""
END: Final = b"# EOF\n"
SWITCH_S: Final = 0.0005
"""How long the thread that writes may keep the interpreter from the loop: Python's own 5 ms would be seen by clients."""


class _Measured:
    """Values that have been read, for the library that writes them."""

    def __init__(self, by_metric: dict[Metric, list[Sample]]) -> None:
        self._by_metric = by_metric

    def collect(self) -> Iterator[Family]:
        """Called once for each answer."""
        return families(self._by_metric)


def by_metric(samples: Sequence[Sample]) -> dict[Metric, list[Sample]]:
    """The samples of each metric, in the order in which metrics came first."""
    by_metric_: dict[Metric, list[Sample]] = {}
    for number, sample in enumerate(samples, 1):
        by_metric_.setdefault(sample.metric, []).append(sample)
        if number % (8 * LINES_PER_PIECE) == 0:
            _let_others_run()
    return by_metric_


@contextmanager
def beside_others() -> Iterator[None]:
    """While this thread works, it hands the interpreter to others sooner than Python would."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(min(SWITCH_S, before_s))
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


def written(samples: Sequence[Sample], accept: str, labels: Labels) -> tuple[bytes, str]:
    """The values as text, in the format that `accept` prefers, and its media type. Runs in a thread beside the loop, one
    at a time with the same `labels`."""
    with beside_others():
        return _written(samples, accept, labels)


def _written(samples: Sequence[Sample], accept: str, labels: Labels) -> tuple[bytes, str]:
    grouped = by_metric(samples)
    many = {metric: grouped.pop(metric) for metric in list(grouped) if len(grouped[metric]) >= MANY}
    text, media_type = page(accept, [_Measured(grouped)])
    if not many:
        return text, media_type
    is_open = text.endswith(END)
    pieces = [text.removesuffix(END)]
    for metric, of_metric in many.items():
        assert not metric.has_parts, "requests have few kinds"
        texts = labels.of(metric.labels, len(of_metric))
        pieces += _lines(metric, of_metric, texts, is_open=is_open)
    return b"".join((*pieces, END) if is_open else pieces), media_type


class Labels:
    """Labels as text, kept from one scrape to the next: partitions have the same ones each time, and in several metrics."""

    def __init__(self) -> None:
        self._by_names: dict[tuple[str, ...], _LabelTexts] = {}

    def of(self, names: tuple[str, ...], count: int) -> _LabelTexts:
        """The texts of labels with these names, for `count` samples: those of topics that are gone are forgotten."""
        texts = self._by_names.get(names)
        if texts is None or len(texts) > KEPT * count:
            texts = self._by_names[names] = _LabelTexts(names)
        return texts


class _LabelTexts(dict[tuple[str, ...], str]):
    """The text of each tuple of values of the same labels."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, values: tuple[str, ...]) -> str:
        labels = ",".join(
            f'{name}="{escaped(value)}"' for name, value in zip(self._names, values, strict=True)
        )
        self[values] = labels
        return labels


def _lines(
    metric: Metric, samples: Sequence[Sample], labels: _LabelTexts, *, is_open: bool
) -> Iterator[bytes]:
    """The lines of a metric. is_open: in OpenMetrics, where the name of a counter has no _total in what is said about it."""
    family = metric.name.removesuffix("_total") if is_open else metric.name
    kind = "counter" if metric.only_grows else "gauge"
    help = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family} {help}\n# TYPE {family} {kind}\n".encode()
    start = f"{metric.name}{{"
    for begin in range(0, len(samples), LINES_PER_PIECE):
        piece = samples[begin : begin + LINES_PER_PIECE]
        lines = [f"{start}{labels[values]}}} {value}\n" for _, value, values, _ in piece]
        yield "".join(lines).encode()
        _let_others_run()


def escaped(value: str) -> str:
    """The value of a label between its quotation marks."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _let_others_run() -> None:
    time.sleep(0)  # releases the interpreter's lock
