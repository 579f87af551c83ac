"""`python -m tools.licences` writes docs/licences.md: what each installation of Ottla brings, with its licence.

The licence is what the distribution's own metadata states. The tests fail when the page is not current, and when the core
has a distribution with copyleft.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from tools.distributions import brought_by

PAGE = Path(__file__).resolve().parent.parent / "docs" / "licences.md"
INSTALLATIONS = {"core": (), "sql": ("sql",), "spark": ("spark",), "otel": ("otel",)}
COPYLEFT = re.compile(
    r"\b[AL]?GPL|\bMPL|\bEPL|\bCDDL|\bEUPL|General Public|Mozilla Public|Eclipse Public", re.IGNORECASE
)

HEAD = """# Third-party licences

`python -m tools.licences` writes this page from the metadata of the installed distributions. Each row names the smallest
installation that brings the distribution. The core contains no distribution with a copyleft licence; a test checks that.

| distribution | brought by | licence |
|---|---|---|
"""


def licence_of(installed: Distribution) -> str:
    metadata: Any = installed.metadata  # an email.message.Message, whose `get` the stubs leave out
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    classes = [text for text in metadata.get_all("Classifier") or () if text.startswith("License ::")]
    named = [text.rpartition(" :: ")[2] for text in classes if text.rpartition(" :: ")[2] != "OSI Approved"]
    text = str(metadata.get("License") or "").strip()
    short = text if text and "\n" not in text and len(text) <= 60 else ""
    return ", ".join(named) or short or _first_line(text) or "not stated"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:60] if lines else ""


def rows() -> dict[str, tuple[str, str]]:
    """By distribution: the installation and the licence."""
    listed: dict[str, tuple[str, str]] = {}
    for installation, extras in INSTALLATIONS.items():
        for name, installed in brought_by(*extras).items():
            listed.setdefault(name, (installation, licence_of(installed)))
    return dict(sorted(listed.items()))


def page() -> str:
    lines = [f"| {name} | {installation} | {licence} |" for name, (installation, licence) in rows().items()]
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
