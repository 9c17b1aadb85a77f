"""What one request asks for: the cluster, the names in its path, its query or fields, and who asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.admin import AsyncAdmin
from barnabas.console.clusters import Cluster
from barnabas.console.records.masking import NO_MASKING, Masking, Masks
from barnabas.console.roles import Role
from barnabas.console.said import Refused, Said, said
from barnabas.console.shell import command


@dataclass(slots=True)
class Ask:
    """One request to a page. path: the names in its path. fields: of the query, or of the form or JSON body of a change.

    user: None where there is no login. role_for: what the user may do with a topic, group or subject of this name; with the
    cluster itself for None.
    """

    cluster: Cluster
    path: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    user: str | None = None
    role_for: Callable[[str | None], Role] = lambda name: Role.ADMIN
    masking: Masking = NO_MASKING

    def masks(self) -> Masks:
        """What the user may not see of the records of the path's topic."""
        topic = self.path["topic"]
        return self.masking.of(topic, self.role_for(topic))

    def sees(self, name: str) -> bool:
        """Whether the user may see a topic, group or subject of this name."""
        return self.role_for(name) >= Role.READ

    @property
    def admin(self) -> AsyncAdmin:
        return self.cluster.admin

    def text(self, name: str, default: str = "") -> str:
        """A field as text, without blanks around it."""
        value = self.fields.get(name)
        if value is None:
            return default
        if isinstance(value, list):
            value = value[0] if value else default
        if isinstance(value, bool):
            return "true" if value else ""
        return str(value).strip() or default

    def raw(self, name: str) -> str | None:
        """A field as it is; None if it was not given."""
        value = self.fields.get(name)
        if isinstance(value, list):
            value = value[0] if value else None
        return None if value is None else str(value)

    def texts(self, name: str) -> list[str]:
        """A field that may be given several times."""
        value = self.fields.get(name)
        if value is None:
            return []
        return [str(one) for one in value] if isinstance(value, list) else [str(value)]

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name).lower() not in ("", "0", "false", "no", "off")

    def number(self, name: str, default: int, lo: int, hi: int) -> int:
        """A field as a number. Raises Refused."""
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = lo - 1
        if not lo <= value <= hi:
            raise Refused(400, said("{name} must be a number from {lo} to {hi}, not {given}",
                                    name=name, lo=lo, hi=hi, given=text[:40]))  # fmt: skip
        return value

    def required(self, name: str) -> str:
        """A field that must not be empty. Raises Refused."""
        text = self.text(name)
        if not text:
            raise Refused(400, said("{name} is missing", name=name))
        return text

    def command(self, *words: str) -> str:
        """A `barnabas` command for this cluster."""
        return command("barnabas", *words, "-b", self.cluster.where)


@dataclass(frozen=True, slots=True)
class Done:
    """What a change did. go_to: the page that shows it, below the cluster's address. data: for the API.

    commands: what would have done the same.
    """

    said: Said
    go_to: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
