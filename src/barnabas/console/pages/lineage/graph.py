"""Flows as a graph: places and what moves records between them, from left to right."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from barnabas.console.drawing import depths
from barnabas.console.pages.lineage.reading import Flow, Place
from barnabas.console.rendering import encoded, number

MORE: Final = "topics"
"""The kind of a place that stands for several."""
KINDS: Final = {"topic": "source", "group": "output"}
"""How nodes are drawn: those of these kinds as what begins or ends a way, all others as steps."""
NODES_MAX: Final = 120
PLACES_MAX: Final = 12
"""Of what one flow reads, and of what it writes: a link may copy thousands of topics."""


def around(topic: str, flows: Iterable[Flow]) -> list[Flow]:
    """The flows that a topic's records come from, however many steps before, and those that they go to."""
    flows = list(flows)
    here = Place("topic", topic)
    before = _reached(here, [(flow.writes, flow.reads, flow) for flow in flows])
    after = _reached(here, [(flow.reads, flow.writes, flow) for flow in flows])
    return [flow for flow in flows if flow in before or flow in after]


def _reached(start: Place, ways: Sequence[tuple[Sequence[Place], Sequence[Place], Flow]]) -> set[Flow]:
    leaving: dict[Place, list[tuple[Sequence[Place], Flow]]] = {}
    for begins, ends, flow in ways:
        for place in begins:
            leaving.setdefault(place, []).append((ends, flow))
    reached: set[Flow] = set()
    seen, waiting = {start}, deque([start])
    while waiting:
        for ends, flow in leaving.get(waiting.popleft(), ()):
            reached.add(flow)
            fresh = [place for place in ends if place not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
    return reached


def graph_of(flows: Sequence[Flow], here: str = "") -> tuple[dict[str, Any], int]:
    """Nodes and arrows as `drawing` takes them, and how many flows are left out of a large picture.

    here: the topic that the picture is about.
    """
    flows = [
        replace(flow, reads=_few(flow, flow.reads, here), writes=_few(flow, flow.writes, here))
        for flow in flows
    ]
    shown: list[Flow] = []
    places: dict[Place, None] = {}
    for flow in flows:
        more = dict.fromkeys((*places, *_named(flow.reads), *_named(flow.writes)))
        if shown and len(shown) + len(more) >= NODES_MAX:
            break
        shown.append(flow)
        places = more
    arrows = [(id_of(place), id_of(flow)) for flow in shown for place in _named(flow.reads)]
    arrows += [(id_of(flow), id_of(place)) for flow in shown for place in _named(flow.writes)]
    everything: list[Place | Flow] = [*places, *shown]
    columns = depths([id_of(one) for one in everything], arrows)
    nodes = [
        {
            "id": id_of(one), "title": one.name, "kind": KINDS.get(one.kind, "rows" if isinstance(one, Flow) else "output"),
            "depth": columns[id_of(one)], "steps": [{"text": _what(one), "line": None}], "path": _path(one),
        }
        for one in everything
    ]  # fmt: skip
    return {"nodes": nodes, "arrows": arrows}, len(flows) - len(shown)


def _few(flow: Flow, places: Sequence[Place], here: str) -> tuple[Place, ...]:
    """The first places, with the one that the picture is about, and one more that stands for all others."""
    if len(places) <= PLACES_MAX:
        return tuple(places)
    shown = sorted(places, key=lambda place: place != Place("topic", here))[: PLACES_MAX - 1]
    return (*shown, Place(MORE, f"{number(len(places) - len(shown))} more of {flow.name}"))


def _named(places: Sequence[Place]) -> list[Place]:
    return [place for place in places if place.name]


def _what(one: Place | Flow) -> str:
    """What a node is: its kind, and of a connector the class that knows its other end."""
    ends = (
        [place.kind for place in (*one.reads, *one.writes) if not place.name] if isinstance(one, Flow) else []
    )
    return " ".join([one.kind, *ends])


def _path(one: Place | Flow) -> str:
    """A topic leads to its own lineage, so that people can walk along it."""
    if isinstance(one, Flow):
        return one.path
    return f"/topics/{encoded(one.name)}/lineage" if one.kind == "topic" else ""


def id_of(one: Place | Flow) -> str:
    """A node's id: kinds of places and of flows differ."""
    return f"{one.kind} {one.name}"
