"""Elects one writer: the instances are members of a consumer group of the protocol type `sr`.

The group's coordinator appoints one member as leader, which chooses the writer and announces it in the assignments.
Member metadata and assignments are Confluent's JSON, so that instances of both registries can be in one group.
A writer that was paused and resumes too late is fenced by its producer epoch (`store.Writer`), not by the election.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.options import ClientOptions
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

log = logging.getLogger("barnabas.registry")

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
DUPLICATE_URLS: Final = 1
REBALANCE_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Identity:
    """The address of an instance. eligible: it may become the writer. writing: it is the writer, and may remain it."""

    host: str
    port: int
    scheme: str = "http"
    eligible: bool = True
    writing: bool = False

    @property
    def url(self) -> str:
        """The URL at which other instances reach this one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def as_json(self) -> dict[str, Any]:
        """The member metadata of Confluent's instances, plus `writing`."""
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "writing": self.writing,
        }


def read_identity(raw: bytes | memoryview) -> Identity:
    """Parse member metadata. Raises ValueError, KeyError, TypeError."""
    held = json.loads(bytes(raw))
    return Identity(
        str(held["host"]),
        int(held["port"]),
        str(held.get("scheme") or "http"),
        bool(held.get("master_eligibility", True)),
        bool(held.get("writing")),
    )


def choose(members: Sequence[tuple[str, Identity]]) -> dict[str, Any]:
    """The assignment, which names the writer: the current one, else the eligible member with the smallest id."""
    urls = [identity.url for _, identity in members]
    if len(set(urls)) != len(urls):
        return {"error": DUPLICATE_URLS, "version": 1, "master": None, "master_identity": None}
    able = sorted((not identity.writing, name) for name, identity in members if identity.eligible)
    if not able:
        return {"error": 0, "version": 1, "master": None, "master_identity": None}
    name = able[0][1]
    return {"error": 0, "version": 1, "master": name, "master_identity": dict(members)[name].as_json()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an election. writer: its URL; None if there is none. own: the writer is this instance."""

    writer: str | None
    own: bool


class Election:
    """A member of the group, with a thread of its own. decided: called in that thread with each outcome."""

    def __init__(
        self,
        client: ClientOptions,
        group: str,
        identity: Identity,
        decided: Callable[[Outcome], None],
        *,
        session_timeout_ms: int = 10_000,
    ) -> None:
        # The response to a join waits until all members have rejoined: up to the rebalance timeout.
        self._client_options = replace(client, request_timeout_s=REBALANCE_TIMEOUT_MS / 1000 + 30)
        self.group = group
        self.identity = identity
        self.decided = decided
        self.session_timeout_ms = session_timeout_ms
        self._stopping = threading.Event()
        self._member_id = ""
        self._generation = -1
        self._client: BlockingClient | None = None
        self._thread = threading.Thread(target=self._run, name="registry election", daemon=True)

    def start(self) -> None:
        """Start the thread, which joins the group."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, so that another instance can take over at once. Blocks for up to 10 seconds."""
        self._stopping.set()
        self._thread.join(10)

    def _run(self) -> None:
        heard = time.monotonic()
        while not self._stopping.is_set():
            try:
                if self._client is None:
                    self._client = BlockingClient(self._client_options)
                self._join()
                heard = time.monotonic()
                while not self._stopping.wait(self.session_timeout_ms / 3000):
                    if not self._heartbeat():
                        break
                    heard = time.monotonic()
            except Exception as error:
                if not isinstance(error, ClientError):
                    log.exception("election failed")
                else:
                    log.warning(
                        "the group cannot be reached", extra={"group": self.group, "reason": str(error)}
                    )
                self._forget_client()
                if time.monotonic() - heard > self.session_timeout_ms / 1000:
                    self.decided(Outcome(None, False))
                self._stopping.wait(0.5)
        self._leave()

    def _forget_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, request: Any, response: Any) -> Any:
        assert self._client is not None
        return self._client.coordinator(self.group).call(request, response)

    def _join(self) -> None:
        protocol = JoinGroupRequestProtocol(
            name=PROTOCOL, metadata=json.dumps(self.identity.as_json()).encode()
        )
        while not self._stopping.is_set():
            answer = self._call(
                JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=self.session_timeout_ms,
                    rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                    member_id=self._member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[protocol],
                ),
                JoinGroupResponse,
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            if answer.error_code:
                self._failed(answer.error_code, "joining group")
            self._member_id, self._generation = answer.member_id, answer.generation_id
            if self._sync(answer.members if answer.leader == answer.member_id else ()):
                return

    def _failed(self, code: int, doing: str) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._member_id = ""
        raise BrokerError(code, f"{doing} {self.group}")

    def _sync(self, members: Sequence[JoinGroupResponseMember]) -> bool:
        """Whether the assignment was received; False if the group is rebalancing again."""
        assignments = []
        if members:
            known = []
            for member in members:
                try:
                    known.append((member.member_id, read_identity(member.metadata)))
                except (ValueError, KeyError, TypeError) as error:
                    log.warning(
                        "member is not a registry", extra={"member": member.member_id, "reason": str(error)}
                    )
            told = json.dumps(choose(known)).encode()
            assignments = [
                SyncGroupRequestAssignment(member_id=m.member_id, assignment=told) for m in members
            ]
        answer = self._call(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=assignments,
            ),
            SyncGroupResponse,
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        if answer.error_code:
            self._failed(answer.error_code, "forming group")
        self._decide(json.loads(bytes(answer.assignment)))
        return True

    def _decide(self, assignment: dict[str, Any]) -> None:
        if assignment.get("error") == DUPLICATE_URLS:
            log.error(
                "two instances advertise the same address; give each its own with --advertise",
                extra={"url": self.identity.url, "group": self.group},
            )
        writer = assignment.get("master")
        told = assignment.get("master_identity")
        own = writer is not None and writer == self._member_id
        self.identity = replace(self.identity, writing=own)
        url = read_identity(json.dumps(told).encode()).url if writer is not None and told else None
        log.info("writer elected", extra={"group": self.group, "writer": url, "own": own})
        self.decided(Outcome(url, own))

    def _heartbeat(self) -> bool:
        """Send a heartbeat; False if the group is rebalancing."""
        answer = self._call(
            HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._member_id),
            HeartbeatResponse,
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        if answer.error_code:
            self._failed(answer.error_code, "staying in group")
        return True

    def _leave(self) -> None:
        if not self._member_id:
            return
        try:
            if self._client is None:
                self._client = BlockingClient(self._client_options)
            connection = self._client.coordinator(self.group)
            if connection.version_for(LeaveGroupRequest) < 3:
                request = LeaveGroupRequest(group_id=self.group, member_id=self._member_id)
            else:
                members = [MemberIdentity(member_id=self._member_id)]
                request = LeaveGroupRequest(group_id=self.group, members=members)
            connection.call(request, LeaveGroupResponse)
        except ClientError as error:
            log.warning("cannot leave the group", extra={"group": self.group, "reason": str(error)})
        finally:
            self._forget_client()
