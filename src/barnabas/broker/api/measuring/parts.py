"""The numbers of the broker's parts: event loop, connections, logs, coordinators, quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.broker.api.login import LoginGate
from barnabas.broker.api.measuring.requests import distributed
from barnabas.cores.quota import Quota
from barnabas.observe import metrics
from barnabas.observe.metric import Metric, Sample

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.runtime.turns import Turns

RUNNING: Final = 3
STEP: Final = 100
CLASSIC_STATES: Final = {
    "Stable": metrics.GROUPS_STABLE,
    "PreparingRebalance": metrics.GROUPS_PREPARING,
    "CompletingRebalance": metrics.GROUPS_COMPLETING,
    "Empty": metrics.GROUPS_EMPTY,
    "Dead": metrics.GROUPS_DEAD,
}
RESOURCES: Final = {
    Quota.PRODUCE: "Produce",
    Quota.FETCH: "Fetch",
    Quota.REQUEST: "Request",
    Quota.CONNECTION: "Connection",
}
"""What Kafka calls the quotas in the names of MBeans."""


def of_broker(services: Services, turns: Turns) -> Iterator[Sample]:
    """The event loop, logs, sessions, replication, quotas."""
    logs, cleaner = services.partitions.logs, services.partitions.logs.cleaner
    idle = turns.idle_share()
    yield Sample(metrics.BROKER_STATE, RUNNING)
    yield Sample(metrics.START_TIME, turns.started_ms)
    yield Sample(metrics.IDLE, idle)
    yield Sample(metrics.HANDLERS_IDLE, idle)
    yield distributed(metrics.TURNS, turns.lengths)
    yield Sample(metrics.REQUEST_MEMORY, services.listeners.room_taken_bytes)
    yield distributed(metrics.FLUSHES, logs.flushes)
    yield Sample(metrics.OFFLINE_DIRS, len(logs.offline_dirs))
    yield Sample(metrics.UNCLEANABLE, len(cleaner.uncleanable))
    yield Sample(metrics.COMPACTIONS, cleaner.passes)
    stats = cleaner.last_stats
    if stats is not None and stats.bytes_read:
        yield Sample(metrics.CLEANER_RECOPY, 100 * stats.bytes_written / stats.bytes_read)
    yield Sample(metrics.ISR_SHRINKS, services.in_sync.shrinks)
    yield Sample(metrics.ISR_EXPANDS, services.in_sync.expands)
    yield Sample(metrics.FETCH_SESSIONS, len(services.fetch_sessions))
    yield Sample(metrics.FETCH_SESSION_PARTITIONS, services.fetch_sessions.partition_count)
    converted: Counter[str] = Counter()
    for who, count in list(services.conversions.counts.items()):
        converted[who.direction] += count.records
    yield Sample(metrics.CONVERTED_PRODUCES, converted["up"])
    yield Sample(metrics.CONVERTED_FETCHES, converted["down"])
    for quota, user, client_id, rate in services.quotas.core.uses(int(services.clock.monotonic_ms())):
        yield Sample(metrics.QUOTA_RATE, rate, (RESOURCES[quota], user, client_id))


def of_connections(services: Services) -> Iterator[Sample]:
    """Connections and logins by listener, connections by software, and the fetches that wait."""
    listeners = services.listeners
    opened: Counter[str] = Counter()
    software: Counter[tuple[str, str, str]] = Counter()
    parked = 0
    for connection in list(listeners.connections):
        opened[connection.listener] += 1
        software[(*connection.client_software, connection.listener)] += 1
        parked += connection.parked is not None
    yield Sample(metrics.PURGATORY, parked, ("Fetch",))
    for listener in services.config.listeners:
        name, gate = listener.name, listeners.gates.get(listener.name)
        logins, failed = listeners.logins[name], listeners.failed_logins[name]
        if isinstance(gate, LoginGate):
            logins, failed = logins + gate.logins, failed + gate.failed_logins
        values: tuple[tuple[Metric, int], ...] = (
            (metrics.CONNECTIONS, opened[name]),
            (metrics.CONNECTIONS_CREATED, listeners.accepted[name]),
            (metrics.LOGINS, logins),
            (metrics.FAILED_LOGINS, failed),
        )
        for metric, value in values:
            yield Sample(metric, value, (name,))
    for (software_name, version, listener_name), count in software.items():
        labels = (software_name or "unknown", version or "unknown", listener_name)
        yield Sample(metrics.CLIENTS, count, labels)


def of_coordinators(services: Services, samples: list[Sample]) -> Iterator[None]:
    """Groups and transactional ids that this broker coordinates."""
    groups: Counter[tuple[str, str]] = Counter()
    seen = 0
    for _, core in list(services.groups.runtime.cores()):
        for group in list(core.state.groups.values()):
            groups[group.group_type, group.state.value] += 1
            seen += 1
            if seen % STEP == 0:
                yield
    of_state: Counter[str] = Counter()
    for (_, state), count in groups.items():
        of_state[state] += count
    samples.append(Sample(metrics.GROUPS, sum(groups.values())))
    samples += [Sample(metric, of_state[state]) for state, metric in CLASSIC_STATES.items()]
    samples += [Sample(metrics.GROUP_COUNT, count, labels) for labels, count in groups.items()]
    transactions: Counter[str] = Counter()
    for _, seat in list(services.transactions.runtime.cores()):
        for transaction in list(seat.transactions.values()):
            transactions[transaction.state.text] += 1
            seen += 1
            if seen % STEP == 0:
                yield
    samples += [Sample(metrics.TRANSACTION_COUNT, count, (state,)) for state, count in transactions.items()]
