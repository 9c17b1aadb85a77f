"""The sticky assignor of streams groups: every task once, evenly, copies elsewhere, and nothing moves without a reason."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cores.group.streams.assignor import TaskSpec, assign_sticky
from barnabas.cores.group.streams.group import Tasks

SPECS = st.builds(
    lambda counts, stateful, processes, replicas: TaskSpec(
        {str(part): count for part, count in enumerate(counts)},
        frozenset(str(part) for part in stateful if part < len(counts)),
        {f"m{number}": f"p{process}" for number, process in enumerate(processes)},
        {},
        replicas,
    ),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.sets(st.integers(0, 3)),
    st.lists(st.integers(0, 4), min_size=1, max_size=8),
    st.integers(0, 2),
)


def check(spec: TaskSpec, assignment: dict[str, Tasks]) -> None:
    assert assignment.keys() == spec.members.keys()
    every = {(part, number) for part, count in spec.tasks.items() for number in range(count)}
    active = [task for tasks in assignment.values() for task in tasks.active]
    assert sorted(active) == sorted(every)
    places = [
        (spec.members[m], task) for m, tasks in assignment.items() for task in (*tasks.active, *tasks.standby)
    ]
    assert len(places) == len(set(places)), "a process has a task twice"
    copies = [task for tasks in assignment.values() for task in tasks.standby]
    wanted = min(spec.standby_replicas, len(set(spec.members.values())) - 1)
    assert sorted(copies) == sorted(task for task in every if task[0] in spec.stateful for _ in range(wanted))


@settings(max_examples=60, deadline=None)
@given(SPECS)
def test_every_task_is_assigned_once_and_stays(spec: TaskSpec) -> None:
    assignment = assign_sticky(spec)
    check(spec, assignment)
    again = TaskSpec(spec.tasks, spec.stateful, spec.members, assignment, spec.standby_replicas)
    assert {m: tasks.active for m, tasks in assign_sticky(again).items()} == {
        m: tasks.active for m, tasks in assignment.items()
    }


@settings(max_examples=60, deadline=None)
@given(SPECS, st.integers(0, 7))
def test_the_tasks_of_a_member_that_leaves_are_all_that_move(spec: TaskSpec, number: int) -> None:
    leaver = f"m{number % len(spec.members)}"
    before = assign_sticky(spec)
    rest = {member: process for member, process in spec.members.items() if member != leaver}
    kept = {member: tasks for member, tasks in before.items() if member != leaver}
    after = assign_sticky(TaskSpec(spec.tasks, spec.stateful, rest, kept, spec.standby_replicas))
    if rest:
        check(TaskSpec(spec.tasks, spec.stateful, rest, {}, spec.standby_replicas), after)
    for member, tasks in kept.items():
        assert tasks.active <= after[member].active


def test_a_task_goes_to_the_member_that_has_its_copy() -> None:
    tasks, stateful = {"0": 2}, frozenset({"0"})
    members = {"a": "A", "b": "B", "c": "C"}
    current = {"a": Tasks(frozenset({("0", 0)}), frozenset()), "b": Tasks(frozenset(), frozenset({("0", 1)}))}
    assignment = assign_sticky(TaskSpec(tasks, stateful, members, current, 1))
    assert ("0", 0) in assignment["a"].active
    assert ("0", 1) in assignment["b"].active
    assert assign_sticky(TaskSpec(tasks, stateful, {}, {}, 1)) == {}
