"""The distributions that an installation of Ottla brings, from pyproject.toml and the metadata of what is installed here."""

from __future__ import annotations

import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def brought_by(*extras: str) -> dict[str, Distribution]:
    """By canonical name: what `pip install 'ottla[EXTRAS]'` brings on this machine, without Ottla itself."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    brought: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in project["dependencies"]]
    waiting += [Requirement(f"ottla[{extra}]") for extra in extras]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name == "ottla":
                texts = project["optional-dependencies"].get(extra, ())
            else:
                brought[name] = distribution(name)
                texts = brought[name].requires or ()
            waiting += _applicable(texts, extra)
    return dict(sorted(brought.items()))


def _applicable(texts: Any, extra: str) -> list[Requirement]:
    requirements = [Requirement(text) for text in texts]
    return [part for part in requirements if part.marker is None or part.marker.evaluate({"extra": extra})]


def size_of(installed: Distribution) -> int:
    """Bytes of its files, without bytecode."""
    paths = [Path(str(installed.locate_file(path))) for path in installed.files or () if path.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())
