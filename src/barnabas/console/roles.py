"""What users may do: read, operate (produce, reset, restart), administer; by patterns of clusters and names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from barnabas.console.said import Refused, said


class Role(IntEnum):
    """Each may do what those before it may."""

    NONE = 0
    READ = 1
    OPERATE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Grant:
    """One line of a file of roles. Patterns are those of shells: `*`, `?`, `[ab]`. user: `@` and a pattern for groups."""

    user: str
    role: Role
    cluster: str = "*"
    name: str = "*"


GROUPS_KEPT_MAX: Final = 10_000
"""Users whose groups are known, as many as there may be sessions."""


class RolesError(ValueError):
    """A file of roles cannot be read."""


class Roles:
    """Who may do what. otherwise: for users without a line; with lines, what no line allows is refused."""

    def __init__(self, grants: Iterable[Grant] = (), otherwise: Role = Role.ADMIN) -> None:
        self._grants = tuple(grants)
        self._otherwise = otherwise
        self._groups: dict[str, frozenset[str]] = {}

    def note_groups(self, user: str, groups: frozenset[str]) -> None:
        """The groups that an identity provider has named for a user who logs in now."""
        self._groups.pop(user, None)
        if len(self._groups) >= GROUPS_KEPT_MAX:
            del self._groups[next(iter(self._groups))]
        self._groups[user] = groups

    def _is_of(self, grant: Grant, user: str | None) -> bool:
        if not grant.user.startswith("@"):
            return fnmatchcase(user or "", grant.user)
        return any(fnmatchcase(group, grant.user[1:]) for group in self._groups.get(user or "", ()))

    def role(self, user: str | None, cluster: str, name: str | None = None) -> Role:
        """The highest role for a topic, group or subject of this name; None: for the cluster itself."""
        mine = [grant for grant in self._grants if self._is_of(grant, user)]
        if not mine:
            return self._otherwise
        fitting = [
            grant.role
            for grant in mine
            if fnmatchcase(cluster, grant.cluster)
            and (grant.name == "*" if name is None else fnmatchcase(name, grant.name))
        ]
        return max(fitting, default=Role.NONE)

    def may_see(self, user: str | None, cluster: str) -> bool:
        """Whether the cluster is shown at all."""
        if self.role(user, cluster) > Role.NONE:
            return True
        return any(
            self._is_of(g, user) and fnmatchcase(cluster, g.cluster) and g.role > Role.NONE
            for g in self._grants
        )


def read_roles(path: Path, otherwise: Role) -> Roles:
    """Roles of a file: lines `USER ROLE [CLUSTER [NAME]]`, USER, CLUSTER and NAME patterns. Raises RolesError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RolesError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    grants = []
    for number, line in enumerate(lines, 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if not 2 <= len(words) <= 4 or words[1].upper() not in Role.__members__:
            known = ", ".join(role.name.lower() for role in Role)
            raise RolesError(f"{path} line {number} is not USER ROLE [CLUSTER [NAME]], ROLE one of {known}")
        grants.append(Grant(words[0], Role[words[1].upper()], *words[2:]))
    return Roles(grants, otherwise)


def require(role: Role, needed: Role, user: str | None) -> None:
    """Raises Refused if the role is less than what is needed."""
    if role < needed:
        raise Refused(
            403,
            said(
                "{user} may not do this: it needs the role {role}",
                user=user or "anybody",
                role=needed.name.lower(),
            ),
            said("ask whoever runs the console for the role, a line in the file of --roles"),
        )
