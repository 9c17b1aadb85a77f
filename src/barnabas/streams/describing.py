"""A topology as text, in the form of Kafka Streams, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from barnabas.streams.running.flows import Sink, Source
from barnabas.streams.running.run import Node

WIDTH: Final = 300
HEIGHT: Final = 44
GAP_X, GAP_Y = 40, 36


def described(nodes: Mapping[str, Node], stages: int) -> str:
    """The topology as text."""
    parents: dict[str, list[str]] = {name: [] for name in nodes}
    for name, node in nodes.items():
        for child in node.children:
            parents[child].append(name)
    lines = ["Topologies:"]
    for stage in range(stages):
        lines.append(f"   Sub-topology: {stage}")
        for node in nodes.values():
            if node.stage != stage:
                continue
            lines.append(f"    {_head(node)}")
            if not isinstance(node, Sink):
                lines.append(f"      --> {', '.join(node.children) or 'none'}")
            if not isinstance(node, Source):
                lines.append(f"      <-- {', '.join(parents[node.name]) or 'none'}")
        lines.append("")
    return "\n".join(lines)


def _head(node: Node) -> str:
    if isinstance(node, Source):
        return f"Source: {node.name} (topics: [{', '.join(node.topics)}])"
    if isinstance(node, Sink):
        topic = node.topic if isinstance(node.topic, str) else "extractor class: function"
        return f"Sink: {node.name} ({'topic' if isinstance(node.topic, str) else 'by'}: {topic})"
    return f"Processor: {node.name} (stores: [{', '.join(node.stores)}])"


def drawn(nodes: Mapping[str, Node]) -> str:
    """The topology as SVG: nodes from the top to the bottom, a stage in a frame of its own."""
    depth: dict[str, int] = {}
    for name in nodes:
        depth.setdefault(name, 0)
    for _ in nodes:
        for name, node in nodes.items():
            for child in node.children:
                below = depth[name] + 1
                depth[child] = max(depth[child], below)
    columns: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for name in nodes:
        column = columns.get(depth[name], 0)
        columns[depth[name]] = column + 1
        places[name] = (20 + column * (WIDTH + GAP_X), 20 + depth[name] * (HEIGHT + GAP_Y))
    width = 20 + max(columns.values()) * (WIDTH + GAP_X)
    height = 20 + (max(depth.values()) + 1) * (HEIGHT + GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<defs><marker id="to" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for name, node in nodes.items():
        x, y = places[name]
        for child in node.children:
            to_x, to_y = places[child]
            dashes = ' stroke-dasharray="5,4"' if nodes[child].stage != node.stage else ""
            parts.append(
                f'<line x1="{x + WIDTH // 2}" y1="{y + HEIGHT}" x2="{to_x + WIDTH // 2}" y2="{to_y}" '
                f'stroke="#666" marker-end="url(#to)"{dashes}/>'
            )
    parts += [_box(node, *places[node.name]) for node in nodes.values()]
    return "\n".join([*parts, "</svg>\n"])


def _box(node: Node, x: int, y: int) -> str:
    fill = "#dbeafe" if isinstance(node, Source) else "#dcfce7" if isinstance(node, Sink) else "#f3f4f6"
    if node.stores:
        fill = "#fef3c7"
    if isinstance(node, Source):
        below = ", ".join(node.topics)
    elif isinstance(node, Sink):
        below = node.topic if isinstance(node.topic, str) else "topic by function"
    else:
        below = ", ".join(node.stores) or f"stage {node.stage}"
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{fill}" stroke="#9ca3af"/>'
        f'<text x="{x + WIDTH // 2}" y="{y + 18}" text-anchor="middle">{escape(node.name)}</text>'
        f'<text x="{x + WIDTH // 2}" y="{y + 35}" text-anchor="middle" fill="#4b5563">{escape(below[:48])}</text>'
    )
