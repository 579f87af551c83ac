"""What the pipelines wrote, read back with DuckDB and no JVM, and drawn as tables."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from ottla.tables.query import topic_table

_SHOWN = 8


@dataclass(slots=True, kw_only=True)
class Results:
    hits: int
    noise: int
    pages: list[tuple[str, int]]
    minutes: dict[str, int]
    errors: dict[str, int]
    view_topic: dict[str, int]
    view_note: dict[str, str]
    sessions: list[dict[str, Any]]
    alerts: list[dict[str, Any]]
    climate: list[tuple[str, int, float, float]]
    broken: list[tuple[str, str]]


def create_topics(bootstrap: str, partition_counts: dict[str, int]) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    # The records are dated 2018: with Kafka's seven days of retention they would be gone in half a minute.
    topics = [NewTopic(name, count, config={"retention.ms": "-1"}) for name, count in partition_counts.items()]
    for made in admin.create_topics(topics).values():
        made.result(30)


def collect(bootstrap: str, folder: Path) -> Results:
    from ottla.connect.sinks.delta import read_delta

    client = {"bootstrap.servers": bootstrap}
    minutes, note = read_delta(str(folder / "per_minute"))
    by_minute = minutes.to_pylist()
    newest: dict[bytes, dict[str, Any]] = {}
    for row in topic_table(client, "hits-per-minute").to_pylist():
        newest[row["key"]] = json.loads(row["value"])
    newest_alerts = {row["key"]: json.loads(row["value"]) for row in topic_table(client, "alerts").to_pylist()}
    with sqlite3.connect(folder / "results.db") as database:
        pages = database.execute("select page, hits from top_pages order by hits desc, page").fetchall()
        climate = database.execute("select room, readings, mean, highest from climate order by room").fetchall()
    database.close()
    broken = topic_table(client, "thermostats.broken", with_headers=True).to_pylist()
    return Results(
        hits=topic_table(client, "hits").num_rows,
        noise=topic_table(client, "access-log.noise").num_rows,
        pages=pages,
        minutes={row["minute"]: row["hits"] for row in by_minute},
        errors={row["minute"]: row["errors"] for row in by_minute},
        view_topic={row["minute"]: row["hits"] for row in newest.values()},
        view_note=note,
        sessions=sorted(read_delta(str(folder / "sessions"))[0].to_pylist(), key=lambda row: -row["hits"]),
        alerts=sorted(newest_alerts.values(), key=lambda row: str(row["minute"])),
        climate=climate,
        broken=[(row["value"].decode(), _header(row, "__connect.errors.offset")) for row in broken],
    )


def _header(row: dict[str, Any], name: str) -> str:
    return next((header["value"].decode() for header in row["headers"] or [] if header["key"] == name), "")


def tables(results: Results) -> list[Table]:
    pages = _table("top pages (SQLite, table top_pages)", "page", ">hits")
    for page, hits in results.pages[:_SHOWN]:
        pages.add_row(page, f"{hits:,}")
    offsets = results.view_note.get("ottla.offsets", "")
    minutes = _table("hits per minute (topic hits-per-minute = Delta table per_minute)", "minute", ">hits", ">errors")
    minutes.caption = f"true at {offsets}"
    for minute in sorted(results.minutes)[:_SHOWN]:
        minutes.add_row(minute, f"{results.minutes[minute]:,}", str(results.errors[minute]))
    sessions = _table(
        f"longest of {len(results.sessions):,} visits (Delta table sessions)", "address", "from", ">hits", ">bytes"
    )
    for row in results.sessions[:_SHOWN]:
        sessions.add_row(row["ip"], f"{row['begin']:%H:%M:%S}", str(row["hits"]), f"{row['bytes']:,}")
    alerts = _table("alerts (topic alerts): ten server errors in a minute", "minute", ">errors")
    for row in results.alerts[:_SHOWN]:
        alerts.add_row(row["minute"], str(row["errors"]))
    climate = _table(
        "rooms (SQLite, table climate; rooms come from the table devices)", "room", ">readings", ">mean", ">highest"
    )
    for room, readings, mean, highest in results.climate:
        climate.add_row(room, f"{readings:,}", f"{mean:.2f}", f"{highest:.2f}")
    broken = _table(f"{len(results.broken)} broken readings (topic thermostats.broken)", "value", ">offset")
    for value, offset in results.broken[:3]:
        broken.add_row(value, offset)
    return [pages, minutes, sessions, alerts, climate, broken]


def steps_table(steps: list[tuple[str, float, str]], total_s: float) -> Table:
    table = _table("what it took", "step", ">s", "")
    for what, seconds, note in steps:
        table.add_row(what, f"{seconds:.1f}", note)
    table.add_row("together", f"{total_s:.1f}", "")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left")
    return table
