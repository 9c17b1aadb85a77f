"""Committed offsets: OffsetCommit and TxnOffsetCommit, OffsetFetch, OffsetDelete, transactions, expiry.

Offsets committed within a transaction are held back (`State.pending`) until the transaction's marker arrives. Then they
become visible, unless the partition has a newer commit, or are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.cores.decision import DoneReply
from barnabas.cores.group import records
from barnabas.cores.group.classic.group import ClassicGroup, ClassicState
from barnabas.cores.group.classic.rebalance import arm_session
from barnabas.cores.group.consumer.epochs import arm_session as arm_consumer_session
from barnabas.cores.group.consumer.group import ConsumerGroup, ConsumerMember
from barnabas.cores.group.events import (
    CommitOffsets,
    CommitReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    EndTransaction,
    ExpireOffsets,
    FetchedOffset,
    FetchOffsets,
    FetchReply,
    ForgetOffsets,
    OffsetToCommit,
    PartitionResult,
)
from barnabas.cores.group.lifecycle import is_removable, remove_group
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.share.heartbeat import forget_topics
from barnabas.cores.group.state import Committed, Group, Partition
from barnabas.cores.group.streams.group import StreamsGroup
from barnabas.wire.errors import ApiError, ErrorCode

INT64_MAX: Final = (1 << 63) - 1


# --- commit


def decide_commit(proposal: Proposal, event: CommitOffsets) -> None:
    """OffsetCommit. As in Kafka, the empty group id is allowed here; its clients are not members of anything."""
    group = proposal.find(event.group_id)
    if group is None:
        if event.generation_id >= 0:
            # The group was deleted, or this coordinator never had it: the member has to join again.
            known = event.knows_member_epoch and event.producer is None
            code = ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
            raise ApiError(code, f"no group {event.group_id!r} on this coordinator")
    elif isinstance(group, ShareGroup):
        raise _no_offsets(event.group_id)
    elif isinstance(group, ClassicGroup):
        _check_classic_commit(proposal, group, event)
    elif isinstance(group, StreamsGroup):
        _check_streams_commit(group, event)
    else:
        _check_consumer_commit(proposal, group, event)
    results = []
    accepted: dict[Partition, OffsetToCommit] = {}
    for wanted in event.offsets:
        error = ErrorCode.NONE
        if len(wanted.metadata or "") > proposal.state.limits.offset_metadata_max_bytes:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            accepted[wanted.topic, wanted.partition] = wanted
        results.append(PartitionResult(wanted.topic, wanted.partition, error))
    if accepted:
        _store(proposal, event, accepted)
    proposal.reply(event.token, CommitReply(ErrorCode.NONE, tuple(results)))


def _no_offsets(group_id: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is a share group and commits no offsets."
    )


def _check_classic_commit(proposal: Proposal, group: ClassicGroup, event: CommitOffsets) -> None:
    """Raises ApiError unless the commit is allowed; a member's commit counts as its heartbeat."""
    in_transaction = event.producer is not None
    if group.state is ClassicState.DEAD:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group.group_id!r} is being deleted")
    if event.generation_id < 0 and group.is_empty:
        return  # an administrator, or a consumer that only stores its offsets here
    if event.generation_id >= 0 or event.member_id or event.group_instance_id is not None:
        member = group.require(event.member_id, event.group_instance_id)
        if event.generation_id != group.generation_id:
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION,
                f"{group.group_id!r} is at generation {group.generation_id}, not {event.generation_id}",
            )
        if in_transaction:
            return
        if group.state is ClassicState.COMPLETING_REBALANCE:
            # The generation is right, so the member is about to sync, and may have lost the partition.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"{group.group_id!r} rebalances: sync first")
        arm_session(proposal, group, member)
    elif not in_transaction:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{group.group_id!r} has members: only they may commit its offsets"
        )


def _check_consumer_commit(proposal: Proposal, group: ConsumerGroup, event: CommitOffsets) -> None:
    """Raises ApiError unless the commit is allowed; the member epoch takes the place of the generation."""
    in_transaction = event.producer is not None
    if event.generation_id < 0 and group.is_empty:
        return
    if in_transaction and event.generation_id < 0 and not event.member_id and event.group_instance_id is None:
        return
    member = group.require_member(event.member_id)
    if not in_transaction and member.classic is None and not event.knows_member_epoch:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "members of the consumer protocol commit with version 9"
        )
    _require_member_epoch(group, member, event.generation_id)
    if member.classic is not None and not in_transaction:
        arm_consumer_session(proposal, group, member)


def _require_member_epoch(group: ConsumerGroup, member: ConsumerMember, epoch: int) -> None:
    if epoch != member.epoch:
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise ApiError(
            code, f"{member.member_id!r} of {group.group_id!r} is at epoch {member.epoch}, not {epoch}"
        )


def _check_streams_commit(group: StreamsGroup, event: CommitOffsets) -> None:
    """Raises ApiError unless the commit is allowed.

    A member that has not yet learned of its newest epoch may commit for the tasks that it had before and still has: another
    member cannot have had them in between.
    """
    in_transaction = event.producer is not None
    if event.generation_id < 0 and group.is_empty:
        return
    if in_transaction and event.generation_id < 0 and not event.member_id and event.group_instance_id is None:
        return
    member = group.require_member(event.member_id)
    if not in_transaction and not event.knows_member_epoch:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "members of streams groups commit with version 9")
    if event.generation_id == member.epoch:
        return
    for wanted in event.offsets:
        since = group.assigned_at(member, wanted.topic, wanted.partition)
        if since is None or not since <= event.generation_id < member.epoch:
            raise ApiError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"{member.member_id!r} of {group.group_id!r} is at epoch {member.epoch}, not {event.generation_id}",
            )


def _store(proposal: Proposal, event: CommitOffsets, accepted: dict[Partition, OffsetToCommit]) -> None:
    """The offsets become visible, or are held back, when their entries are replayed."""
    now_ms, retention_ms = proposal.now_ms, event.retention_ms
    expire_ms = -1 if retention_ms < 0 else min(now_ms + retention_ms, INT64_MAX)
    for partition, wanted in accepted.items():
        timestamp_ms = wanted.commit_timestamp_ms
        entry = records.offset_commit(
            event.group_id,
            partition,
            wanted.offset,
            wanted.leader_epoch,
            wanted.metadata or "",
            now_ms if timestamp_ms < 0 else timestamp_ms,
            expire_ms,
        )
        proposal.record(entry)
    proposal.producer = event.producer


def decide_end_transaction(proposal: Proposal, event: EndTransaction) -> None:
    """A transaction's marker has arrived. It is replayed when this is applied (GroupCoordinatorCore.apply)."""
    proposal.reply(event.token, DoneReply())


# --- fetch


def decide_fetch(proposal: Proposal, event: FetchOffsets) -> None:
    """OffsetFetch of one group."""
    group = proposal.find(event.group_id)
    if group is None and event.member_epoch >= 0:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {event.group_id!r} on this coordinator")
    if isinstance(group, ShareGroup):
        raise _no_offsets(event.group_id)
    if isinstance(group, ConsumerGroup) and (event.member_id or event.member_epoch >= 0):
        _require_member_epoch(group, group.require_member(event.member_id or ""), event.member_epoch)
    if isinstance(group, StreamsGroup) and (event.member_id or event.member_epoch >= 0):
        _require_streams_epoch(group, event)
    wanted: Iterable[Partition] | None = event.partitions
    if wanted is None:
        known = proposal.state.partitions_of(event.group_id, pending=event.require_stable)
        offsets = proposal.state.offsets_of(event.group_id)
        wanted = [
            p for p in known if p not in offsets or proposal.state.visible(event.group_id, p) is not None
        ]
    pending = proposal.state.held_of(event.group_id) if event.require_stable else []
    answers = []
    for partition in wanted:
        committed = proposal.state.visible(event.group_id, partition)
        if pending and any(partition in offsets for offsets in pending):
            answers.append(FetchedOffset(*partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif committed is None:
            answers.append(FetchedOffset(*partition))
        else:
            answers.append(
                FetchedOffset(*partition, committed.offset, committed.leader_epoch, committed.metadata)
            )
    proposal.reply(event.token, FetchReply(event.group_id, ErrorCode.NONE, tuple(answers)))


def _require_streams_epoch(group: StreamsGroup, event: FetchOffsets) -> None:
    member = group.require_member(event.member_id or "")
    if event.member_epoch != member.epoch:
        raise ApiError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"{member.member_id!r} of {group.group_id!r} is at epoch {member.epoch}, not {event.member_epoch}",
        )


# --- delete


def decide_delete(proposal: Proposal, event: DeleteOffsets) -> None:
    """OffsetDelete: delete offsets of topics that no member subscribes to."""
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    group = proposal.require(event.group_id, ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ShareGroup):
        raise _no_offsets(event.group_id)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
        raise ApiError(
            ErrorCode.NON_EMPTY_GROUP,
            f"{event.group_id!r} has members whose topics are not known: stop them first",
        )
    results = []
    for partition in event.partitions:
        subscribed = not group.is_empty and group.subscribes_to(partition[0])
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        if not subscribed:
            forget(proposal, event.group_id, partition)
        results.append(PartitionResult(*partition, error))
    proposal.reply(event.token, DeleteOffsetsReply(ErrorCode.NONE, tuple(results)))


def forget(proposal: Proposal, group_id: str, partition: Partition) -> bool:
    """Write a tombstone if there is an offset; offsets in open transactions are dropped as well."""
    if partition not in proposal.state.offsets_of(group_id) and partition not in proposal.state.pending_of(
        group_id
    ):
        return False
    proposal.record(records.offset_tombstone(group_id, partition))
    return True


def decide_forget(proposal: Proposal, event: ForgetOffsets) -> None:
    """Part of what one group has to forget after topics were deleted."""
    group = proposal.find(event.group_id)
    if isinstance(group, ShareGroup):
        known = {**group.initialized, **group.initializing}
        gone = {topic_id: topic for topic_id, topic in known.items() if topic.name in event.topics}
        forget_topics(proposal, proposal.edit(group), gone)
    else:
        for partition in event.partitions:
            if not _has_newer(proposal, event, partition):
                forget(proposal, event.group_id, partition)
    proposal.reply(event.token, DoneReply())


def _has_newer(proposal: Proposal, event: ForgetOffsets, partition: Partition) -> bool:
    """Whether something was committed after the deletion, that is, for a new topic of the same name."""
    committed = proposal.state.offsets_of(event.group_id).get(partition)
    if committed is not None and committed.sequence > event.newest_sequence:
        return True
    pending = (
        by_group.get(event.group_id, {}).get(partition) for by_group in proposal.state.pending.values()
    )
    return any(offset is not None and offset.sequence > event.newest_sequence for offset in pending)


# --- expiry


def decide_expire(proposal: Proposal, event: ExpireOffsets) -> None:
    """Part of the expiry in one group: drop old offsets, and the group itself if nothing is left of it."""
    group = proposal.find(event.group_id)
    if group is not None:
        offsets = proposal.state.offsets_of(event.group_id)
        pending = set(proposal.state.pending_of(event.group_id))
        expired = [
            partition
            for partition in event.partitions
            if partition in offsets
            and partition not in pending
            and _is_expired(proposal, group, partition, offsets[partition])
        ]
        for partition in expired:
            forget(proposal, event.group_id, partition)
        if expired:
            proposal.note("offsets expired", group=event.group_id, partitions=len(expired))
        if event.is_last and len(expired) == len(offsets) and not pending and is_removable(group):
            remove_group(proposal, group)
            proposal.note("empty group without offsets removed", group=event.group_id)
    proposal.reply(event.token, DoneReply())


def _is_expired(proposal: Proposal, group: Group, partition: Partition, committed: Committed) -> bool:
    """Whether this offset has expired.

    A group that was used with subscriptions keeps all offsets until it has been empty for the whole retention time; while it
    is stable, only offsets of topics without a subscription expire. Offsets of a simple consumer expire one by one, counted
    from their commit.
    """
    base_ms = committed.commit_timestamp_ms
    if isinstance(group, ConsumerGroup | ShareGroup | StreamsGroup):
        if group.subscribes_to(partition[0]):
            return False
    elif group.protocol_type is not None:
        if group.is_empty:
            base_ms = group.state_since_ms if group.state_since_ms >= 0 else base_ms
        elif group.state is ClassicState.STABLE and group.uses_consumer_protocol:
            if group.subscribed_topics is None or group.subscribes_to(partition[0]):
                return False
        else:
            return False
    if committed.expire_timestamp_ms >= 0:
        return proposal.now_ms >= committed.expire_timestamp_ms
    return proposal.now_ms - base_ms >= proposal.state.limits.offsets_retention_ms
