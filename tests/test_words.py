"""What people read follows STYLE.md: no sentence over 30 words, none of the words that name nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.prose import comments, docstrings, literals, markdown_paragraphs, problems, template_texts, vague

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
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
KAFKAS = re.compile(
    r"Option \[.*\] (takes|does not take) "
    r"|It does not contain a 'T' according to ISO8601 format"
    r"|It is invalid to disable remote storage"
    r"|It was the ID of "
    r"|baseOffset: VALUE lastOffset: VALUE"
)
"""Apache Kafka's own words, which tests compare with the real tools and brokers."""


def of_package(name: str) -> Iterator[str]:
    for path in sorted((SOURCES / name).rglob("*.py")):
        if "generated" not in path.parts:
            yield from docstrings(path)


@pytest.mark.parametrize("name", [*(page for page in PAGES if page not in GENERATED), *PACKAGES])
def test_sentences(name: str) -> None:
    paragraphs = of_package(name) if name in PACKAGES else markdown_paragraphs((ROOT / name).read_text())
    found = problems(paragraphs)
    assert not found, "\n".join(found)


def messages(name: str) -> Iterator[str]:
    """Help, output, errors, reasons and pages of a package; the table of Kafka's error texts is Kafka's."""
    for path in sorted((SOURCES / name).rglob("*")):
        if "generated" in path.parts or path == SOURCES / "model/errors.py":
            continue
        texts = literals(path) if path.suffix == ".py" else template_texts(path) if path.suffix == ".html" else ()
        yield from (text for text in texts if not KAFKAS.search(text))


@pytest.mark.parametrize("name", PACKAGES)
def test_messages_and_comments(name: str) -> None:
    written = list(messages(name))
    sources = (path for path in sorted((SOURCES / name).rglob("*.py")) if "generated" not in path.parts)
    noted = [comment for path in sources for comment in comments(path)]
    found = [*problems(iter([*written, *noted])), *vague(iter(written))]
    assert not found, "\n".join(found)


PAST = re.compile(
    r"[a-z]+(_[a-z]+)*\.([a-z]+_)*"
    r"([a-z]+ed|begun|cut|forgotten|kept|left|lost|read|set|shrunk|taken|written)(_[a-z]+)?"
)
"""An event: a noun, and a verb in the past; `left` and the like are irregular."""


def events(path: Path) -> Iterator[str]:
    """The events that a module logs."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            event = node.args[0]
            named = node.func.attr in LEVELS and "log" in ast.unparse(node.func.value)
            if named and isinstance(event, ast.Constant) and isinstance(event.value, str):
                yield event.value


@pytest.mark.parametrize("name", PACKAGES)
def test_log_events(name: str) -> None:
    sources = [path for path in sorted((SOURCES / name).rglob("*.py")) if "generated" not in path.parts]
    logged = {event for path in sources for event in events(path)}
    assert sorted(event for event in logged if not PAST.fullmatch(event)) == [], "an event is noun.past_verb"


def test_a_log_event_without_a_past_verb_is_found(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text('log.info("segment.rolled", base=1)\nself._log.warning("log.stray")\nmath.log("no.event")\n')
    assert [event for event in events(source) if not PAST.fullmatch(event)] == ["log.stray"]


def test_messages_are_found(tmp_path: Path) -> None:
    source = tmp_path / "verb.py"
    source.write_text(
        '''"""A docstring is not a message."""
# A comment that
# goes on.
import click  # noqa: F401

@click.option("--state", help="Where it says how it does.")
def verb(state: str) -> None:
    raise ValueError(f"{state!r} is no directory: " "it was made anew")  # a second comment
'''
    )
    assert list(comments(source)) == ["A comment that goes on.", "a second comment"]
    assert sorted(literals(source)) == ["VALUE is no directory: it was made anew", "Where it says how it does."]
    assert sorted(problems(literals(source))) == [
        "'anew': VALUE is no directory: it was made anew",
        "'says': Where it says how it does.",
    ]
    assert vague(literals(source)) == ["'is no ': VALUE is no directory: it was made anew"]
    assert vague(iter(["It is full. Another broker leads. There is no topic. Another is here."])) == [
        "'It': It is full.",
        "'Another is': Another is here.",
    ]


def test_what_a_template_shows(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "{# a note that tells #}<script>let told = 1</script><p title='no'>The <b>broker</b> {{ x | f }} "
        '<code>a b c</code> says\n nothing.</p><input placeholder="as told">{% if told %}<td>one cell</td>{% endif %}'
    )
    assert list(template_texts(page)) == ["as told", "The broker VALUE `code` says nothing.", "one cell"]


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
