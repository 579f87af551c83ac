"""What comes out: a JSON file per run, the table of docs/benchmarks.md between its markers, and a short summary."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench import machine
from bench.measure import ROLES, SUBJECT, YARDSTICK, Row

BEGIN = "<!-- bench: begin; written by `make bench`, do not edit -->"
END = "<!-- bench: end -->"

TITLES = {
    "produce": "Writing",
    "consume": "Reading",
    "requests": "Produce requests on one connection",
    "latency": "End-to-end latency",
    "transactions": "Transactions of ten records with acks=all",
    "groups": "Consumer groups",
    "start": "Start to first answer",
    "memory": "Memory",
    "partitions": "Growth: partitions",
    "connections": "Growth: connections",
    "cluster": "Three nodes, three replicas",
}


def write_json(result: dict[str, Any], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = result["date"].replace(":", "").replace("Z", "")
    path = folder / f"{stamp}-{machine.tag()}{'-quick' if result['quick'] else ''}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def rows_of(result: dict[str, Any]) -> list[Row]:
    return [Row.from_json(raw) for raw in result["rows"]]


def merge(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Results of several runs as one; where two hold the same row, the later file wins."""
    merged = dict(results[-1])
    rows = {Row.from_json(raw).key: raw for result in results for raw in result["rows"]}
    order = list(TITLES)
    # Sorting is stable: rows stay in their order within a load.
    merged["rows"] = sorted(rows.values(), key=lambda raw: order.index(raw["load"]))
    # Every run keeps its own facts: versions and load differ between runs, and the page must say so.
    merged["runs"] = [{name: value for name, value in result.items() if name != "rows"} for result in results]
    return merged


def failed(result: dict[str, Any]) -> bool:
    return any(row.errors[role] for row in rows_of(result) for role in ROLES)


def number(value: float | None) -> str:
    """Three significant digits, without exponents."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def _cell(row: Row, role: str) -> str:
    spread = row.spread(role)
    if spread is None:
        return "failed" if row.errors[role] else "-"
    if len(row.samples[role]) == 1:
        return number(row.median(role))
    return f"{number(row.median(role))} ({number(spread[0])}..{number(spread[1])})"


def with_floor(result: dict[str, Any], floor: dict[str, Any]) -> dict[str, Any]:
    """Beside each row the ratio that a server without promises has in a run of its own (`--subject writing`)."""
    ratios = {" / ".join(row.key): row.ratio for row in rows_of(floor) if row.ratio is not None}
    about = {name: value for name, value in floor.items() if name != "rows"}
    return result | {"floor": {"ratios": ratios, "run": about}}


def _floor_cell(row: Row, floors: dict[str, float]) -> str:
    ratio = floors.get(" / ".join(row.key))
    if ratio is None:
        return "-"
    target = row.quantity.target
    met = target is None or target.kind != "ratio" or target.met(value=0.0, ratio=ratio)
    return f"{ratio:.2f}x" if met else f"**{ratio:.2f}x**"


def _table(rows: list[Row], names: dict[str, str], floors: dict[str, float]) -> list[str]:
    floors = {key: ratio for key, ratio in floors.items() if any(" / ".join(row.key) == key for row in rows)}
    more = ("floor | ", "---:|") if floors else ("", "")
    lines = [
        f"| row | quantity | {names[SUBJECT]} | {names[YARDSTICK]} | ratio | {more[0]}target | verdict |",
        f"|---|---|---:|---:|---:|{more[1]}---|---|",
    ]
    for row in rows:
        quantity = row.quantity
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}x"
        target = "-" if quantity.target is None else quantity.target.describe(quantity.unit)
        verdict = f"**{row.verdict}**" if row.verdict in {"short", "failed"} else row.verdict
        cells = [row.label, f"{quantity.name}, {quantity.unit}", _cell(row, SUBJECT), _cell(row, YARDSTICK), ratio]
        if floors:
            cells.append(_floor_cell(row, floors))
        lines.append("| " + " | ".join([*cells, target, verdict]) + " |")
    return lines


def moment(result: dict[str, Any]) -> str:
    """When a run began, as the page names it."""
    return str(result["date"][:16]).replace("T", " ")


def _facts(result: dict[str, Any]) -> list[str]:
    facts, servers = result["machine"], result["servers"]
    names = " and ".join(f"{servers[role]['name']} {servers[role]['version']}" for role in ROLES)
    loads = [", ".join(f"{value:g}" for value in facts[key]) for key in ("load_at_start", "load_at_end")]
    quick = " This was a **quick** run: it shows that the rows work, not how fast they are." if result["quick"] else ""
    return [
        f"{names}, {moment(result)}, {result['sizes']['rounds']} rounds, {result['minutes']:g} minutes.{quick}",
        "",
        (
            f"Machine: {facts['cores']} cores ({facts['cpu']}), {facts['memory_gb']} GB, {facts['system']} "
            f"{facts['kernel']}; Python {facts['python']}, uvloop {facts['uvloop']}, {facts['java']}, confluent-kafka "
            f"{facts['confluent_kafka']}. Load average {loads[0]} at the start, {loads[1]} at the end."
        ),
    ]


def verdicts(rows: list[Row]) -> str:
    counts = Counter(row.verdict for row in rows if row.quantity.target is not None)
    return ", ".join(f"{counts[name]} {name}" for name in ("met", "short", "failed", "no yardstick") if counts[name])


def markdown(result: dict[str, Any], images: dict[str, str]) -> str:
    """The section between the markers. `images` maps a load to the address of its plot."""
    rows = rows_of(result)
    names = {role: result["servers"][role]["name"] for role in ROLES}
    lines = []
    for run in result.get("runs", [result]):
        lines += [*_facts(run), ""]
    lines += [f"Targets: {verdicts(rows)}.", ""]
    floor = result.get("floor")
    if floor is not None:
        lines += ["The column `floor`:", "", *_facts(floor["run"]), ""]
    for load, title in TITLES.items():
        chosen = [row for row in rows if row.load == load]
        if not chosen:
            continue
        lines += [f"### {title}", "", *_table(chosen, names, floor["ratios"] if floor is not None else {}), ""]
        if load in images:
            lines += [f"![{title}]({images[load]})", ""]
    broken = [row for row in rows if row.errors[SUBJECT] or row.errors[YARDSTICK]]
    if broken:
        lines += ["### What failed", ""]
        seen = {
            (row.load, row.label, role, row.errors[role][0]) for row in broken for role in ROLES if row.errors[role]
        }
        lines += [f"- {load}, {label}, {names[role]}: {error}" for load, label, role, error in sorted(seen)]
        lines.append("")
    return "\n".join(lines)


def write_docs(result: dict[str, Any], docs: Path) -> None:
    """Replace what stands between the markers of docs/benchmarks.md, and the plots."""
    from bench.plots import draw

    page = docs / "benchmarks.md"
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has lost its markers {BEGIN} and {END}")
    images = draw(rows_of(result), {role: result["servers"][role]["name"] for role in ROLES}, docs / "images")
    text = markdown(result, {load: f"images/{path.name}" for load, path in images.items()})
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def summary(result: dict[str, Any]) -> str:
    """For the terminal: one line per row, and the count of verdicts."""
    rows = rows_of(result)
    lines = []
    for row in rows:
        ratio = "      -" if row.ratio is None else f"{row.ratio:6.2f}x"
        target = "" if row.quantity.target is None else row.quantity.target.describe(row.quantity.unit)
        left = f"{row.load}: {row.label}, {row.quantity.name}"
        values = f"{number(row.median(SUBJECT)):>9} / {number(row.median(YARDSTICK)):>9} {row.quantity.unit:<6}"
        lines.append(f"{left:<78} {values} {ratio}  {target:<10} {row.verdict}")
    return "\n".join([*lines, f"targets: {verdicts(rows) or 'none'}"])
