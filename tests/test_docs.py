"""The pages say what is: links lead somewhere, paths and tests exist, commands and their options are ones that we have."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla.cli.commands import ottla
from ottla.cli.kafka.table import TOOLS

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src/ottla"
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("deploy/*.md")]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDERS = "bench|deploy|docs|examples|src|tests|tools"
PATH = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w(?:::\w+)?")
MADE = {"bench/results/A.json"}  # a placeholder
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def code(page: Path) -> Iterator[str]:
    """Every line of a fenced block, and every code span; a line that ends with a backslash goes on."""
    text = page.read_text()
    for block in FENCE.finditer(text):
        if block[1] in {"", "bash", "sh"}:
            yield from block[2].replace("\\\n", " ").splitlines()
    rest = FENCE.sub("", text)
    for paragraph in re.split(r"\n\s*\n|(?<=\|)\n", rest):  # a span may be broken over lines, but not over paragraphs
        yield from (" ".join(span.split()).replace("\\|", "|") for span in re.findall(r"`([^`]+)`", paragraph))


def words_of(line: str) -> list[str]:
    line = re.sub(r"\s#\s.*", "", line.strip().removeprefix("$ "))
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


@pages
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        if not found.exists() or (
            anchor and anchor not in {slug(h) for h in re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)}
        ):
            broken.append(target)
    assert broken == []


@pages
def test_paths_and_tests_exist(page: Path) -> None:
    missing = []
    for line in code(page):
        for name in PATH.findall(line):
            path, _, test = name.partition("::")
            placed = [folder / path for folder in (ROOT, page.parent, ROOT / "src")]
            found = next((place for place in placed if place.exists()), None)
            if (found is None and path not in MADE) or (
                test and found is not None and f"def {test}(" not in found.read_text()
            ):
                missing.append(name)
    assert missing == []


@pages
def test_commands_are_ours(page: Path) -> None:
    problems = []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in code(page):
        words = words_of(line)
        if words[:1] == ["make"] and len(words) > 1 and words[1] not in targets:
            problems.append(f"no such target: {line}")
        if words[:2] in (["python", "-m"], ["python3", "-m"]) and importlib.util.find_spec(words[2]) is None:
            problems.append(f"no such module: {line}")
        if words[:1] == ["ottla"]:
            problems += [f"{problem}: {line}" for problem in verb_problems(ottla, words[1:])]
        tool = re.match(r"kafka-([a-z0-9-]+)(?:\.sh)?$", words[0]) if words else None
        if tool and tool[1] not in TOOLS and not any(name.startswith(tool[1]) for name in TOOLS):
            problems.append(f"no such tool: {line}")
    assert problems == []


def verb_problems(command: click.Command, words: list[str]) -> list[str]:
    """What of these words the command does not have; alternatives are written a|b, further words are arguments."""
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z|-]*", words[0]):
        choices = [name for name in words.pop(0).split("|") if name]
        context = click.Context(command)
        found = [command.get_command(context, name) for name in choices]
        if None in found:
            return [f"no such verb {choices[found.index(None)]}"]
        command = next(one for one in found if one is not None)
    known = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
    asked, values = [], 0
    for word in words:
        name = word.split("=")[0]
        if values == 0 and re.match(r"--?[a-zA-Z]", word):
            asked.append(name)
            option = known.get(name)
            if isinstance(option, click.Option) and not option.is_flag and "=" not in word:
                values = option.nargs
        else:
            values = max(0, values - 1)
    if isinstance(command, click.Group):
        return []
    return [f"no such option {word}" for word in asked if word not in {*known, "--help", "-h"}]


def missing_modules(text: str) -> list[str]:
    """Files that the map names beside a folder, and steps of the paths, that do not exist."""
    missing = []
    for folder, holds in re.findall(r"^\| `(src/ottla/\w+|tools|bench|tests/\w+)` \| (.*) \|$", text, re.MULTILINE):
        names = (span.rstrip("/") for span in re.findall(r"`([\w/]+(?:\.py|/))`", holds))
        missing += [f"{folder}/{name}" for name in names if not any((ROOT / folder).rglob(name))]
    _, _, paths = text.partition("## Eight paths")
    for step in re.findall(r"`(\w+/[\w/]+)`", paths.partition("## Rules")[0]):
        if not (ROOT / step).exists() and not any(SOURCES.rglob(f"{step}.py")) and not any(SOURCES.rglob(step)):
            missing.append(step)
    return missing


def test_the_map_names_modules_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert not missing_modules(text)
    assert missing_modules(text.replace("`dispatch.py`", "`gone.py`", 1)) == ["src/ottla/broker/gone.py"]
    assert "broker/gone" in missing_modules(text.replace("`broker/dispatch`", "`broker/gone`"))


def test_every_package_describes_itself() -> None:
    """In a few words, with the names of modules that exist."""
    for file in SOURCES.rglob("__init__.py"):
        if "generated" not in file.parts:
            text = ast.get_docstring(ast.parse(file.read_text())) or ""
            assert len(text.split()) >= 7, f"{file} does not describe what happens in its package"
            for name in re.findall(r"`([\w/]+\.py)`", text):
                assert any(file.parent.rglob(name)) or (ROOT / name).exists(), f"{file} names {name}"


def broken_records(records: dict[str, str]) -> list[str]:
    """Names of decision records that break their one format or leave a gap in the numbers."""
    broken = [f"no record {number:04}" for number in range(1, len(records) + 1) if f"{number:04}" not in records]
    for number, text in records.items():
        headings = [heading for heading in re.findall(r"^## (.*)$", text, re.MULTILINE) if heading != "Sketch"]
        if not text.startswith(f"# {number}. ") or headings != ["Context", "Choice", "Cost", "Revisit"]:
            broken.append(number)
    return broken


def test_decision_records_have_one_format_and_no_gaps() -> None:
    records = {page.name[:4]: page.read_text() for page in (ROOT / "docs/decisions").glob("*.md")}
    assert not broken_records(records)
    assert broken_records({"0002": records["0002"]}) == ["no record 0001"]
    assert broken_records({"0001": records["0002"]}) == ["0001"]
    sources = [*PAGES, *ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")]
    references = {n for page in sources for n in re.findall(r"[Dd]ecisions?[ /](\d{4})\b", page.read_text())}
    assert references <= set(records)


def test_the_checks_can_fail() -> None:
    assert verb_problems(ottla, ["nonsense"]) == ["no such verb nonsense"]
    assert verb_problems(ottla, ["topic", "list|nonsense"]) == ["no such verb nonsense"]
    assert verb_problems(ottla, ["consume", "orders", "--nonsense"]) == ["no such option --nonsense"]
    assert verb_problems(ottla, ["consume", "orders", "-e"]) == []
