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
    given = list(units)
    connectors = sorted(unit for unit in given if not isinstance(unit, TaskId))
    tasks = sorted(list(unit) for unit in given if isinstance(unit, TaskId))
    return json.dumps({**more, "connectors": connectors, "tasks": tasks}, separators=(",", ":")).encode()


def unpack(data: bytes) -> set[Unit]:
    """What `pack` made. Raises ValueError."""
    if not data:
        return set()
    held = json.loads(data)
    try:
        tasks = {TaskId(str(name), int(number)) for name, number in held["tasks"]}
        return {*(str(name) for name in held["connectors"]), *tasks}
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an assignment: {error}") from None


def divided(units: Sequence[Unit], owned: Mapping[str, set[Unit]]) -> dict[str, set[Unit]]:
    """Units by member. owned: what each member has now. Connectors and tasks are each divided evenly."""
    made: dict[str, set[Unit]] = {member: set() for member in sorted(owned)}
    for kind in (False, True):
        rows = [unit for unit in units if isinstance(unit, TaskId) is kind]
        _divide(rows, owned, made, kind)
    return made


def _divide(
    rows: Sequence[Unit], owned: Mapping[str, set[Unit]], made: dict[str, set[Unit]], kind: bool
) -> None:
    if not made:
        return
    most = -(-len(rows) // len(made))
    counts = dict.fromkeys(made, 0)
    left = []
    wanted = set(rows)
    taken: set[Unit] = set()
    for member in made:
        for unit in sorted(owned[member] & wanted - taken, key=str):
            if counts[member] < most:
                made[member].add(unit)
                taken.add(unit)
                counts[member] += 1
    left = [unit for unit in rows if unit not in taken]
    for unit in left:
        member = min(counts, key=lambda name: (counts[name], name))
        made[member].add(unit)
        counts[member] += 1
