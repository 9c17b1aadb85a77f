"""The running queries as a graph: what they read, themselves, and what they write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

DEPTH_MAX: Final = 40
KINDS: Final = {"STREAM": "source", "TABLE": "table"}


def graph_of(relations: Sequence[Mapping[str, Any]], queries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nodes and arrows as `drawing` takes them. A query stands one column right of the last of what it reads."""
    shown = {query["id"] for query in queries}
    reads: dict[str, list[str]] = {query: [] for query in shown}
    used = []
    for relation in relations:
        readers = [query for query in relation["read_by"] if query in shown]
        writers = [query for query in relation["written_by"] if query in shown]
        for query in readers:
            if query not in writers:
                reads[query].append(relation["name"])
        if readers or writers:
            used.append((relation, writers))
    arrows = [[name, query] for query, names in sorted(reads.items()) for name in names]
    arrows += [[query, relation["name"]] for relation, writers in used for query in sorted(writers)]
    ids = [relation["name"] for relation, _ in used] + sorted(shown)
    depths = _depths(ids, arrows)
    nodes = [
        _node(relation["name"], KINDS.get(relation["type"], "source"), relation["topic"], depths)
        for relation, _ in used
    ]
    nodes += [_node(query["id"], "step", " ".join(query["text"].split()), depths) for query in queries]
    return {"nodes": nodes, "arrows": arrows}


def _node(name: str, kind: str, text: str, depths: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": name, "title": name, "kind": kind, "depth": depths.get(name, 0), "steps": [{"text": text, "line": None}],
    }  # fmt: skip


def _depths(ids: Sequence[str], arrows: Sequence[Sequence[str]]) -> dict[str, int]:
    """The longest way from a beginning to each node. What goes in circles ends at some depth."""
    depths = dict.fromkeys(ids, 0)
    for _ in range(DEPTH_MAX):
        changed = False
        for begin, end in arrows:
            if depths[end] <= depths[begin] < DEPTH_MAX:
                depths[end], changed = depths[begin] + 1, True
        if not changed:
            break
    return depths
