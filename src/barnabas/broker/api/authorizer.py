"""Who may do what. Asked by the dispatcher and by handlers; results are cached per connection until access rules change.

When rules change, connections forget the results that these affect, and the lanes that they learned from allowed requests.
A fetch that waits looks again at once, and answers with an error where a right is gone. Connections stay open: the next
request of each is checked afresh, also within a session, and what the lost right does not concern goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_security as options
from barnabas.cores.acl import (
    CLUSTER_NAME,
    SUPPORTED,
    AclIndex,
    Operation,
    Resource,
    ResourceType,
    Rule,
    applies_to,
)

if TYPE_CHECKING:
    from barnabas.broker.api.audit import AuditTopic
    from barnabas.broker.net.connection import Connection
    from barnabas.config.loader import BrokerConfig

audit: Final = logging.getLogger("barnabas.audit")
log = logging.getLogger("barnabas.authorizer")

KEPT_PER_CONNECTION_MAX: Final = 20_000
Key = tuple[Operation, ResourceType, str]


class Authorizer:
    """See the module."""

    def __init__(self, config: BrokerConfig, connections: Callable[[], Iterable[Connection]]) -> None:
        names = config.get(options.SUPER_USERS).split(";")
        self._super_users = frozenset(name.strip() for name in names if name.strip())
        self._if_none_found = config.get(options.ALLOW_EVERYONE_IF_NO_ACL_FOUND)
        self._connections = connections
        self._index = AclIndex()
        self.topic: AuditTopic | None = None
        """Where denials and grants are written in addition to the log."""

    def set_rules(self, changed: Iterable[tuple[Resource, frozenset[Rule]]]) -> None:
        """Replace the rules of resources, also for what connections have been allowed before."""
        resources = []
        for resource, rules in changed:
            self._index.set(resource, rules)
            resources.append(resource)
        for connection in list(self._connections()):
            try:
                self._review(connection, resources)
            except Exception as error:  # what it may still do is not known
                connection.fail(error)

    def _review(self, connection: Connection, changed: list[Resource]) -> None:
        connection.kept = None  # its lanes, which were learned from allowed requests
        rights: dict[Key, bool] = connection.rights
        stale = [key for key in rights if any(applies_to(resource, key[1], key[2]) for resource in changed)]
        for key in stale:
            del rights[key]
        if stale and connection.parked is not None:
            connection.parked.look_afresh()

    def allows(
        self,
        connection: Connection,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        quietly: bool = False,
    ) -> bool:
        """Whether the peer of a connection may do this. quietly: a denial is not logged: it only leaves out a row."""
        key = (operation, kind, name)
        rights: dict[Key, bool] = connection.rights
        is_allowed = rights.get(key)
        if is_allowed is None:
            if len(rights) >= KEPT_PER_CONNECTION_MAX:
                rights.clear()
            is_allowed = rights[key] = self._decide(connection, operation, kind, name)
            if is_allowed:
                self._note(connection, operation, kind, name, allowed=True)
        if not is_allowed and not quietly:
            self._note(connection, operation, kind, name, allowed=False)
        return is_allowed

    def _decide(self, connection: Connection, operation: Operation, kind: ResourceType, name: str) -> bool:
        principal = connection.principal
        return principal in self._super_users or self._index.allows(
            principal, connection.plain_host, operation, kind, name, if_none_found=self._if_none_found
        )

    def allows_some(self, connection: Connection, operation: Operation, kind: ResourceType) -> bool:
        """Whether the peer may do this with at least one resource of this type."""
        principal = connection.principal
        return principal in self._super_users or self._index.allows_any(
            principal, connection.plain_host, operation, kind, if_none_found=self._if_none_found
        )

    def operations(self, connection: Connection, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What the peer may do with a resource, as the bits of the protocol's `authorized operations` fields."""
        return sum(
            1 << operation
            for operation in SUPPORTED[kind]
            if self.allows(connection, operation, kind, name, quietly=True)
        )

    # --- the audit log ---------------------------------------------------------------------------------

    def _note(
        self, connection: Connection, operation: Operation, kind: ResourceType, name: str, *, allowed: bool
    ) -> None:
        topic = self.topic
        level = logging.DEBUG if allowed else logging.INFO
        to_log = audit.isEnabledFor(level)
        to_topic = topic is not None and (topic.takes_grants or not allowed)
        if not to_log and not to_topic:
            return
        fields = {
            "principal": connection.principal,
            "operation": operation.name,
            "host": connection.plain_host,
            "resource": f"{kind.name}:LITERAL:{name}",
            "request": connection.request_name,
            "client": connection.client_id,
            "rule": self._rule(connection, operation, kind, name),
        }
        if to_log:
            audit.log(level, "allowed" if allowed else "denied", extra=fields)
        if to_topic:
            assert topic is not None
            topic.add({"decision": "allowed" if allowed else "denied", **fields})

    def _rule(self, connection: Connection, operation: Operation, kind: ResourceType, name: str) -> str:
        """What led to the decision, in the words of Kafka's audit log."""
        principal = connection.principal
        if principal in self._super_users:
            return "SuperUser"
        verdict = self._index.decide(
            principal, connection.plain_host, operation, kind, name, if_none_found=self._if_none_found
        )
        if isinstance(verdict, bool):
            return "DefaultAllow" if verdict else "DefaultDeny"
        return (
            f"MatchingAcl(principal={verdict.principal}, host={verdict.host}, operation={verdict.operation.name}, "
            f"permissionType={verdict.permission.name})"
        )
