"""`python -m tools.example_pictures [NAME...]`: runs the examples and writes docs/images/example-NAME.svg.

A picture has the results only, without times: the events come from a seed, so each run writes the same picture.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ottla.examples.catalogue import EXAMPLES, Example, Panel, example_of
from ottla.examples.progress import panel_table
from ottla.examples.running import ExampleRequest, run

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
WIDTH = 80


def picture(example: Example, panels: Sequence[Panel]) -> str:
    """An SVG of the results as a terminal of 80 columns shows them, without fonts from other servers."""
    console = Console(width=WIDTH, record=True, file=io.StringIO())
    console.print(Text(f"{example.name}: {example.sentence}", style="bold"), Text())
    for panel in panels:
        console.print(panel_table(panel))
    svg = console.export_svg(title=f"ottla example {example.name}", unique_id=f"example-{example.name}")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def main() -> None:
    for name in sys.argv[1:] or EXAMPLES:
        example = example_of(name)
        panels = run(ExampleRequest(example=example, events=example.default_events), Console())
        (IMAGES / f"example-{name}.svg").write_text(picture(example, panels), encoding="utf-8")


if __name__ == "__main__":
    main()
