"""The topic `_schemas` and the state that its records make.

All records enter the state through `Store.replay`, in the order of the log: those of other instances, and the writer's
own once it has read them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.options import ClientOptions
from barnabas.client.tables.replay import Change
from barnabas.client.tables.replica import TopicReplica
from barnabas.client.tables.topic import CompactedTopic
from barnabas.registry.records import Entry, Key, decode
from barnabas.registry.state import Context, State

RECORD_OVERHEAD_BYTES: Final = 1024

Value = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """replication: the replication factor of a new topic; -1: the brokers' default."""

    topic: str = "_schemas"
    replication: int = -1


class EntryCodec:
    """The registry's records; see Codec."""

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Key, Value | None]:
        """Raises BadRecord."""
        return decode(key, value)

    def encode(self, key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
        """The bytes that a new record has; see `State.raw_keys` for those of keys that are there already."""
        return key.encode(), Entry(key, value).encode_value()


class Store:
    """topic: the topic that is replayed into the state. Use it on the event loop only."""

    def __init__(self, client: ClientOptions, options: StoreOptions) -> None:
        self.state = State()
        self.begun_again: Callable[[], None] = lambda: None
        """Called when reading begins again; the state is incomplete until all has been read."""
        self.topic: TopicReplica[Key, Value] = TopicReplica(
            client, CompactedTopic(options.topic, "schemas", options.replication), EntryCodec(), self
        )

    def replay(self, change: Change[Key, Value]) -> None:
        """See Replayed."""
        self.state.replay(Entry(change.key, change.value), change.raw_key)

    def begin_again(self) -> None:
        """Empty the state, except for the highest ids, since records of other topics contain them."""
        fresh = State()
        for name, id_max in self.state.ids_given().items():
            fresh.contexts.setdefault(name, Context()).id_max = id_max
        self.state.__dict__.update(fresh.__dict__)
        self.begun_again()

    def complete(self) -> None:
        """See Replayed."""
