"""How workers share connectors and tasks. No I/O.

The leader gives everything to the members, evenly, and leaves with each what it has. No member waits until another one has
ended what it had: a task of a source fences the one before it by its transactional id, and tasks of sinks divide their
partitions in a consumer group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from barnabas.connect.worker.formats import TaskId

Unit = str | TaskId
"""A connector, whose work has to be divided, or a task."""


def pack(units: Iterable[Unit], **more: object) -> bytes:
    """Units as JSON."""
    all_units = list(units)
    connectors = sorted(unit for unit in all_units if not isinstance(unit, TaskId))
    tasks = sorted(list(unit) for unit in all_units if isinstance(unit, TaskId))
    return json.dumps({**more, "connectors": connectors, "tasks": tasks}, separators=(",", ":")).encode()


def unpack(data: bytes) -> set[Unit]:
    """What `pack` made. Raises ValueError."""
    if not data:
        return set()
    document = json.loads(data)
    try:
        tasks = {TaskId(str(name), int(number)) for name, number in document["tasks"]}
        return {*(str(name) for name in document["connectors"]), *tasks}
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an assignment: {error}") from None


def divided(units: Sequence[Unit], owned: Mapping[str, set[Unit]]) -> dict[str, set[Unit]]:
    """Units by member. owned: what each member has now. Connectors and tasks are each divided evenly."""
    parts: dict[str, set[Unit]] = {member: set() for member in sorted(owned)}
    for kind in (False, True):
        rows = [unit for unit in units if isinstance(unit, TaskId) is kind]
        _divide(rows, owned, parts, kind)
    return parts


def _divide(
    rows: Sequence[Unit], owned: Mapping[str, set[Unit]], parts: dict[str, set[Unit]], kind: bool
) -> None:
    if not parts:
        return
    most = -(-len(rows) // len(parts))
    counts = dict.fromkeys(parts, 0)
    left = []
    wanted = set(rows)
    taken: set[Unit] = set()
    for member in parts:
        for unit in sorted(owned[member] & wanted - taken, key=str):
            if counts[member] < most:
                parts[member].add(unit)
                taken.add(unit)
                counts[member] += 1
    left = [unit for unit in rows if unit not in taken]
    for unit in left:
        member = min(counts, key=lambda name: (counts[name], name))
        parts[member].add(unit)
        counts[member] += 1
