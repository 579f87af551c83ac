"""What people read follows STYLE.md: no sentence over 30 words, none of the words that name nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.prose import docstrings, markdown_paragraphs, problems

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src/ottla"
GENERATED = {"docs/configuration.md", "docs/metrics.md"}
"""Their texts are docstrings and settings of src."""
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "deploy/*.md")
    for page in ROOT.glob(pattern)
)
PACKAGES = sorted(folder.name for folder in SOURCES.iterdir() if (folder / "__init__.py").exists())


def of_package(name: str) -> Iterator[str]:
    for path in sorted((SOURCES / name).rglob("*.py")):
        if "generated" not in path.parts:
            yield from docstrings(path)


@pytest.mark.parametrize("name", [*(page for page in PAGES if page not in GENERATED), *PACKAGES])
def test_sentences(name: str) -> None:
    paragraphs = of_package(name) if name in PACKAGES else markdown_paragraphs((ROOT / name).read_text())
    found = problems(paragraphs)
    assert not found, "\n".join(found)


def test_the_check_can_fail() -> None:
    assert problems(iter(["A record is stored. The log tells nobody."])) == ["'tells': The log tells nobody."]
    long = " ".join(["word"] * 31)
    assert problems(iter([f"Short. {long}."])) == [f"31 words: {long}."]
    assert not problems(iter([f"{' '.join(['word'] * 29)} `any number of words in code`."]))
    table = "Text.\n\n| head | told |\n|---|---|\n| cell | `told` |\n\n```\nshe told him\n```\n"
    assert problems(markdown_paragraphs(table)) == ["'told': told"]


def test_indented_lines_of_a_docstring_are_code(tmp_path: Path) -> None:
    source = tmp_path / "verb.py"
    text = "Run.\n\n    \\b\n    Examples told:\n      ottla tell\n\n    - an item\n      that says\n    "
    source.write_text(f'def verb() -> None:\n    r"""{text}"""\n')
    assert problems(docstrings(source)) == ["'told': \\b Examples told:", "'says': - an item that says"]
