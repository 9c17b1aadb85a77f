"""The nodes of a topology while it is being built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.streams.errors import StreamsError

if TYPE_CHECKING:
    from barnabas.streams.running.run import Node
    from barnabas.streams.running.stores_of_users import StoreSpec


class Graph:
    """Nodes by name. queryable: the node of each store that the test driver can be asked for. named: the stores that users
    named, which can be looked up while an app runs, too."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.specs: dict[str, StoreSpec] = {}
        self.queryable: dict[str, str] = {}
        self.named: set[str] = set()
        self._stores: set[str] = set()
        self._count = 0

    def name(self, kind: str) -> str:
        """A new name, in Kafka Streams' form."""
        name = f"{kind}-{self._count:010d}"
        self._count += 1
        return name

    def add(self, node: Node, *parents: str) -> str:
        """Adds a node below others; returns its name."""
        self.nodes[node.name] = node
        for parent in parents:
            self.nodes[parent].children.append(node.name)
        return node.name

    def store(self, name: str | None, default: str) -> str:
        """The name of a store; a default one is made unlike all others. Raises StreamsError if the name is taken."""
        if name is not None and name in self._stores:
            raise StreamsError(f"there are two stores with the name {name!r}")
        if name is not None:
            self.named.add(name)
        store_name = name or default
        number = 1
        while store_name in self._stores:
            number += 1
            store_name = f"{default}-{number}"
        self._stores.add(store_name)
        return store_name
