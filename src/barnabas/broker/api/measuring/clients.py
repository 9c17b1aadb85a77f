"""The metrics that clients push about themselves (KIP-714), for those who read the broker's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.observe.metric import Metric, Sample

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.broker.api.telemetry import Values

PREFIX: Final = "org.apache.kafka."
OF_CLIENT: Final = ("client_id", "client_instance_id", "client_software_name")
SERIES_MAX: Final = 20_000
"""More than this are not exported: clients push what they want. `barnabas clients --metrics` shows all."""
STEP: Final = 100


def of_clients(services: Services, samples: list[Sample]) -> Iterator[None]:
    """The newest values of each client. A metric has the labels of all its points; those that a point lacks are empty."""
    pushed = list(services.telemetry.values.values())
    labels: dict[str, dict[str, None]] = {}
    count = 0
    for values in pushed:
        for name, of_point in list(values.series):
            known = labels.setdefault(name, {})
            known.update(dict.fromkeys(label for label, _ in of_point))
            count += 1
            if count % STEP == 0:
                yield
            if count == SERIES_MAX:
                break
    metrics: dict[str, Metric] = {}
    taken: set[str] = set()
    for name, known in labels.items():
        metric = _metric(name, tuple(sorted(known)))
        if metric.name not in taken:  # clients choose names, of which two may be the same in Prometheus
            taken.add(metric.name)
            metrics[name] = metric
    left = SERIES_MAX
    for values in pushed:
        yield from _of_client(values, metrics, labels, samples, left)
        left -= len(values.series)
        if left <= 0:
            return


def _of_client(
    values: Values,
    metrics: dict[str, Metric],
    labels: dict[str, dict[str, None]],
    samples: list[Sample],
    series_max: int,
) -> Iterator[None]:
    client = values.client
    mine = (client.client_id, str(client.instance_id), client.software_name)
    for number, ((name, of_point), value) in enumerate(list(values.series.items())[:series_max], 1):
        metric = metrics.get(name)
        if metric is not None:
            texts = dict(of_point)
            samples.append(
                Sample(metric, value, (*mine, *(texts.get(label, "") for label in sorted(labels[name]))))
            )
        if number % STEP == 0:
            yield


def _metric(name: str, labels: tuple[str, ...]) -> Metric:
    """A metric of clients. Its MBean has the name that it has in a Java client."""
    known = name.removeprefix(PREFIX)
    group, _, attribute = known.partition(".")
    named = _different(labels)
    properties = "".join(f",{label}={{{plain}}}" for label, plain in zip(labels, named, strict=True))
    return Metric(
        f"kafka.{group}:type={group}-metrics,client-id={{client_id}},instance={{client_instance_id}},"
        f"software={{client_software_name}}{properties}",
        attribute.replace(".", "-"),
        f"kafka_client_{_plain(known)}",
        "as the client says",
        f"Pushed by clients: {name}.",
        (*OF_CLIENT, *named),
    )


def _different(labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels as Prometheus allows them, each of which is another one, and none of those that every metric has."""
    labels_so_far: list[str] = []
    for label in labels:
        plain = _plain(label) or "_"
        while plain in labels_so_far or plain in OF_CLIENT or plain[0].isdigit():
            plain = f"_{plain}"
        labels_so_far.append(plain)
    return tuple(labels_so_far)


def _plain(name: str) -> str:
    """As a name in Prometheus."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)
