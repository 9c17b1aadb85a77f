"""Who is a member: what the kinds of groups have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from barnabas.wire.errors import ApiError, ErrorCode

Member = TypeVar("Member")


class Members(Generic[Member]):
    """A group that knows its members by their ids."""

    __slots__ = ()

    group_id: str
    members: dict[str, Member]

    def require_member(self, member_id: str) -> Member:
        """The member with this id. Raises ApiError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id!r} in {self.group_id!r}")
        return member


class StaticMembers(Members[Member]):
    """A group that knows some of its members by instance ids as well, which outlive the members' processes."""

    __slots__ = ()

    static_ids: dict[str, str]  # group instance id -> member id

    def require_static(self, instance_id: str, member_id: str) -> Member:
        """The member with an instance id. Raises ApiError UNKNOWN_MEMBER_ID, and FENCED_INSTANCE_ID if another process has
        become that member."""
        current_id = self.static_ids.get(instance_id)
        if current_id is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"no static member {instance_id!r} in {self.group_id!r}"
            )
        if current_id != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id!r} is now member {current_id!r}")
        return self.members[current_id]

    def require(self, member_id: str, instance_id: str | None) -> Member:
        """The member that says both. Raises ApiError as `require_static` does."""
        return (
            self.require_member(member_id)
            if instance_id is None
            else self.require_static(instance_id, member_id)
        )
