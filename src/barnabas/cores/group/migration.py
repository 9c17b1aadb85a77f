"""Migration between the two protocols: upgrade, downgrade, and groups with members of both.

A classic group becomes a consumer group when the first member with the new protocol joins: its members stay, with the
partitions that they own, and continue to use the classic protocol (consumer/classic_members). When the last member with the
new protocol leaves, the group becomes classic again and rebalances.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from barnabas.cores.group import records as classic_records
from barnabas.cores.group.assignors import Assignment
from barnabas.cores.group.classic import rebalance as classic_rebalance
from barnabas.cores.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from barnabas.cores.group.consumer import epochs as epochs
from barnabas.cores.group.consumer import records as records
from barnabas.cores.group.consumer.group import ClassicSide, ConsumerGroup, ConsumerMember
from barnabas.cores.group.events import JoinReply, SyncReply
from barnabas.cores.group.proposal import Proposal
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas import consumer_protocol as protocol

UPGRADES = frozenset({"bidirectional", "upgrade"})
DOWNGRADES = frozenset({"bidirectional", "downgrade"})


def consumer_group_for(
    proposal: Proposal, group_id: str, *, create: bool, is_member: bool = False
) -> ConsumerGroup:
    """A draft of the consumer group; it is created, or converted from a classic group, if a member wants to join.

    is_member: the caller is already a member; if the group no longer exists, it is told to join again.
    """
    group = proposal.find(group_id)
    if isinstance(group, ConsumerGroup):
        return proposal.edit(group)
    if group is None and is_member:
        # The coordinator lost the group, with the topic that stored it. Kafka answers GROUP_ID_NOT_FOUND, after which
        # clients give up; after this error they join again, and the group starts afresh.
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found: join again.")
    if not create:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if group is None:
        return proposal.put(ConsumerGroup(group_id))
    if isinstance(group, ClassicGroup):
        if group.is_empty and not group.pending_ids:
            proposal.record(classic_records.group_tombstone(group_id))
            return proposal.put(ConsumerGroup(group_id))
        if (
            proposal.state.limits.consumer_migration_policy in UPGRADES
            and group.uses_consumer_protocol
            and len(group.members) <= proposal.state.limits_of(group_id).consumer_max_size
        ):
            return _upgrade(proposal, group)
    raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def _upgrade(proposal: Proposal, classic: ClassicGroup) -> ConsumerGroup:
    """Convert a classic group. Raises GROUP_ID_NOT_FOUND if the subscriptions of its members cannot be read."""
    group = ConsumerGroup(classic.group_id)
    epoch = classic.generation_id
    try:
        members = [_upgraded_member(proposal, classic, member) for member in classic.members.values()]
    except WireError as error:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} cannot be upgraded: {error}"
        ) from error
    proposal.record(classic_records.group_tombstone(classic.group_id))
    proposal.put(group)
    taken: set[tuple[UUID, int]] = set()
    for member in members:
        records.write_member(proposal, group, member)
    records.write_epoch(proposal, group, epoch, 0)
    for index, member in enumerate(members):
        # A faulty assignor may have assigned a partition twice: only the first member keeps it.
        assigned = member.assigned - taken
        taken |= assigned
        members[index] = replace(member, assigned=assigned)
        records.write_target_member(proposal, group, member.member_id, assigned)
    records.write_target_epoch(proposal, group, epoch)
    for member in members:
        records.write_current(proposal, group, member)
        epochs.arm_session(proposal, group, member)
    for kind in (classic_rebalance.JOIN, classic_rebalance.INITIAL, classic_rebalance.SYNC):
        proposal.disarm(classic.group_id, "", kind)
    for pending_id in classic.pending_ids:
        proposal.disarm(classic.group_id, pending_id, classic_rebalance.SESSION)
    for waiting in classic.members.values():
        proposal.reply(waiting.join_token, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, waiting.member_id))
        proposal.reply(waiting.sync_token, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
    proposal.note("classic group upgraded", group=classic.group_id, epoch=epoch, members=len(members))
    return group


def _upgraded_member(proposal: Proposal, classic: ClassicGroup, member: ClassicMember) -> ConsumerMember:
    name = classic.protocol_name or member.protocols[0][0]
    subscription = protocol.ConsumerProtocolSubscription.decode_versioned(member.metadata_for(name))
    assigned: Assignment = frozenset()
    if member.assignment:
        decoded = protocol.ConsumerProtocolAssignment.decode_versioned(member.assignment)
        assigned = topic_ids(proposal, decoded.assigned_partitions)
    return ConsumerMember(
        member.member_id,
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
        epoch=classic.generation_id,
        previous_epoch=classic.generation_id,
        assigned=assigned,
    )


def should_become_classic(proposal: Proposal, group: ConsumerGroup) -> bool:
    """Whether only members with the classic protocol are left, and the policy allows a downgrade."""
    return (
        bool(group.members)
        and proposal.state.limits.consumer_migration_policy in DOWNGRADES
        and len(group.members) <= proposal.state.limits.group_max_size
        and all(member.classic is not None for member in group.members.values())
    )


def become_classic(proposal: Proposal, group: ConsumerGroup) -> None:
    """Replace the group by a classic one with the same members, which then rebalances."""
    members = list(group.members.values())
    epoch = group.epoch
    for member in members:
        epochs.drop_timers(proposal, group.group_id, member.member_id)
    records.write_group_gone(proposal, group)
    classic = ClassicGroup(
        group.group_id, ClassicState.STABLE, ClassicState.STABLE, proposal.now_ms, generation_id=epoch
    )
    for member in members:
        assert member.classic is not None
        downgraded = ClassicMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.classic.session_timeout_ms,
            member.classic.protocols,
            assignment=encode_assignment(proposal, member),
        )
        classic.add(downgraded, protocol.PROTOCOL_TYPE)
        classic_rebalance.arm_session(proposal, classic, downgraded)
    classic.protocol_name = classic.select_protocol()
    classic.read_subscribed_topics()
    proposal.put(classic)
    proposal.record(classic_records.group_metadata(classic))
    proposal.note(
        "consumer group became classic", group=group.group_id, generation=epoch, members=len(members)
    )
    classic_rebalance.prepare_rebalance(proposal, classic, "the last member of the consumer protocol left")


def fence_members(proposal: Proposal, group: ConsumerGroup, member_ids: list[str], reason: str) -> None:
    """Remove members at once; the others receive their partitions with their next heartbeats."""
    for member_id in member_ids:
        epochs.drop_timers(proposal, group.group_id, member_id)
        records.write_member_gone(proposal, group, member_id)
    proposal.note("members removed", group=group.group_id, members=member_ids, reason=reason)
    epochs.drop_unused_regexes(proposal, group)
    if should_become_classic(proposal, group):
        become_classic(proposal, group)
    else:
        records.write_epoch(proposal, group, group.epoch + 1, epochs.metadata_hash(proposal, group))


# --- the classic protocol's names for partitions


def topic_ids(proposal: Proposal, rows: list[protocol.TopicPartition]) -> Assignment:
    """Partitions by topic id; topics that do not exist are left out."""
    by_name = proposal.state.topics.by_name
    return frozenset(
        (by_name[row.topic].topic_id, partition)
        for row in rows
        if row.topic in by_name
        for partition in row.partitions
    )


def encode_assignment(proposal: Proposal, member: ConsumerMember) -> bytes:
    """The assignment that SyncGroup returns to a member, in the version of its subscription."""
    assert member.classic is not None
    metadata = member.classic.protocols[0][1]
    version = min(int.from_bytes(metadata[:2], "big"), protocol.ConsumerProtocolAssignment.VERSIONS[-1])
    names = proposal.state.topics.names
    rows = [
        protocol.TopicPartition(topic=names[topic_id], partitions=partitions)
        for topic_id, partitions in records.by_topic(member.assigned)
        if topic_id in names
    ]
    return protocol.ConsumerProtocolAssignment(assigned_partitions=rows).encode_versioned(version)
