"""What the registry measures of itself, for `GET /metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from barnabas.observe import service_metrics as metrics
from barnabas.observe.metric import Sample
from barnabas.registry.state import State


def samples(state: State, *, writes: bool) -> Iterator[Sample]:
    """writes: whether this instance makes the changes."""
    of_type: Counter[str] = Counter()
    subjects = 0
    for versions in list(state.subjects.values()):
        live = versions.live()
        subjects += bool(live)
        of_type.update(version.content.type for version in live)
    yield Sample(metrics.REGISTERED, of_type.total())
    yield Sample(metrics.SUBJECTS, subjects)
    yield Sample(metrics.ROLE, writes)
    for name in ("AVRO", "JSON", "PROTOBUF"):
        yield Sample(metrics.OF_TYPE, of_type[name], (name,))
