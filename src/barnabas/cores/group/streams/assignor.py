"""The task assignor of streams groups, `sticky`: balanced, and tasks stay where they or copies of their state are.

A pure function, with the same result for the same input in whatever order. Source: the behaviour of Kafka 4.3's assignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from barnabas.cores.group.streams.group import NO_TASKS, Task, Tasks

NAME: Final = "sticky"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """tasks: subtopology -> number of tasks; stateful: those that may have standbys; members: member -> its process."""

    tasks: Mapping[str, int]
    stateful: frozenset[str]
    members: Mapping[str, str]
    current: Mapping[str, Tasks]
    standby_replicas: int


def assign_sticky(spec: TaskSpec) -> dict[str, Tasks]:
    """Every member's tasks. Standby tasks that find no process without the same task are left out."""
    if not spec.members:
        return {}
    if not spec.tasks:
        return dict.fromkeys(spec.members, NO_TASKS)
    return _Assignment(spec).run()


class _Quota:
    """How many tasks one member may have, so that all have equally many or one more.

    Whenever a member has got that many, the rest is divided among the other members again.
    """

    __slots__ = ("_members", "_tasks", "per_member")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.per_member = -(-tasks // members)

    def count(self, tasks_of_member: int) -> None:
        """A member has got its next task."""
        if tasks_of_member == self.per_member:
            self._members -= 1
            self._tasks -= tasks_of_member
            self.per_member = -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._active: dict[str, set[Task]] = {member: set() for member in sorted(spec.members)}
        self._standby: dict[str, set[Task]] = {member: set() for member in self._active}
        self._counts = dict.fromkeys(self._active, 0)
        self._members_of: dict[str, list[str]] = {}
        for member in self._active:
            self._members_of.setdefault(spec.members[member], []).append(member)
        self._tasks_of: dict[str, set[Task]] = {process: set() for process in self._members_of}
        active = sum(spec.tasks.values())
        copies = sum(count for part, count in spec.tasks.items() if part in spec.stateful)
        self._active_quota = _Quota(active, len(spec.members))
        self._quota = _Quota(active + copies * spec.standby_replicas, len(spec.members))
        self._was_active: dict[Task, str] = {}
        self._was_standby: dict[Task, list[str]] = {}
        for member in self._active:
            tasks = spec.current.get(member, NO_TASKS)
            self._was_active.update(dict.fromkeys(tasks.active, member))
            for task in tasks.standby | tasks.warmup:
                self._was_standby.setdefault(task, []).append(member)

    def run(self) -> dict[str, Tasks]:
        tasks = [(part, number) for part, count in self._spec.tasks.items() for number in range(count)]
        self._assign_active(tasks)
        if self._spec.standby_replicas:
            self._assign_standbys([task for task in tasks if task[0] in self._spec.stateful])
        return {
            member: Tasks(frozenset(self._active[member]), frozenset(self._standby[member]))
            for member in self._active
        }

    def _assign_active(self, tasks: list[Task]) -> None:
        rest = []
        for task in sorted(tasks, key=_by_number):
            member = self._was_active.get(task)
            if member is not None and self._counts[member] < self._active_quota.per_member:
                self._add_active(member, task)
            else:
                rest.append(task)
        homeless = []
        for task in rest:
            member = self._least_loaded(self._was_standby.get(task, ()))
            if member is not None and self._counts[member] < self._active_quota.per_member:
                self._add_active(member, task)
            else:
                homeless.append(task)
        queue = self._processes_by_load()
        for task in sorted(homeless):
            _, process = heappop(queue)
            self._add_active(self._least_busy(process), task)
            heappush(queue, (self._load(process), process))

    def _assign_standbys(self, tasks: list[Task]) -> None:
        left: list[tuple[Task, int]] = []
        for task in sorted(tasks, key=_by_number, reverse=True):
            for placed in range(self._spec.standby_replicas):
                member = self._former_owner(task)
                if member is None:
                    left.append((task, self._spec.standby_replicas - placed))
                    break
                self._add_standby(member, task)
        queue = self._processes_by_load()
        for task, copies in sorted(left, reverse=True):
            for _ in range(copies):
                if not self._to_least_loaded(queue, task):
                    break

    def _former_owner(self, task: Task) -> str | None:
        """A member that had the task, active or on standby, has room, and whose process does not have it now."""
        limit = self._quota.per_member
        member = self._was_active.get(task)
        if member is not None and self._counts[member] < limit and not self._has(member, task):
            return member
        free = [member for member in self._was_standby.get(task, ()) if not self._has(member, task)]
        member = self._least_loaded(free)
        return member if member is not None and self._counts[member] < limit else None

    def _to_least_loaded(self, queue: list[tuple[float, str]], task: Task) -> bool:
        """Give a standby task to the least loaded process that does not have the task; False if there is none."""
        passed: list[tuple[float, str]] = []
        is_placed = False
        while queue and not is_placed:
            load, process = heappop(queue)
            if task in self._tasks_of[process]:
                passed.append((load, process))
                continue
            self._add_standby(self._least_busy(process), task)
            passed.append((self._load(process), process))
            is_placed = True
        for entry in passed:
            heappush(queue, entry)
        return is_placed

    # --- members and processes

    def _has(self, member: str, task: Task) -> bool:
        return task in self._tasks_of[self._spec.members[member]]

    def _add_active(self, member: str, task: Task) -> None:
        self._active[member].add(task)
        self._active_quota.count(self._add(member, task))

    def _add_standby(self, member: str, task: Task) -> None:
        self._standby[member].add(task)
        self._add(member, task)

    def _add(self, member: str, task: Task) -> int:
        self._tasks_of[self._spec.members[member]].add(task)
        self._counts[member] = count = self._counts[member] + 1
        self._quota.count(count)
        return count

    def _load(self, process: str) -> float:
        return len(self._tasks_of[process]) / len(self._members_of[process])

    def _processes_by_load(self) -> list[tuple[float, str]]:
        queue = [(self._load(process), process) for process in self._members_of]
        heapify(queue)
        return queue

    def _least_busy(self, process: str) -> str:
        return min(self._members_of[process], key=self._counts.__getitem__)

    def _least_loaded(self, members: Iterable[str]) -> str | None:
        return min(
            members,
            key=lambda member: (self._load(self._spec.members[member]), self._counts[member]),
            default=None,
        )


def _by_number(task: Task) -> tuple[int, str]:
    """Tasks with equal numbers next to each other: they read the same partitions, and were spread over all members."""
    return task[1], task[0]
