"""Share groups for `barnabas group`: librdkafka's admin client does not know them, so Barnabas's own client is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.cli.direct import direct
from barnabas.client.errors import UnsupportedByBroker
from barnabas.kafka_tools.common import Admin
from barnabas.kafka_tools.group_views import end_offsets
from barnabas.kafka_tools.groups import all_groups
from barnabas.kafka_tools.share_views import (
    Key,
    ShareView,
    alter_share_offsets,
    find_share_group,
    share_offsets,
)

SHARE: Final = "share"


def share_group_rows(bootstrap: str | None, properties: Iterable[str] | None) -> list[dict[str, Any]]:
    """Rows of `group list`; none where the broker has no share groups. Raises CliError."""
    with direct(bootstrap, properties) as admin:
        groups = [group for group in all_groups(admin) if str(group.group_type).lower() == SHARE]
    return [{"group": group.group_id, "state": group.group_state.lower(), "type": SHARE} for group in groups]


def share_group_details(
    bootstrap: str | None, properties: Iterable[str] | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    """What `group describe` shows about those of the names that are share groups. Raises CliError."""
    with direct(bootstrap, properties) as admin:
        try:
            found = [find_share_group(admin, name) for name in names]
        except UnsupportedByBroker:
            return []
        return [_detail(admin, group) for group in found if group is not None]


def _detail(admin: Admin, group: ShareView) -> dict[str, Any]:
    offsets = share_offsets(admin, group.name)
    ends = end_offsets(admin, offsets)
    return {
        "group": group.name,
        "state": group.state.lower(),
        "type": SHARE,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "lag": sum(offset.lag or 0 for offset in offsets.values()),
        "offsets": [
            {
                "topic": key[0],
                "partition": key[1],
                "start": offset.start,
                "end": ends.get(key),
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
                "partitions": [f"{topic}:{i}" for topic, parts in member.assigned.items() for i in parts],
            }
            for member in group.members
        ],
    }


def share_offsets_of(
    bootstrap: str | None, properties: Iterable[str] | None, name: str
) -> dict[Key, int] | None:
    """Where a share group begins; None when the group is not one. Raises CliError."""
    with direct(bootstrap, properties) as admin:
        try:
            if find_share_group(admin, name) is None:
                return None
        except UnsupportedByBroker:
            return None
        offsets = share_offsets(admin, name)
        return {key: offset.start for key, offset in offsets.items() if offset.start is not None}


def alter_shares(
    bootstrap: str | None, properties: Iterable[str] | None, name: str, wanted: Mapping[Key, int]
) -> None:
    """Set where a share group begins; it must have no members. Raises CliError."""
    with direct(bootstrap, properties) as admin:
        alter_share_offsets(admin, name, wanted)
