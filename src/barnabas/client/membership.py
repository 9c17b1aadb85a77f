"""A member of a group of services: the coordinator appoints a leader among them, which gives each member its part.

The classic group protocol, with any protocol type; what metadata and assignments mean is up to the caller. Kafka Connect's
workers find each other in this way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.options import ClientOptions
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

log = logging.getLogger("barnabas.client")

PAUSE_S: Final = 0.5


class Part(Protocol):
    """What a member does in its group. Called in the member's thread."""

    def metadata(self) -> bytes:
        """What the leader is to know of this member."""

    def divide(self, members: Sequence[tuple[str, bytes]]) -> Mapping[str, bytes]:
        """As leader: the assignment of each member, of ids and metadata."""

    def take(self, assignment: bytes, member_id: str, is_leader: bool) -> None:
        """The assignment of this member, which has this id, from now on."""

    def lose(self) -> None:
        """The group has not been heard of for the session's time: others have taken over."""


class GroupMember:
    """A member with a thread of its own. session_timeout_ms: after so long without a sign of life, it is taken for dead."""

    def __init__(
        self,
        client: ClientOptions,
        group: str,
        protocol: tuple[str, str],
        part: Part,
        *,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 10_000,
    ) -> None:
        """protocol: its type and name, the same for all members."""
        # The answer to a join comes when all members have joined again.
        self._options = replace(client, request_timeout_s=rebalance_timeout_ms / 1000 + 30)
        self._group, self._protocol, self._part = group, protocol, part
        self._session_ms, self._rebalance_ms = session_timeout_ms, rebalance_timeout_ms
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._member_id, self._generation = "", -1
        self._client: BlockingClient | None = None
        self._thread = threading.Thread(target=self._run, name=f"member of {group}", daemon=True)

    def start(self) -> None:
        """Joins the group."""
        self._thread.start()

    def stop(self) -> None:
        """Leaves it, so that others take over at once."""
        self._stopping.set()
        self._again.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def rejoin(self) -> None:
        """Has everything divided again."""
        self._again.set()

    def _run(self) -> None:
        heard = time.monotonic()
        is_lost = False
        while not self._stopping.is_set():
            try:
                if self._client is None:
                    self._client = BlockingClient(self._options)
                self._join()
                is_lost = False
                heard = self._stay()
            except Exception as error:
                if isinstance(error, ClientError):
                    log.warning(
                        "the group cannot be reached", extra={"group": self._group, "reason": str(error)}
                    )
                else:
                    log.exception("a member of a group failed", extra={"group": self._group})
                self._forget()
                if not is_lost and time.monotonic() - heard > self._session_ms / 1000:
                    is_lost = True
                    self._part.lose()
                self._stopping.wait(PAUSE_S)
        self._leave()

    def _stay(self) -> float:
        """Sends heartbeats until the group is to be divided again; when the last one was answered."""
        heard = time.monotonic()
        while not self._stopping.is_set():
            if self._again.wait(min(self._session_ms / 3000, 1.0)):
                return heard
            answer = self._call(
                HeartbeatRequest(
                    group_id=self._group, generation_id=self._generation, member_id=self._member_id
                ),
                HeartbeatResponse,
            )
            heard = time.monotonic()
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                return heard
            if answer.error_code:
                self._failed(answer.error_code, "staying in group")
        return heard

    def _call(self, request: Any, response: Any) -> Any:
        assert self._client is not None
        return self._client.coordinator(self._group).call(request, response)

    def _failed(self, code: int, doing: str) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._member_id = ""
        raise BrokerError(code, f"{doing} {self._group}")

    def _join(self) -> None:
        kind, name = self._protocol
        while not self._stopping.is_set():
            self._again.clear()
            answer = self._call(
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=self._session_ms,
                    rebalance_timeout_ms=self._rebalance_ms,
                    member_id=self._member_id,
                    protocol_type=kind,
                    protocols=[JoinGroupRequestProtocol(name=name, metadata=self._part.metadata())],
                ),
                JoinGroupResponse,
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            if answer.error_code:
                self._failed(answer.error_code, "joining group")
            self._member_id, self._generation = answer.member_id, answer.generation_id
            is_leader = answer.leader == answer.member_id
            members = [(row.member_id, bytes(row.metadata)) for row in answer.members] if is_leader else []
            if self._sync(members, is_leader):
                return

    def _sync(self, members: Sequence[tuple[str, bytes]], is_leader: bool) -> bool:
        """Whether there is an assignment; False if the group is being divided again."""
        divided = self._part.divide(members) if is_leader else {}
        answer = self._call(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type=self._protocol[0],
                protocol_name=self._protocol[1],
                assignments=[
                    SyncGroupRequestAssignment(member_id=name, assignment=data)
                    for name, data in divided.items()
                ],
            ),
            SyncGroupResponse,
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        if answer.error_code:
            self._failed(answer.error_code, "forming group")
        self._part.take(bytes(answer.assignment), self._member_id, is_leader)
        return True

    def _forget(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _leave(self) -> None:
        if not self._member_id:
            return
        try:
            if self._client is None:
                self._client = BlockingClient(self._options)
            connection = self._client.coordinator(self._group)
            if connection.version_for(LeaveGroupRequest) < 3:
                request = LeaveGroupRequest(group_id=self._group, member_id=self._member_id)
            else:
                members = [MemberIdentity(member_id=self._member_id)]
                request = LeaveGroupRequest(group_id=self._group, members=members)
            connection.call(request, LeaveGroupResponse)
        except ClientError as error:
            log.warning("cannot leave the group", extra={"group": self._group, "reason": str(error)})
        finally:
            self._forget()
