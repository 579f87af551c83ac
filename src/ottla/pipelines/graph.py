"""What reads and writes what, as JSON for the console and as an SVG drawing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ottla.model.label_width import fitted_label
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import Topic, TopicTable

NodeColumns = Mapping[str, Sequence[tuple[str, str]]]
"""Node -> names and types of its columns."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _LINE = 190, 34, 70, 22, 15
_MARGINS, _FONT_PX, _COLUMN_PX = 12, 12, 11
_COLOURS = {
    "topic": "#dbeafe",
    "step": "#fef3c7",
    "delta": "#dcfce7",
    "sql": "#ede9fe",
    "view": "#d1fae5",
    "parquet": "#fae8ff",
}


def graph(pipeline: Pipeline, node_columns: NodeColumns | None = None) -> dict[str, Any]:
    """With `node_columns` each topic and table has its `columns`."""
    nodes: dict[str, dict[str, Any]] = {}
    edges: list[dict[str, str]] = []

    def node(name: str) -> str:
        kind, _, label = name.partition(":")
        nodes.setdefault(name, {"id": name, "kind": kind, "label": label})
        return name

    for step in pipeline.steps:
        mine = node(f"step:{step.name}")
        for port in step.reads.values():
            edges.append({"from": node(port.node), "to": mine})
            topic = port.topic if isinstance(port, TopicTable) else port
            if isinstance(topic, Topic) and topic.dead_letter:
                edges.append({"from": mine, "to": node(f"topic:{topic.dead_letter}")})
        edges += [{"from": mine, "to": node(port.node)} for port in step.writes.values()]
        if step.quarantine:
            edges.append({"from": mine, "to": node(f"topic:{step.quarantine}")})
    for name, pairs in (node_columns or {}).items():
        if name in nodes:
            nodes[name]["columns"] = [{"name": column, "type": kind} for column, kind in pairs]
    written = {edge["to"] for edge in edges}
    read = {edge["from"] for edge in edges}
    plain = [name for name in nodes if not name.startswith("step:")]
    return {
        "pipeline": pipeline.name,
        "nodes": list(nodes.values()),
        "edges": edges,
        "inputs": sorted(name for name in plain if name not in written),
        "outputs": sorted(name for name in plain if name in written or name not in read),
    }


def columns(drawn: dict[str, Any]) -> list[list[str]]:
    """Nodes from left to right: each after everything that leads to it."""
    depth = {node["id"]: 0 for node in drawn["nodes"]}
    for _ in depth:
        for edge in drawn["edges"]:
            depth[edge["to"]] = min(len(depth), max(depth[edge["to"]], depth[edge["from"]] + 1))
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for name, level in depth.items():
        columns[level].append(name)
    return [column for column in columns if column]


def svg(pipeline: Pipeline, node_columns: NodeColumns | None = None) -> str:
    drawn = graph(pipeline, node_columns)
    sizes = {node["id"]: _HEIGHT + _LINE * len(node.get("columns", ())) for node in drawn["nodes"]}
    places: dict[str, tuple[int, int]] = {}
    levels = columns(drawn)
    height = 0
    for level, names in enumerate(levels):
        y = 20
        for name in names:
            places[name] = 20 + level * (_WIDTH + _GAP_X), y
            y += sizes[name] + _GAP_Y
        height = max(height, y - _GAP_Y + 20)
    width = 40 + len(levels) * (_WIDTH + _GAP_X) - _GAP_X
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="{_FONT_PX}" role="img"><title>{escape(pipeline.name)}</title>'
        )
    ]
    for edge in drawn["edges"]:
        (x1, y1), (x2, y2) = places[edge["from"]], places[edge["to"]]
        begin, end, middle = x1 + _WIDTH, x2, _HEIGHT // 2
        bend = (end - begin) // 2
        lines.append(
            f'<path d="M{begin} {y1 + middle} c{bend} 0 {bend} {y2 - y1} {end - begin} {y2 - y1}" fill="none" stroke="#64748b"/>'
        )
    lines += [_box(node, places[node["id"]], sizes[node["id"]]) for node in drawn["nodes"]]
    return "\n".join([*lines, "</svg>"])


def _box(node: Mapping[str, Any], place: tuple[int, int], height: int) -> str:
    x, y = place
    label = fitted_label(node["label"], _WIDTH - _MARGINS, _FONT_PX)
    round_ = 17 if node["kind"] == "step" else 4
    rows = [f"{column['name']} {column['type']}" for column in node.get("columns", ())]
    fitted = [fitted_label(row, _WIDTH - 2 * _MARGINS, _COLUMN_PX) for row in rows]
    return (
        f'<g><title>{escape(node["id"])}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="{round_}" '
        f'fill="{_COLOURS.get(node["kind"], "#f1f5f9")}" stroke="#334155"/>'
        f'<text x="{x + _WIDTH // 2}" y="{y + 21}" text-anchor="middle">{escape(label)}</text>'
        + "".join(
            f'<text x="{x + _MARGINS}" y="{y + _HEIGHT + 5 + _LINE * number}" font-size="{_COLUMN_PX}">{escape(row)}</text>'
            for number, row in enumerate(fitted)
        )
        + "</g>"
    )
