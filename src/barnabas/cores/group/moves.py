"""Moves groups that are stored in the wrong partition of the offsets topic to the right one.

Earlier versions computed the partition of a group differently from Kafka. When such a partition is loaded, the
group is first written to its own partition (AdoptGroup) and then removed from the wrong one (DisownGroup). After a crash in
between it is in both; the move is then repeated, and the contents of the right partition take precedence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from barnabas.cores.decision import DoneReply
from barnabas.cores.group import records
from barnabas.cores.group.classic.group import ClassicGroup
from barnabas.cores.group.consumer import records as consumer_records
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share import records as share_records
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.state import Committed, Group, Partition, State
from barnabas.cores.group.streams import records as streams_records
from barnabas.cores.group.streams.group import StreamsGroup
from barnabas.wire.errors import ErrorCode

PIECE = 500


@dataclass(frozen=True, slots=True)
class AdoptGroup:
    """A group from another partition or, if `group` is None, more of its offsets."""

    token: object
    now_ms: int
    group_id: str
    group: Group | None
    offsets: Mapping[Partition, Committed]

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


@dataclass(frozen=True, slots=True)
class DisownGroup:
    """Remove offsets that another partition has received; with `is_last` also the group itself."""

    token: object
    now_ms: int
    group_id: str
    partitions: tuple[Partition, ...]
    is_last: bool

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


def export(state: State, group_id: str, now_ms: int) -> Iterator[AdoptGroup]:
    """The group and its offsets; offsets in open transactions are left out."""
    offsets = list(state.offsets_of(group_id).items())
    group = state.groups.get(group_id)
    for begin in range(0, max(len(offsets), 1), PIECE):
        yield AdoptGroup(
            None, now_ms, group_id, None if begin else group, dict(offsets[begin : begin + PIECE])
        )


def disown(state: State, group_id: str, now_ms: int) -> Iterator[DisownGroup]:
    """Offsets first: what remains after a crash is still known to belong to the group."""
    partitions = [*state.offsets_of(group_id), *state.pending_of(group_id)]
    for begin in range(0, max(len(partitions), 1), PIECE):
        piece = tuple(partitions[begin : begin + PIECE])
        yield DisownGroup(None, now_ms, group_id, piece, begin + PIECE >= len(partitions))


def decide_adopt(proposal: Proposal, event: AdoptGroup) -> None:
    """Store a group or offsets from another partition, unless they exist here: those are at least as new."""
    present = proposal.find(event.group_id)
    is_nothing = event.group is None or (_is_placeholder(event.group) and not event.offsets)
    if event.group is not None and not is_nothing and (present is None or _is_placeholder(present)):
        _write_group(proposal, event.group)
    known = proposal.state.offsets_of(event.group_id)
    for partition, committed in event.offsets.items():
        old = known.get(partition)
        if old is None or old.commit_timestamp_ms < committed.commit_timestamp_ms:
            proposal.record(records.offset_commit(event.group_id, partition, *committed[:5]))
    proposal.reply(event.token, DoneReply())


def _is_placeholder(group: Group) -> bool:
    """Whether the group exists only for its offsets and nothing is known of members."""
    return isinstance(group, ClassicGroup) and group.generation_id == 0 and group.is_empty


def _write_group(proposal: Proposal, group: Group) -> None:
    """Write the group with all its entries, in one batch."""
    draft = proposal.put(group.copy())
    if isinstance(draft, ClassicGroup):
        if not _is_placeholder(draft):
            proposal.record(records.group_metadata(draft))
    elif isinstance(draft, ConsumerGroup):
        _write_consumer(proposal, draft)
    elif isinstance(draft, StreamsGroup):
        _write_streams(proposal, draft)
    else:
        share_records.write_epoch(proposal, draft, draft.epoch, draft.metadata_hash)
        for sharer in list(draft.members.values()):
            share_records.write_member(proposal, draft, sharer)
        for member_id, target in list(draft.target.items()):
            share_records.write_target_member(proposal, draft, member_id, target)
        share_records.write_target_epoch(proposal, draft, draft.target_epoch)
        for sharer in list(draft.members.values()):
            share_records.write_current(proposal, draft, sharer)
        share_records.write_topics(proposal, draft)


def _write_consumer(proposal: Proposal, draft: ConsumerGroup) -> None:
    consumer_records.write_epoch(proposal, draft, draft.epoch, draft.metadata_hash)
    for member in list(draft.members.values()):
        consumer_records.write_member(proposal, draft, member)
    for regex, resolved in list(draft.regexes.items()):
        consumer_records.write_regex(proposal, draft, regex, resolved)
    for member_id, target in list(draft.target.items()):
        consumer_records.write_target_member(proposal, draft, member_id, target)
    consumer_records.write_target_epoch(proposal, draft, draft.target_epoch)
    for member in list(draft.members.values()):
        consumer_records.write_current(proposal, draft, member)


def _write_streams(proposal: Proposal, draft: StreamsGroup) -> None:
    streams_records.write_epoch(
        proposal,
        draft,
        draft.epoch,
        draft.metadata_hash,
        draft.validated_topology_epoch,
        draft.last_configs,
    )
    if draft.topology is not None:
        streams_records.write_topology(proposal, draft, draft.topology)
    for member in list(draft.members.values()):
        streams_records.write_member(proposal, draft, member)
    for member_id, target in list(draft.target.items()):
        streams_records.write_target_member(proposal, draft, member_id, target)
    streams_records.write_target_epoch(proposal, draft, draft.target_epoch)
    for member in list(draft.members.values()):
        streams_records.write_current(proposal, draft, member)


def decide_disown(proposal: Proposal, event: DisownGroup) -> None:
    """Only tombstones, no effects, since the group lives on elsewhere."""
    for partition in event.partitions:
        proposal.record(records.offset_tombstone(event.group_id, partition))
    group = proposal.find(event.group_id)
    if event.is_last and isinstance(group, ConsumerGroup):
        consumer_records.write_group_gone(proposal, proposal.edit(group))
    elif event.is_last and isinstance(group, StreamsGroup):
        streams_records.write_group_gone(proposal, proposal.edit(group))
    elif event.is_last and isinstance(group, ShareGroup):
        share_records.write_group_gone(proposal, proposal.edit(group))
    if event.is_last:
        proposal.record(records.group_tombstone(event.group_id))
        proposal.remove(event.group_id)
    proposal.reply(event.token, DoneReply())
