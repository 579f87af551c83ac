"""Where a key stands in the text of a scenario, and the one error of a scenario that cannot run.

tomllib returns values without their lines. A scan of the text gives the line of each header and key; a key that the scan
does not see (an inline table) is named by its section alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.model.user_error import UserError

_HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_.\"'-]+)\s*\]?\]\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_SHOWN = 60


class ScenarioError(UserError):
    """A scenario that cannot run: the line, the section, the problem, and what to do."""


@dataclass(slots=True)
class Lines:
    """The lines of sections and keys; the first section of a name has number 1."""

    file: str
    _lines: dict[tuple[str, int, str], int] = field(default_factory=dict)

    def scan(self, text: str) -> Lines:
        counts: dict[str, int] = {}
        section = ""
        for number, line in enumerate(text.splitlines(), 1):
            header = _HEADER.match(line)
            if header is not None:
                section = header[1]
                counts[section] = counts.get(section, 0) + 1
                self._lines.setdefault((section, counts[section], ""), number)
            elif (key := _KEY.match(line)) is not None:
                name = re.sub(r"[\"'\s]", "", key[1])
                self._lines.setdefault((section, counts.get(section, 0), name), number)
        return self

    def line(self, section: str, number: int, key: str) -> int | None:
        if not section:  # a key before the first header, or the header of an unknown section
            return self._lines.get(("", 0, key), self._lines.get((key, 1, "")))
        line = self._lines.get((section, number, key))
        return line if line is not None else self._lines.get((section, number, ""))


@dataclass(frozen=True, slots=True)
class SectionPlace:
    """One section of a file, in the words of an error."""

    lines: Lines
    section: str = ""
    number: int = 1
    many: bool = False
    """The section may come several times."""

    def error(self, problem: str, key: str = "") -> ScenarioError:
        line = self.lines.line(self.section, self.number, key)
        parts = [self.lines.file, *([f"line {line}"] if line is not None else [])]
        if self.section:
            parts.append(f"[[{self.section}]] number {self.number}" if self.many else f"[{self.section}]")
        if key:
            parts.append(key)
        return ScenarioError(f"{', '.join(parts)}: {problem}")

    def unknown(self, key: str, what: str, names: Iterable[str], advice: str) -> ScenarioError:
        """An error for a name that does not exist, with the nearest name that does."""
        return self.error(f"unknown {what} {shown(key)}; {nearest(key, names) or advice}", key)

    def unknown_value(self, key: str, value: str, names: Iterable[str]) -> ScenarioError:
        """The same for a value that must be a name of a table."""
        names = list(names)
        return self.error(f"unknown {key} {shown(value)}; {nearest(value, names) or 'use ' + ', '.join(names)}", key)


def nearest(name: str, names: Iterable[str]) -> str:
    """`did you mean NAME?`, or nothing if no name is near."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def shown(value: object) -> str:
    """A value of the file, as TOML, and short."""
    text = ("true" if value else "false") if isinstance(value, bool) else repr(value)
    text = f'"{value}"' if isinstance(value, str) else text
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
