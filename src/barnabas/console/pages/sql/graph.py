"""The running queries as a graph: what they read, themselves, and what they write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.console.drawing import depths

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
    columns = depths(ids, arrows)
    nodes = [
        _node(relation["name"], KINDS.get(relation["type"], "source"), relation["topic"], columns)
        for relation, _ in used
    ]
    nodes += [_node(query["id"], "step", " ".join(query["text"].split()), columns) for query in queries]
    return {"nodes": nodes, "arrows": arrows}


def _node(name: str, kind: str, text: str, columns: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": name, "title": name, "kind": kind, "depth": columns[name], "steps": [{"text": text, "line": None}],
    }  # fmt: skip
