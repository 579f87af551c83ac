"""A metric: one row of the tables of `exposition.py` and `group_metrics.py`, and of the docs page."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    name: str
    kind: str
    """counter, gauge or histogram"""
    bean: str
    """Kafka's bean that has the same, or empty."""
    doc: str


Sample = tuple[str, dict[str, str], float]
"""Metric, or a series of a histogram (`_bucket`, `_sum`, `_count`); labels; value."""
