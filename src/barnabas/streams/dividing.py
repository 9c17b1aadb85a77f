"""Divides the nodes of a topology into stages: nodes that share state, or pass records on as they are, work in one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from barnabas.streams.running.flows import Sink, Source
from barnabas.streams.running.run import Hop, Node

Inner = Mapping[str, Sequence[Source]]


def stages_of(
    nodes: Mapping[str, Node], inner: Inner, also: Iterable[tuple[str, str]] = ()
) -> dict[str, int] | None:
    """The stage of each node; None if there are none, because records would have to go back to an earlier one. inner: the
    sources of topics that the topology writes itself. also: pairs of nodes that have to work in one task, too."""
    groups = {name: name for name in nodes}

    def root(name: str) -> str:
        while groups[name] != name:
            name = groups[name]
        return name

    owners: dict[str, str] = {}
    pairs = [*also]
    for name, node in nodes.items():
        pairs += [(name, owners.setdefault(store, name)) for store in node.stores]
        pairs += [(name, read) for read in node.reads]
        if not isinstance(node, (Hop, Source)):
            pairs += [(name, child) for child in node.children]
    for one, other in pairs:
        groups[root(one)] = root(other)
    edges: dict[str, set[str]] = {root(name): set() for name in nodes}
    begin = dict.fromkeys(edges, 0)
    for name, node in nodes.items():
        if getattr(node, "everywhere", False):
            begin[root(name)] = 1
        edges[root(name)] |= {root(child) for child in _elsewhere(node, inner)}
    depths = _longest(edges, begin)
    if depths is None:
        return None
    return {name: 0 if isinstance(node, Source) else depths[root(name)] for name, node in nodes.items()}


def _elsewhere(node: Node, inner: Inner) -> Iterator[str]:
    """The nodes that get records of this one in the tasks of their keys."""
    if isinstance(node, Hop):
        yield from node.children
    if isinstance(node, Sink) and isinstance(node.topic, str):
        for source in inner.get(node.topic, ()):
            yield from source.children


def _longest(edges: Mapping[str, set[str]], begin: Mapping[str, int]) -> dict[str, int] | None:
    depths = dict(begin)
    for _ in range(len(edges) + 1):
        changed = False
        for one, others in edges.items():
            for other in others:
                if depths[other] < depths[one] + 1:
                    depths[other] = depths[one] + 1
                    changed = True
        if not changed:
            return depths
    return None
