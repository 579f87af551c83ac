"""Graphs of what feeds what as boxes and lines in columns; templates turn them into SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.model.label_width import fitted_label

WIDTH, ROW, COLUMN = 240, 40, 320
_HEIGHT = 28
_EDGE = 10
_MARGIN = 10
_FONT_PX = 12
"""Of `svg.graph text` in app.css."""


@dataclass(frozen=True, slots=True)
class DrawingNode:
    id: str
    label: str
    kind: str
    topic: str = ""
    """The topic that the node links to; empty for a node that is no topic."""


@dataclass(frozen=True, slots=True)
class Box:
    node: DrawingNode
    x: int
    y: int

    @property
    def label(self) -> str:
        return fitted_label(self.node.label, WIDTH - 2 * _MARGIN, _FONT_PX)


@dataclass(frozen=True, slots=True)
class Drawing:
    boxes: list[Box]
    lines: list[tuple[int, int, int, int]]
    width: int
    height: int
    box_width: int = WIDTH


def draw(columns: Iterable[Sequence[DrawingNode]], lines: Iterable[tuple[int, str, int, str]]) -> Drawing:
    """Each line leads from a node of one column to a node of another; columns without nodes take no room."""
    places: dict[tuple[int, str], Box] = {}
    used = 0
    for number, nodes in enumerate(columns):
        for row, node in enumerate(nodes):
            places[number, node.id] = Box(node, _EDGE + used * COLUMN, _EDGE + row * ROW)
        used += bool(nodes)
    drawn = []
    for left, source, right, target in lines:
        begin, end = places[left, source], places[right, target]
        drawn.append((begin.x + WIDTH, begin.y + _HEIGHT // 2, end.x, end.y + _HEIGHT // 2))
    height = max((box.y for box in places.values()), default=0) + ROW
    return Drawing(list(places.values()), drawn, 2 * _EDGE + max(0, used - 1) * COLUMN + WIDTH, height)


def layers(nodes: Iterable[str], edges: Sequence[tuple[str, str]]) -> Mapping[str, int]:
    """The column of each node: one further than everything that leads to it; a circle ends at the last column."""
    depth = dict.fromkeys(nodes, 0)
    for _ in depth:
        for source, target in edges:
            if source in depth and target in depth:
                depth[target] = min(len(depth) - 1, max(depth[target], depth[source] + 1))
    return depth
