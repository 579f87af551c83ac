"""The end of every generator of a page: write the page, or with --check report whether the page is up to date."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, text: str) -> int:
    """The exit code of the generator."""
    if "--check" not in sys.argv:
        page.write_text(text)
        return 0
    if page.exists() and page.read_text() == text:
        return 0
    print(f"docs/{page.name} is not up to date: run `make docs`", file=sys.stderr)
    return 1
