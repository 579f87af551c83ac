"""The table that several of Kafka's tools print: cells as wide as their column, with a tab after each."""

from __future__ import annotations

from collections.abc import Sequence


def print_tabbed(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head))]
    for row in (head, *rows):
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))
