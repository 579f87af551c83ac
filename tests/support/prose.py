"""Sentences that people read, and what STYLE.md refuses in them: long sentences and words that name nothing.

Code spans, links and numbers count as one word each. Code blocks, generated tables and rulers are no prose, nor are
the indented lines of a docstring, which hold examples; those of a list item are prose.

The texts of a module (help, output, errors, reasons of log events, comments) are all its string literals of two words
or more: a sentence reaches people over constants and arguments too, not only from `help=` and `raise`.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

MAX_WORDS = 30
REFUSED = re.compile(r"\b(whoever|whomever|anew|tell|tells|told|says|said)\b", re.IGNORECASE)
PRONOUN = re.compile(
    r"(It|They|Them)\b"
    r"|(One|Another|Others|Each|This|That|These|Those)"
    r" (is|are|was|were|has|have|had|does|did|do|must|may|can|could|cannot|will|would|who|whose|which|that|by|to|for|in)\b"
)
"""A sentence that begins so has a subject without a noun."""
VAGUE = re.compile(
    r"\b(knows|lets|speaks?|spoken|nobody|somebody|everybody|whatever)\b"
    r"|\btakes\b(?! (longer|over|too|more|at most|either|one of|the))"
    r"|(?<!here )\bis no (?!longer)",
    re.IGNORECASE,
)
"""Words that hide the subject or the verb of a message: accepts, supports, allows, removes, is not a, any client."""
_LEAST_WORDS = 2
_CODE_LINE = re.compile(
    r"^\s*(?:[#\w.*-]+=\S*|(?:kept|for|create table|import|message|oneof) .*[;{(].*|select .* from .*)$"
)
_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|pragma:|ruff:|fmt:|!)")
_HIDDEN = re.compile(
    r"<(script|style|pre|svg)\b.*?</\1>|\{#.*?#\}|\{%-?\s*(?:macro|endmacro|set|call).*?%\}", re.DOTALL
)
_STATEMENT = re.compile(r"\{%.*?%\}", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_INLINE = re.compile(r"</?(?:a|b|i|em|strong|span|kbd|abbr|time|small)\b[^>]*>")
_INLINE_CODE = re.compile(r"<code\b[^>]*>.*?</code>", re.DOTALL)
_ATTRIBUTE = re.compile(r"\b(?:title|placeholder|alt|aria-label|hx-confirm|data-\w+)=\"([^\"]*)\"")
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


def literals(path: Path) -> Iterator[str]:
    """Texts of a module in its string literals, line by line; a placeholder of an f-string is one word."""
    tree = ast.parse(path.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for value in node.values for part in ast.walk(value))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        for line in text.splitlines():
            if len(line.split()) >= _LEAST_WORDS and not _CODE_LINE.match(line):
                yield line


def comments(path: Path) -> Iterator[str]:
    """Comments of a module; those of consecutive lines are one paragraph."""
    lines: list[str] = []
    previous = 0
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        whole_line = token.line.lstrip().startswith("#")
        if lines and not (whole_line and previous == token.start[0] - 1):
            yield " ".join(lines)
            lines = []
        lines.append(token.string.lstrip("#: "))
        previous = token.start[0] if whole_line else 0
    if lines:
        yield " ".join(lines)


def template_texts(path: Path) -> Iterator[str]:
    """What a Jinja template shows: text between tags, and attributes that a browser shows or speaks."""
    text = _HIDDEN.sub("\n\n", path.read_text())
    for call in _PLACEHOLDER.findall(text):  # {{ empty("Nothing flows yet", ...) }} shows its arguments
        yield from (argument for argument in re.findall(r'"([^"]*)"', call) if len(argument.split()) >= _LEAST_WORDS)
    text = _PLACEHOLDER.sub("VALUE", _INLINE_CODE.sub("`code`", text))
    yield from _ATTRIBUTE.findall(text)
    for paragraph in re.split(r"<[^>]*>", _INLINE.sub("", _STATEMENT.sub(" ", text))):
        if len(paragraph.split()) >= _LEAST_WORDS:
            yield " ".join(paragraph.split())


def vague(paragraphs: Iterator[str]) -> list[str]:
    """Sentences of messages with a pronoun for a subject, or a word that hides the subject or the verb."""
    return [
        f"{words[0]!r}: {sentence}"
        for paragraph in paragraphs
        for sentence in sentences(paragraph)
        if (words := PRONOUN.match(sentence) or VAGUE.search(sentence))
    ]


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
