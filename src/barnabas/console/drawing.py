"""Places the nodes of a picture: a column for each depth, and arrows from left to right."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from barnabas.console.rendering import visible

WIDTH: Final = 204
GAP_X: Final = 40
GAP_Y: Final = 20
HEAD: Final = 34
LINE: Final = 20
PAD: Final = 8
MARGIN: Final = 4
CHARACTERS: Final = 26
"""How many fit into a line; the whole text is the line's title."""
STEPS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Box:
    """A node with its place, in pixels. lines: (text, title, line of the file). path: of its page; empty without one."""

    x: int
    y: int
    height: int
    kind: str
    title: str
    whole: str
    lines: Sequence[tuple[str, str, int | None]]
    note: str
    path: str

    @property
    def middle(self) -> float:
        """Where arrows begin and end."""
        return self.y + HEAD / 2


@dataclass(frozen=True, slots=True)
class Drawing:
    """arrows: paths of SVG. width, height: of all of it."""

    boxes: Sequence[Box]
    arrows: Sequence[str]
    width: int
    height: int


def drawing(picture: Mapping[str, Any], notes: Mapping[str, str]) -> dict[str, Any]:
    """A Drawing as plain data.

    picture: as the server of pipelines gives it; nodes may have a `path`. notes: what is said at the foot of a node, by its
    id.
    """
    columns: dict[int, int] = {}
    boxes: dict[str, Box] = {}
    for node in picture["nodes"]:
        id = str(node["id"])
        lines = [_line(step) for step in node["steps"][:STEPS_MAX]]
        if len(node["steps"]) > STEPS_MAX:
            lines.append(("…", f"{len(node['steps']) - STEPS_MAX}", None))
        note = notes.get(id, "")
        height = HEAD + LINE * (len(lines) + bool(note)) + (PAD if lines or note else 0)
        y = columns.get(node["depth"], MARGIN)
        columns[node["depth"]] = y + height + GAP_Y
        x = MARGIN + node["depth"] * (WIDTH + GAP_X)
        whole = str(node["title"])
        title, path = _cut(whole, CHARACTERS - 3), str(node.get("path", ""))
        boxes[id] = Box(x, y, height, str(node["kind"]), title, whole, lines, note, path)
    arrows = [_arrow(boxes[begin], boxes[end]) for begin, end in picture["arrows"]]
    width = 2 * MARGIN + (max(columns, default=0) + 1) * (WIDTH + GAP_X) - GAP_X
    height = max(columns.values(), default=GAP_Y) - GAP_Y + MARGIN
    return asdict(Drawing(list(boxes.values()), arrows, width, height))


def _line(step: Mapping[str, Any]) -> tuple[str, str, int | None]:
    text = str(step["text"])
    return _cut(text, CHARACTERS), text, step["line"]


def _cut(text: str, length: int) -> str:
    """What fits into so many columns: letters of Chinese and its neighbours take two, and hidden characters are shown."""
    text = visible(text[: 4 * length])
    columns = 0
    for place, letter in enumerate(text):
        columns += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if columns > length or (columns == length and place + 1 < len(text)):
            return text[:place] + "…"
    return text


def _arrow(begin: Box, end: Box) -> str:
    x1, y1, x2, y2 = begin.x + WIDTH, begin.middle, end.x - 6, end.middle
    bend = (x2 - x1) / 2
    return f"M{x1} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2} {y2:g}"


def depths(ids: Sequence[str], arrows: Sequence[Sequence[str]]) -> dict[str, int]:
    """The longest way from a beginning to each node. Of a circle, the arrow that closes it does not count: it leads back."""
    begins: dict[str, list[str]] = {id: [] for id in ids}
    for begin, end in arrows:
        begins[end].append(begin)
    columns: dict[str, int] = {}
    for id in ids:
        _measure(id, begins, columns)
    return columns


def _measure(start: str, begins: Mapping[str, Sequence[str]], columns: dict[str, int]) -> None:
    """The depths of a node and of all that lead to it, without recursion: chains may be long."""
    way, entered = [start], set[str]()
    while way:
        id = way[-1]
        if id not in entered and id not in columns:
            entered.add(id)
            way += [begin for begin in begins[id] if begin not in columns and begin not in entered]
            continue
        way.pop()
        if id not in columns:
            columns[id] = max((columns[begin] + 1 for begin in begins[id] if begin in columns), default=0)
