"""How one member follows the target assignment: the next step from its current to its target partitions.

Source: KIP-848, "Reconciliation"; the behaviour of Kafka 4's coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from barnabas.cores.group.assignors import NOTHING, Assignment, TopicPartition
from barnabas.cores.group.consumer.group import ConsumerMember, MemberState
from barnabas.wire.errors import ApiError, ErrorCode


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owners: Mapping[TopicPartition, str],
    owned: Assignment | None,
) -> ConsumerMember:
    """The member after this heartbeat. owned: the partitions that it reports to hold, None if it reports nothing.

    Raises FENCED_MEMBER_EPOCH for a member that still holds partitions and whose state is of an unknown, newer kind.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return member
        case MemberState.STABLE | MemberState.UNRELEASED_PARTITIONS:
            return _next(member, member.epoch, target_epoch, target, owners, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.revoking):
                return member
            # It has revoked everything. This alone moves it to the next epoch, so that commits which it sent before
            # can be told from those which it sends now.
            return _next(member, member.epoch + 1, target_epoch, target, owners, owned)
        case _:
            if owned is None or owned:
                raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is not known: join again")
            return _next(member, target_epoch, target_epoch, target, owners, owned)


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owners: Mapping[TopicPartition, str],
    owned: Assignment | None,
) -> ConsumerMember:
    kept = member.assigned & target
    revoked = member.assigned - target
    wanted = target - kept
    free = frozenset(tp for tp in wanted if owners.get(tp, member.member_id) == member.member_id)
    if revoked and _still_owns(owned, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.at_epoch(epoch),
            assigned=kept,
            revoking=revoked,
        )
    waits = len(free) < len(wanted)
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.at_epoch(target_epoch),
        assigned=kept | free,
        revoking=NOTHING,
    )


def _still_owns(owned: Assignment | None, revoked: Assignment) -> bool:
    """Whether revoked partitions are still owned. A member that does not report what it owns may own all of them."""
    return owned is None or bool(owned & revoked)
