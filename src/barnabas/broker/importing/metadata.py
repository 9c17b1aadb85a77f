"""What is known of a cluster besides its logs, whatever kept it."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from barnabas.cores.acl import Resource, Rule
from barnabas.cores.tokens import Token

ConfigKey = tuple[str, str]
"""(kind, name) as in `znode_layout.config_path`."""


class CannotImport(Exception):
    """Nothing can be imported; the message is one line for the user."""


@dataclass
class KnownTopic:
    """A topic as the metadata have it, by partition. A leader of -1 is none, as after the last replica's orderly stop."""

    topic_id: UUID | None
    leaders: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    in_sync: dict[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Metadata:
    """Of one cluster. source: where it was read, for the user. next_producer_id: the first that was not handed out.
    tokens: delegation tokens by id."""

    source: str
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    configs: dict[ConfigKey, dict[str, str]] = field(default_factory=dict)
    rules: dict[Resource, set[Rule]] = field(default_factory=dict)
    next_producer_id: int = 0
    tokens: dict[str, Token] = field(default_factory=dict)

    def set_config(self, key: ConfigKey, name: str, value: str | None) -> None:
        """Set one option of an entity; None removes it."""
        options = self.configs.setdefault(key, {})
        if value is None:
            options.pop(name, None)
        else:
            options[name] = value
        if not options:
            del self.configs[key]
