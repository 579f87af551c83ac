"""The site of the documentation: every page is in its menu, its links stay inside, its generated pages are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools import cli_docs, python_docs, site_pages

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def menu() -> dict[str, list[str]]:
    """The pages of each section."""
    sections = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    return {name: pages for section in sections for name, pages in section.items()}


def test_every_page_is_in_the_menu_once() -> None:
    pages = [page for section in menu().values() for page in section]
    assert sorted(pages) == sorted([*(page.name for page in DOCS.glob("*.md")), "decisions.md"])
    assert len(menu()["Start"]) == 2


def test_each_page_is_two_clicks_from_the_index(tmp_path: Path) -> None:
    """The menu is on every page; a decision record is behind the page of decisions."""
    site_pages.assemble(tmp_path / "pages")
    listed = (tmp_path / "pages" / "decisions.md").read_text()
    records = [record.name for record in (DOCS / "decisions").glob("*.md")]
    assert records
    assert [name for name in records if f"(decisions/{name})" not in listed] == []


def test_links_stay_inside_of_the_site(tmp_path: Path) -> None:
    site_pages.assemble(tmp_path / "pages")
    pages = sorted((tmp_path / "pages").rglob("*.md"))
    outside = [
        f"{page.name}: {link[2]}"
        for page in pages
        for link in site_pages.LINK.finditer(page.read_text())
        if not (page.parent / link[2]).is_file()
    ]
    assert outside == []
    assert len(pages) > len(menu())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[the unit](../deploy/systemd/ottla.service)", "the unit (`deploy/systemd/ottla.service`)"),
        ("[ottla.service](../deploy/systemd/ottla.service)", "`deploy/systemd/ottla.service`"),
        ("[groups](groups.md#lag)", "[groups](groups.md#lag)"),
        ("[reasons](decisions)", "[reasons](decisions.md)"),
        ("[below](#lag)", "[below](#lag)"),
    ],
)
def test_a_link_that_leaves_the_pages_becomes_a_name(text: str, expected: str) -> None:
    assert site_pages.inside(text, DOCS / "cluster.md") == expected


@pytest.mark.parametrize("tool", [cli_docs, python_docs], ids=["cli", "python"])
def test_generated_pages_are_up_to_date(tool: object) -> None:
    name = f"tools.{Path(str(tool.__file__)).stem}"  # type: ignore[attr-defined]
    check = subprocess.run(
        [sys.executable, "-m", name, "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert check.returncode == 0, check.stderr


@pytest.mark.soak
def test_the_site_builds_without_a_broken_link() -> None:
    """`make site` installs Material for MkDocs into an environment of its own."""
    done = subprocess.run(["make", "site"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ROOT / "build/site/index.html").is_file()
