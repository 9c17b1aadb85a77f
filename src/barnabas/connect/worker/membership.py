"""A worker's part in the group of workers."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.membership import GroupMember
from barnabas.connect.errors import RetriableError
from barnabas.connect.worker.formats import Target, TaskId
from barnabas.connect.worker.herder import Assignment, Herder
from barnabas.connect.worker.services import Services
from barnabas.connect.worker.sharing import Unit, divided, pack, unpack

log = logging.getLogger("barnabas.connect")

PROTOCOL = ("connect", "barnabas")
"""Workers of Kafka's have other names of protocols: they and these cannot be in one group at a time."""


@dataclass(slots=True)
class Membership:
    """A worker in its group; see `client.membership.Part`."""

    services: Services
    herder: Herder
    is_leader: bool = False
    _has: set[Unit] = field(default_factory=set)
    _planned: set[Unit] | None = None
    _member: GroupMember | None = None

    def start(self) -> None:
        """Joins the group."""
        options = self.services.options
        self._member = GroupMember(
            options.own_client(),
            options.group,
            PROTOCOL,
            self,
            session_timeout_ms=options["session.timeout.ms"],
            rebalance_timeout_ms=options["rebalance.timeout.ms"],
        )
        self._member.start()

    def stop(self) -> None:
        """Leaves it."""
        if self._member is not None:
            self._member.stop()

    def look(self) -> None:
        """Called when configurations have changed: the leader divides them again if there are others than before."""
        if self.is_leader and self._member is not None and self._planned != set(self._units()):
            self._member.rejoin()

    def _units(self) -> list[Unit]:
        units: list[Unit] = []
        for row in self.services.board.all():
            units.append(row.name)
            if row.target is not Target.STOPPED:
                units += [TaskId(row.name, number) for number in range(len(row.tasks or ()))]
        return units

    # --- see client.membership.Part -------------------------------------------------------------------

    def metadata(self) -> bytes:
        """What this worker has, and where it is reached."""
        return pack(self._has, worker=self.services.worker_id)

    def divide(self, members: Sequence[tuple[str, bytes]]) -> Mapping[str, bytes]:
        """As leader."""
        try:
            self.services.logs.read_to_end([self.services.options.config_topic])
        except RetriableError as error:
            log.warning("connectors are divided as they are known", extra={"reason": str(error)})
        owned: dict[str, set[Unit]] = {}
        for name, data in members:
            try:
                owned[name] = unpack(data)
            except ValueError as error:
                log.warning("member is not a worker", extra={"member": name, "reason": str(error)})
        _warn_of_same_address(members)
        units = self._units()
        self._planned = set(units)
        return {name: pack(part) for name, part in divided(units, owned).items()}

    def take(self, assignment: bytes, member_id: str, is_leader: bool) -> None:
        """What this worker runs from now on."""
        self.is_leader = is_leader
        units = unpack(assignment)
        self._has = units
        tasks = frozenset(unit for unit in units if isinstance(unit, TaskId))
        connectors = frozenset(unit for unit in units if not isinstance(unit, TaskId))
        log.info("assigned", extra={"connectors": len(connectors), "tasks": len(tasks), "leader": is_leader})
        self.herder.assign(Assignment(connectors, tasks))
        self.look()

    def lose(self) -> None:
        """Others have taken over what this worker ran."""
        log.error(
            "this worker has lost its group: its tasks end", extra={"group": self.services.options.group}
        )
        self._has, self.is_leader = set(), False
        self.herder.assign(Assignment(frozenset(), frozenset()))


def _warn_of_same_address(members: Sequence[tuple[str, bytes]]) -> None:
    """Requests to restart a task are sent to the address of the worker that runs it."""
    addresses = [json.loads(data).get("worker") for _, data in members if data]
    same = {address for address in addresses if addresses.count(address) > 1}
    if same:
        log.error(
            "two workers have the same address; give each its own with --advertise",
            extra={"address": sorted(same)[0]},
        )
