"""Which brokers get the replicas of new partitions.

Leaders are assigned round-robin; the other replicas of each partition are shifted by a distance that grows with each
round, so that the load of a failed broker is spread over all others. With racks, no two replicas share a rack as long
as there is an unused one. Source: Kafka's AdminUtils.
"""

from __future__ import annotations

from collections.abc import Mapping


class NotEnoughBrokers(Exception):
    """There are fewer brokers than requested replicas."""


def assign(
    brokers: Mapping[int, str | None], partitions: range, replication_factor: int, seed: int
) -> dict[int, tuple[int, ...]]:
    """Replicas of each partition, its preferred leader first.

    brokers: live broker ids and their racks. partitions: the indexes to place. seed: any number; it determines the
    broker with which the first partition begins. Racks count only if every broker has one.
    Raises NotEnoughBrokers.
    """
    if replication_factor > len(brokers):
        raise NotEnoughBrokers
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if len(racks) == len(brokers) and len(set(racks.values())) > 1:
        return _rack_aware(racks, partitions, replication_factor, seed)
    return _rack_unaware(sorted(brokers), partitions, replication_factor, seed)


def _rack_unaware(ids: list[int], partitions: range, factor: int, seed: int) -> dict[int, tuple[int, ...]]:
    count = len(ids)
    start, shift = seed % count, seed // count % count
    placed: dict[int, tuple[int, ...]] = {}
    # Thousands of partitions share a few different lists, cached by (first broker, shift).
    lists: dict[tuple[int, int], tuple[int, ...]] = {}
    for at, partition in enumerate(partitions):
        if at and at % count == 0:
            shift += 1
        first = (at + start) % count
        key = first, shift % max(count - 1, 1)
        if key not in lists:
            others = (ids[_shifted(first, shift, replica, count)] for replica in range(factor - 1))
            lists[key] = (ids[first], *others)
        placed[partition] = lists[key]
    return placed


def _shifted(first: int, shift: int, replica: int, count: int) -> int:
    return (first + 1 + (shift + replica) % (count - 1)) % count


def _rack_aware(
    racks: Mapping[int, str], partitions: range, factor: int, seed: int
) -> dict[int, tuple[int, ...]]:
    ids = alternate_racks(racks)
    count, rack_count = len(ids), len(set(racks.values()))
    start, shift = seed % count, seed // count % count
    placed: dict[int, tuple[int, ...]] = {}
    for at, partition in enumerate(partitions):
        if at and at % count == 0:
            shift += 1
        first = (at + start) % count
        chosen = [ids[first]]
        used_racks = {racks[ids[first]]}
        step = 0
        while len(chosen) < factor:
            broker = ids[_shifted(first, shift * rack_count, step, count)]
            step += 1
            # Skip used racks until every rack is used; skip used brokers always.
            if broker in chosen or (racks[broker] in used_racks and len(used_racks) < rack_count):
                continue
            chosen.append(broker)
            used_racks.add(racks[broker])
        placed[partition] = tuple(chosen)
    return placed


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Broker ids in an order that alternates racks: the first broker of each rack, then the second, and so on."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    ordered: list[int] = []
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    for turn in range(max(len(queue) for queue in queues)):
        ordered.extend(queue[turn] for queue in queues if turn < len(queue))
    return ordered
