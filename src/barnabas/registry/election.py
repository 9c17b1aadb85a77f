"""Elects one writer: the instances are members of a consumer group of the protocol type `sr`.

The group's coordinator appoints one member as leader, which chooses the writer and announces it in the assignments.
Member metadata and assignments are Confluent's JSON, so that instances of both registries can be in one group.
A writer that was paused and resumes too late is fenced by its producer epoch (`store.Writer`), not by the election.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from barnabas.client.membership import GroupMember
from barnabas.client.options import ClientOptions

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
    fields = json.loads(bytes(raw))
    return Identity(
        str(fields["host"]),
        int(fields["port"]),
        str(fields.get("scheme") or "http"),
        bool(fields.get("master_eligibility", True)),
        bool(fields.get("writing")),
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
        self.group = group
        self.identity = identity
        self.decided = decided
        self._member = GroupMember(
            client,
            group,
            (PROTOCOL_TYPE, PROTOCOL),
            self,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )

    def start(self) -> None:
        """Start the thread, which joins the group."""
        self._member.start()

    def stop(self) -> None:
        """Leave the group, so that another instance can take over at once. Blocks for up to 10 seconds."""
        self._member.stop()

    # --- see client.membership.Part -----------------------------------------------------------------------

    def metadata(self) -> bytes:
        """The identity."""
        return json.dumps(self.identity.as_json()).encode()

    def divide(self, members: Sequence[tuple[str, bytes]]) -> Mapping[str, bytes]:
        """All are told which one is the writer."""
        known = []
        for name, data in members:
            try:
                known.append((name, read_identity(data)))
            except (ValueError, KeyError, TypeError) as error:
                log.warning("member is not a registry", extra={"member": name, "reason": str(error)})
        choice = json.dumps(choose(known)).encode()
        return {name: choice for name, _ in members}

    def take(self, assignment: bytes, member_id: str, is_leader: bool) -> None:
        """Which one is the writer."""
        choice = json.loads(assignment)
        if choice.get("error") == DUPLICATE_URLS:
            log.error(
                "two instances advertise the same address; give each its own with --advertise",
                extra={"url": self.identity.url, "group": self.group},
            )
        writer = choice.get("master")
        identity = choice.get("master_identity")
        own = writer is not None and writer == member_id
        self.identity = replace(self.identity, writing=own)
        url = read_identity(json.dumps(identity).encode()).url if writer is not None and identity else None
        log.info("writer elected", extra={"group": self.group, "writer": url, "own": own})
        self.decided(Outcome(url, own))

    def lose(self) -> None:
        """There may be another writer."""
        self.decided(Outcome(None, False))
