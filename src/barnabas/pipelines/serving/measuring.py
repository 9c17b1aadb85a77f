"""What a server of pipelines measures of them, for `GET /metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from barnabas.observe import service_metrics as metrics
from barnabas.observe.metric import Metric, Sample

OF_QUERY: Final[tuple[tuple[str, Metric], ...]] = (
    ("records", metrics.RECORDS),
    ("failed", metrics.DEAD_LETTERS),
    ("late", metrics.LATE),
    ("state_rows", metrics.STATE_ROWS),
    ("state_bytes", metrics.STATE_BYTES),
    ("records_per_second", metrics.RATE),
    ("lag", metrics.LAG),
    ("seconds_left", metrics.CAUGHT_UP),
)
"""Each with its name in the status of a query; what is not known is left out."""


def samples(statuses: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """The statuses of pipelines (see `Supervisor.status_of`) as samples."""
    for row in statuses:
        name = (row["name"],)
        yield Sample(metrics.UP, row["state"] == "running", name)
        yield Sample(metrics.FAILED, row["state"] == "failed", name)
        yield Sample(metrics.STUCK, row["stuck"] is not None, name)
        yield Sample(metrics.RESTARTS, row["restarts"], name)
        for query in row["queries"]:
            for word, metric in OF_QUERY:
                if query[word] is not None:
                    yield Sample(metric, query[word], (*name, query["name"]))
