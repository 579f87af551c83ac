"""Quix Streams: the running total of each page, with state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quixstreams import Application, State


def add(order: dict[str, Any], state: State) -> dict[str, Any]:
    total = state.get("total", 0) + order["amount"]
    state.set("total", total)
    return {"page": order["page"], "total": total}


def run(servers: str, orders: str, totals: str, *, state_dir: Path, count: int) -> None:
    """Handle `count` orders, and end."""
    application = Application(
        broker_address=servers,
        consumer_group=f"totals-{orders}",
        auto_offset_reset="earliest",
        state_dir=state_dir,
        auto_create_topics=False,
        use_changelog_topics=False,
    )
    source = application.topic(orders, value_deserializer="json")
    target = application.topic(totals, value_serializer="json")
    application.dataframe(source).apply(add, stateful=True).to_topic(target)
    application.run(count=count, timeout=60)
