"""Sentences that people read, and what STYLE.md refuses in them: long sentences and words that name nothing.

Code spans, links and numbers count as one word each. Code blocks, generated tables and rulers are no prose, nor are
the indented lines of a docstring, which hold examples; those of a list item are prose.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

MAX_WORDS = 30
REFUSED = re.compile(r"\b(whoever|whomever|anew|tell|tells|told|says|said)\b", re.IGNORECASE)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|cf)\.(?=\s)")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+")
_WORD = re.compile(r"[\w'\u2019+%/.-]+")
_INDENTED = re.compile(r"^ {2,}.*\n?", re.MULTILINE)


def sentences(text: str) -> Iterator[str]:
    """Of one paragraph, without mark-up."""
    text = _LINK.sub(r"\1", _CODE.sub("code", text))
    text = _ABBREVIATION.sub(r"\1", text.replace("**", "").replace("\n", " "))
    for sentence in _END.split(text):
        if sentence.strip():
            yield " ".join(sentence.split())


def markdown_paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, list items and cells of tables."""
    text = re.sub(r"^(#+ .*)$", r"\1\n", _COMMENT.sub("", _FENCE.sub("", text)), flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=\|)|\n(?=#)", text):
        if block.lstrip().startswith("|"):
            yield from (cell for cell in re.split(r"(?<!\\)\|", _CODE.sub("code", block)) if re.search(r"[a-z]", cell))
        elif not block.startswith("Machine: "):  # facts of a benchmark, generated
            yield re.sub(r"^\s*(?:[-*>#]+|\d+\.)\s+", "", block)


def docstrings(path: Path) -> Iterator[str]:
    """Docstrings of the module, its classes, functions and attributes, paragraph by paragraph."""
    for node in ast.walk(ast.parse(path.read_text())):
        for child in getattr(node, "body", ()) if isinstance(getattr(node, "body", None), list) else ():
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*]\s)", inspect.cleandoc(child.value.value)):
                    yield paragraph if paragraph.startswith(("- ", "* ")) else _INDENTED.sub("", paragraph)


def problems(paragraphs: Iterator[str]) -> list[str]:
    found = []
    for paragraph in paragraphs:
        for sentence in sentences(paragraph):
            words = len(_WORD.findall(sentence))
            if words > MAX_WORDS:
                found.append(f"{words} words: {sentence}")
            elif refused := REFUSED.search(sentence):
                found.append(f"{refused[0]!r}: {sentence}")
    return found
