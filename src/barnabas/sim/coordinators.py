"""What a restart would find of a coordinator's core, in a form that can be compared: the state follows from the log.

Pure. `check_follows_log` compares a core that serves with one that was only fed with the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from barnabas.cores.group import GroupCoordinatorCore
from barnabas.cores.group.classic.group import ClassicGroup, ClassicState
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.share.state import ShareStateCore
from barnabas.cores.group.state import Committed, Group, Partition
from barnabas.cores.group.streams.group import StreamsGroup
from barnabas.cores.transactions import TransactionCore
from barnabas.cores.transactions.state import NO_EPOCH

AnyCore = GroupCoordinatorCore | ShareStateCore | TransactionCore
View = dict[str, Any]
UNLOGGED: Final = "a classic group that has not been stable yet, or rebalances"


def check_follows_log(live: AnyCore, replayed: AnyCore, names: Collection[str] | None = None) -> None:
    """Raises AssertionError, saying what differs.

    names: the groups that may differ, where comparing all of them after each event would take too long; None for all.
    """
    if isinstance(live, GroupCoordinatorCore) and isinstance(replayed, GroupCoordinatorCore):
        _compare(group_view(live, names), group_view(replayed, names))
    elif isinstance(live, TransactionCore) and isinstance(replayed, TransactionCore):
        _compare(transaction_view(live), transaction_view(replayed))
    else:
        assert isinstance(live, ShareStateCore)
        assert isinstance(replayed, ShareStateCore)
        _compare({"states": live.states}, {"states": replayed.states})


def _compare(live: View, replayed: View) -> None:
    for part, values in live.items():
        others = replayed[part]
        for key in values.keys() | others.keys():
            here, there = values.get(key), others.get(key)
            if here is not UNLOGGED and not (here is None and there is UNLOGGED):
                assert here == there, f"{part} of {key!r}: memory has {here}, the log {there}"


def transaction_view(core: TransactionCore) -> View:
    """The transactional ids, without the epoch before the last, which no entry says."""
    return {
        "transactions": {
            name: known._replace(last_epoch=NO_EPOCH) for name, known in core.transactions.items()
        },
        "owners": core.owners,
    }


def group_view(core: GroupCoordinatorCore, names: Collection[str] | None = None) -> View:
    """Offsets, offsets that transactions hold, and groups.

    Classic groups are compared when they are stable, or have been and are empty: a rebalance is not in the log.
    """
    state = core.state
    names = state.groups.keys() | state.committed.keys() if names is None else names
    groups = {name: state.groups[name] for name in names if name in state.groups}
    return {
        "offsets": {name: _offsets(state.committed[name]) for name in names if name in state.committed},
        "held": {
            producer_id: {name: _offsets(offsets) for name, offsets in by_group.items()}
            for producer_id, by_group in state.pending.items()
        },
        "groups": {
            name: _classic_view(group) if isinstance(group, ClassicGroup) else _logged(group)
            for name, group in groups.items()
        },
    }


def _offsets(offsets: Mapping[Partition, Committed]) -> dict[Partition, Committed]:
    return {partition: committed._replace(sequence=0) for partition, committed in offsets.items()}


def _logged(group: Group) -> Group:
    """Without what only avoids work."""
    if isinstance(group, ConsumerGroup):
        return replace(group, topics_seen=0, topics_matched=0, assigned_ms=0)
    if isinstance(group, StreamsGroup):
        return replace(
            group,
            configured=None,
            topics_seen=0,
            assigned_ms=0,
            endpoint_epoch=0,
            endpoints=(-1, -1, ()),
            shutdown_by=None,
            reported={},
        )
    assert isinstance(group, ShareGroup)
    return replace(group, topics_seen=0)


def _classic_view(group: ClassicGroup) -> object:
    has_been_stable = group.state is ClassicState.EMPTY and group.generation_id > 0
    if group.state is not ClassicState.STABLE and not has_been_stable:
        return UNLOGGED
    return (
        group.state,
        group.state_since_ms,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        group.static_ids,
        group.subscribed_topics,
        [
            (
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                m.session_timeout_ms,
                m.rebalance_timeout_ms,
                m.metadata_for(group.protocol_name),
                m.assignment,
            )
            for m in group.members.values()
        ],
    )
