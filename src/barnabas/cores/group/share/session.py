"""Share sessions (KIP-932): the partitions that a member of a share group fetches, remembered between requests.

There is one session per (group, member). Each request has the next epoch, so that repeated or lost requests are noticed;
epoch 0 opens a new session, -1 ends it. A session belongs to the connection that opened it (`owner`) and ends with it: the
member's locked records become available at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.wire.errors import ApiError, ErrorCode

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = (1 << 31) - 1

ShareTopicPartition = tuple[UUID, int]


class SessionKey(NamedTuple):
    """Identifies the session of one member."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """`partitions`: in the order in which they are read; `epoch`: expected in the next request."""

    key: SessionKey
    owner: Hashable
    epoch: int = 1
    partitions: dict[ShareTopicPartition, None] = field(default_factory=dict)


class ShareSessions:
    """The share sessions of one broker; at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._owned: dict[Hashable, set[SessionKey]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession | None:
        """The session of a member, or None."""
        return self._sessions.get(key)

    def has_group(self, group_id: str) -> bool:
        """Whether any member of the group has a session here."""
        return any(key.group_id == group_id for key in self._sessions)

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        added: Iterable[ShareTopicPartition],
        forgotten: Iterable[ShareTopicPartition],
        owner: Hashable,
    ) -> ShareSession:
        """The session for a ShareFetch with `epoch` (not -1), updated.

        Raises ApiError SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED.
        """
        if epoch == INITIAL_EPOCH:
            self.close(key)
            if len(self._sessions) >= self.limit:
                raise ApiError(
                    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                    f"{self.limit} share sessions are open, which is group.share.max.share.sessions",
                )
            session = self._sessions[key] = ShareSession(key, owner)
            self._owned.setdefault(owner, set()).add(key)
        else:
            session = self._continued(key, epoch)
        session.partitions.update(dict.fromkeys(added))
        for gone in forgotten:
            session.partitions.pop(gone, None)
        return session

    def acknowledge(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session for a ShareAcknowledge; epoch -1 leaves it to `close`. Raises ApiError as `fetch`."""
        if epoch == INITIAL_EPOCH:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "acknowledgements cannot open a share session"
            )
        return self.require(key) if epoch == FINAL_EPOCH else self._continued(key, epoch)

    def require(self, key: SessionKey) -> ShareSession:
        """The session of a member. Raises ApiError SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(key)
        if session is None:
            raise ApiError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {key.member_id!r} of {key.group_id!r} has no share session here",
            )
        return session

    def _continued(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self.require(key)
        if session.epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the share session of {key.member_id!r} is at epoch {session.epoch}, the request at {epoch}",
            )
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        """End a session and return it; None if there is none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            keys = self._owned[session.owner]
            keys.discard(key)
            if not keys:
                del self._owned[session.owner]
        return session

    def close_owned(self, owner: Hashable) -> list[ShareSession]:
        """End the sessions of a closed connection, and return them."""
        closed = [self.close(key) for key in sorted(self._owned.get(owner, ()))]
        return [session for session in closed if session is not None]

    def served_last(self, session: ShareSession, served: Iterable[ShareTopicPartition]) -> None:
        """Move partitions that returned records to the end, so that under a limit each gets its turn."""
        for partition in served:
            if partition in session.partitions:
                del session.partitions[partition]
                session.partitions[partition] = None
