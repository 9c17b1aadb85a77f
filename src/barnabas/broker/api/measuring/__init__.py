"""The broker's metrics, read from its state when somebody asks.

What requests count on their way is a few additions in compiled code (runtime/timing.pyx, PartitionState); everything else is
looked up here. The event loop does it, since it owns the state, in many short steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.broker.api.measuring import parts, topics
from barnabas.broker.api.measuring.clients import of_clients
from barnabas.broker.api.measuring.requests import of_requests
from barnabas.observe.metric import Sample
from barnabas.runtime.pace import in_pieces

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.runtime.turns import Turns

TURN_MS_MAX = 0.5


async def measure(services: Services, turns: Turns) -> list[Sample]:
    """The values of all metrics. The loop serves others after each half of a millisecond."""
    samples: list[Sample] = []
    await in_pieces(services.loop, services.clock, _pieces(services, turns, samples), TURN_MS_MAX)
    return samples


def _pieces(services: Services, turns: Turns, samples: list[Sample]) -> Iterator[None]:
    samples += of_requests(services)
    yield
    samples += parts.of_broker(services, turns)
    yield
    samples += parts.of_connections(services)
    yield
    yield from parts.of_coordinators(services, samples)
    yield from of_clients(services, samples)
    samples += topics.of_links(services)
    yield from topics.of_cluster(services, samples)
    yield from topics.of_topics(services, samples)
