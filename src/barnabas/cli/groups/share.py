"""Share groups for `barnabas group`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.admin import LATEST, Admin, ShareGroup, TopicPartition
from barnabas.cli.admin import Key
from barnabas.client.errors import UnsupportedByBroker
from barnabas.wire.errors import ErrorCode

SHARE: Final = "share"


def share_groups_of(admin: Admin, names: Sequence[str]) -> dict[str, ShareGroup]:
    """Those of the names that are share groups; none where the broker has no share groups. Raises ClientError."""
    results = admin.share_groups.describe(names)
    if any(isinstance(error, UnsupportedByBroker) for error in results.failed.values()):
        return {}
    return dict(results.except_for(ErrorCode.GROUP_ID_NOT_FOUND).require())


def share_group_details(admin: Admin, names: Sequence[str]) -> list[dict[str, Any]]:
    """What `group describe` shows about those of the names that are share groups. Raises ClientError."""
    return [_detail(admin, group) for group in share_groups_of(admin, names).values()]


def _detail(admin: Admin, group: ShareGroup) -> dict[str, Any]:
    offsets = admin.share_groups.offsets([group.name])[group.name]
    ends = admin.records.offsets(dict.fromkeys(offsets, LATEST)).done
    return {
        "group": group.name,
        "state": group.state.lower(),
        "type": SHARE,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "lag": sum(offset.lag or 0 for offset in offsets.values()),
        "offsets": [
            {
                "topic": key.topic,
                "partition": key.partition,
                "start": offset.start,
                "end": ends[key].offset if key in ends else None,
                "lag": offset.lag,
            }
            for key, offset in sorted(offsets.items())
        ],
        "members": [
            {
                "member": member.id,
                "client": member.client,
                "instance": None,
                "host": member.host,
                "partitions": [f"{part.topic}:{part.partition}" for part in member.assigned],
            }
            for member in group.members
        ],
    }


def share_offsets_of(admin: Admin, name: str) -> dict[Key, int] | None:
    """Where a share group begins; None when the group is not one. Raises ClientError."""
    if not share_groups_of(admin, [name]):
        return None
    offsets = admin.share_groups.offsets([name])[name]
    return {key: int(offset.start) for key, offset in offsets.items() if offset.start is not None}


def alter_shares(admin: Admin, name: str, wanted: Mapping[Key, int]) -> None:
    """Set where a share group begins; it must have no members. Raises ClientError."""
    offsets = {TopicPartition(*key): offset for key, offset in wanted.items()}
    admin.share_groups.alter_offsets(name, offsets).require()
