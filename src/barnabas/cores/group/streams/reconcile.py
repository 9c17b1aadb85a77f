"""How one member follows the target assignment: the next step from its current to its target tasks.

Source: KIP-1071, "Reconciliation"; the behaviour of Kafka 4.3's coordinator.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.cores.group.streams.group import (
    NO_TASKS,
    MemberState,
    StreamsGroup,
    StreamsMember,
    Tasks,
)
from barnabas.wire.errors import ApiError, ErrorCode


def reconcile(
    group: StreamsGroup, member: StreamsMember, target_epoch: int, target: Tasks, owned: Tasks | None
) -> StreamsMember:
    """The member after this heartbeat. owned: the tasks that it reports to have, None if it reports nothing.

    Raises FENCED_MEMBER_EPOCH for a member that still has tasks and whose state is of an unknown, newer kind.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return member
        case MemberState.STABLE | MemberState.UNRELEASED_TASKS:
            return _next(group, member, member.epoch, target_epoch, target, owned)
        case MemberState.UNREVOKED_TASKS:
            if _still_owns(owned, member.revoking):
                return member
            # It has revoked everything. This alone moves it to the next epoch, so that commits which it sent before
            # can be told from those which it sends now.
            return _next(group, member, member.epoch + 1, target_epoch, target, owned)
        case _:
            if owned is None or owned != NO_TASKS:
                raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is not known: join again")
            return _next(group, member, target_epoch, target_epoch, target, owned)


def _next(
    group: StreamsGroup,
    member: StreamsMember,
    epoch: int,
    target_epoch: int,
    target: Tasks,
    owned: Tasks | None,
) -> StreamsMember:
    kept = member.assigned.both(target)
    revoked = member.assigned.minus(kept)
    if revoked != NO_TASKS and _still_owns(owned, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.at_epoch(epoch),
            assigned=kept,
            revoking=revoked,
            active_epochs={task: member.active_epochs[task] for task in kept.active | revoked.active},
        )
    wanted = target.minus(kept)
    free = _free(group, member.process_id, wanted)
    epochs = {task: member.active_epochs[task] for task in kept.active}
    epochs.update(dict.fromkeys(free.active, target_epoch))
    return replace(
        member,
        state=MemberState.STABLE if free == wanted else MemberState.UNRELEASED_TASKS,
        epoch=target_epoch,
        previous_epoch=member.at_epoch(target_epoch),
        assigned=kept.plus(free),
        revoking=NO_TASKS,
        active_epochs=epochs,
    )


def _free(group: StreamsGroup, process: str, wanted: Tasks) -> Tasks:
    """The tasks that the process may have now: it must not have them otherwise, and active ones nobody else."""
    owners, copies = group.owners, group.copies
    passive = wanted.standby | wanted.warmup
    usable = {task for task in passive if owners.get(task) != process and (task, process) not in copies}
    return Tasks(
        frozenset(task for task in wanted.active if task not in owners and (task, process) not in copies),
        wanted.standby & usable,
        wanted.warmup & usable,
    )


def _still_owns(owned: Tasks | None, revoked: Tasks) -> bool:
    """Whether revoked tasks are still owned. A member that does not report what it owns may own all of them."""
    return owned is None or owned.both(revoked) != NO_TASKS
