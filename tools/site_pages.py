"""Builds the documentation's site: `python -m tools.site_pages` writes build/site, and fails on a link that leads nowhere.

The pages are those of docs/. A link from a page to a file of the repository that is no page becomes the file's name. The list of
decision records is made here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
DECISIONS = """# Decisions

Each page gives the context of a decision, the choice, its cost, and when to look at the decision again.
"""


def assemble(pages: Path = PAGES) -> None:
    """Copies docs/ to `pages`, as the site needs it."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages)
    for page in pages.rglob("*.md"):
        origin = DOCS / page.relative_to(pages)
        page.write_text(inside(page.read_text(), origin))
    (pages / "decisions.md").write_text(list_of_decisions())


def inside(text: str, page: Path) -> str:
    """The text of a page, without links that leave docs/."""

    def kept(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve()
        if target.is_relative_to(DOCS) and target.is_file():
            return link[0]
        if target == DOCS / "decisions":
            return f"[{link[1]}](decisions.md)"
        name = target.relative_to(ROOT)
        label = link[1].strip("`")
        return f"`{name}`" if label in {str(name), name.name, link[2]} else f"{link[1]} (`{name}`)"

    return LINK.sub(kept, text)


def list_of_decisions() -> str:
    records = sorted((DOCS / "decisions").glob("*.md"))
    titles = [(record.name, record.read_text().splitlines()[0].removeprefix("# ")) for record in records]
    return DECISIONS + "\n" + "\n".join(f"- [{title}](decisions/{name})" for name, title in titles) + "\n"


def main() -> int:
    assemble()
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--config-file",
        str(ROOT / "mkdocs.yml"),
    ]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
