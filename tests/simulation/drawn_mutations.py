"""Planted bugs that a tool draws: `drawn_mutations.toml` lists them, a seed that its author did not choose decides.

    python -m tests.simulation.drawn_mutations            draw what is missing, or whose source line has changed
    python -m tests.simulation.drawn_mutations --show     print each bug as a change of its line

Every place that `mutation_operators` can change, on a line that the simulator executes, has a number: the first that
`random.Random` draws from the seed and the identity of the place. The places with the smallest numbers are the list, at
most one of a function. So a change of a source line draws only for that line again, and everybody gets the same list.

A place that turns out to be equivalent keeps its entry with the reason, and the next place joins the list.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import random
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.simulation.mutation_operators import Site, mutated, sites

SEED = 7341205
COUNT = 50
"""Bugs that are not equivalent."""
ROOT = Path(__file__).parent.parent.parent / "src" / "ottla"
LIST = Path(__file__).with_suffix(".toml")
PACKAGES = ("log", "replication", "raft", "controller", "coordinator", "metadata", "server", "broker")
LEFT_OUT = (
    "broker/audit/", "broker/telemetry/", "broker/metrics.py", "broker/tracing.py", "broker/quotas.py",
    "broker/slices.py", "broker/schemas/", "server/monitoring/", "server/checks/", "server/formatting/",
    "server/early_imports.py", "server/run.py", "server/loop_failures.py", "coordinator/xxh3.py",
)  # fmt: skip
"""Observation, quotas and turns of the loop, which no promise is about; and what needs threads or real processes."""
WORK: dict[str, tuple[str, ...]] = {
    "coordinator/groups/consumer/": ("consumers",),
    "coordinator/groups/classic/": ("classic",),
    "coordinator/groups/share/": ("share",),
    "coordinator/share/": ("share",),
    "broker/share/": ("share",),
}
NOTES = ("equivalent", "survives", "schedule")
EXECUTING_SEEDS = (1, 3, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
"""Odd seeds are quorums, even seeds are clusters of whole nodes."""


@dataclass(frozen=True, slots=True)
class DrawnMutation:
    site: Site
    seeds: str
    """`all`, or `even` if quorums alone do not execute the line."""
    change: str
    """The statement before and after."""
    equivalent: str = ""
    """Why no checker can see the change."""
    survives: str = ""
    """Why random seeds do not find the bug."""
    schedule: str = ""
    """The test that finds the bug."""

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def work(self) -> tuple[str, ...]:
        """Kinds of work of the simulator that execute the module, if only some do."""
        return next((work for folder, work in WORK.items() if self.site.module.startswith(folder)), ())

    @property
    def area(self) -> str:
        return f"drawn/{self.site.module.partition('/')[0]}"


# ---------------------------------------------------------------------------------------------------------------- places


def modules() -> list[str]:
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    names = (path.relative_to(ROOT).as_posix() for path in paths)
    return [name for name in names if not name.startswith(LEFT_OUT)]


def source_of(module: str) -> str:
    return (ROOT / module).read_text()


@cache
def places(module: str) -> tuple[Site, ...]:
    """All that could be changed in a module; none if the module is gone."""
    return tuple(site for site, _, _ in sites(module, source_of(module))) if (ROOT / module).exists() else ()


def rank(site: Site) -> float:
    return random.Random(f"{SEED}/{site.identity}").random()


def ranked(executed: dict[str, set[int]]) -> list[Site]:
    """All places on executed lines, in the order of the draw."""
    return sorted(
        (site for module, lines in executed.items() for site in places(module) if site.line in lines), key=rank
    )


def current(mutation: DrawnMutation) -> DrawnMutation | None:
    """The same place in today's source; None if its line has changed."""
    for site in places(mutation.site.module):
        if site.identity == mutation.site.identity:
            return replace(mutation, site=site)
    return None


def change_of(site: Site) -> str:
    """The first line of the changed statement, before and after."""
    source = source_of(site.module)
    _, tree = mutated(site.module, source, site.identity)
    before, after = (_statements(parsed, site.line) for parsed in (ast.parse(source), tree))
    if site.operator == "returns_early":
        return f"return  # before: {before[-1]}"
    pairs = [(old, new) for old, new in zip(before, after, strict=False) if old != new]
    old, new = pairs[-1] if pairs else (before[-1], after[-1])
    return f"{old}  ->  {new}"


def _statements(tree: ast.AST, line: int) -> list[str]:
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)]
    inner = [node for node in nodes if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return [_first_lines(node) for node in inner]


def _first_lines(node: ast.stmt) -> str:
    """A compound statement without its blocks."""
    text = ast.unparse(node)
    return text.partition("\n")[0]


# -------------------------------------------------------------------------------------------------------------- planting


def plant(mutation: DrawnMutation) -> None:
    """Compile the changed module instead of the file, when it is imported for the first time."""
    name = module_name(mutation.site.module)
    if name in sys.modules:
        raise RuntimeError(f"{name} is imported already")
    sys.meta_path.insert(0, _Finder(name, mutation))


def module_name(module: str) -> str:
    return "ottla." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, mutation: DrawnMutation) -> None:
        self._name = name
        self._mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._mutation)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: DrawnMutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        site = self._mutation.site
        _, tree = mutated(site.module, source_of(site.module), site.identity)
        code: CodeType = compile(tree, self.get_filename(fullname), "exec", dont_inherit=True)
        return code


# -------------------------------------------------------------------------------------------------------------- the list


def read_list(path: Path = LIST) -> list[DrawnMutation]:
    """As the file has them, also places whose line has changed since."""
    if not path.exists():
        return []
    return [_entry(row) for row in tomllib.loads(path.read_text()).get("mutant", ())]


def _entry(row: dict[str, Any]) -> DrawnMutation:
    fields = {name: row[name] for name in ("module", "function", "operator", "line", "digest", "number")}
    notes = {name: row[name] for name in NOTES if name in row}
    return DrawnMutation(Site(**fields), row["seeds"], row["change"], **notes)


def write_list(drawn: Iterable[DrawnMutation], path: Path = LIST) -> None:
    lines = [
        f"# Drawn from the seed {SEED} by `python -m tests.simulation.drawn_mutations`, in the order of the draw.",
        "# Written by hand: `equivalent`, why no checker can see the change; `survives`, why random seeds do not find",
        "# the bug, with the test that does as `schedule`.",
    ]
    for mutation in drawn:
        site = mutation.site
        lines += ["", "[[mutant]]"]
        fields = {name: getattr(site, name) for name in ("module", "function", "operator", "line", "digest", "number")}
        fields |= {"seeds": mutation.seeds, "change": mutation.change}
        fields |= {name: note for name in NOTES if (note := getattr(mutation, name))}
        lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    path.write_text("\n".join(lines) + "\n")


def draw(executed: dict[str, dict[str, set[int]]], kept: Iterable[DrawnMutation], count: int) -> list[DrawnMutation]:
    """`executed`: by kind of seeds, `odd` and `even`. `kept` keep their notes as long as their lines are the same."""
    notes = {mutation.site.identity: mutation for mutation in kept}
    lines: dict[str, set[int]] = {}
    for kind in executed.values():
        for module, numbers in kind.items():
            lines.setdefault(module, set()).update(numbers)
    drawn: list[DrawnMutation] = []
    functions: set[tuple[str, str]] = set()
    for site in ranked(lines):
        if sum(not mutation.equivalent for mutation in drawn) == count:
            break
        if (site.module, site.function) in functions:
            continue
        functions.add((site.module, site.function))
        kind = "all" if site.line in executed["odd"].get(site.module, ()) else "even"
        fresh = DrawnMutation(site, kind, change_of(site))
        note = notes.get(site.identity, fresh)
        drawn.append(replace(fresh, **{name: getattr(note, name) for name in NOTES}))
    return drawn


def executed_lines(seeds: Iterable[int] = EXECUTING_SEEDS) -> dict[str, dict[str, set[int]]]:
    from ottla.simulation.cluster import run_seed
    from tests.simulation.executed_lines import ExecutedLines

    kinds = {"odd": ExecutedLines(ROOT, modules()), "even": ExecutedLines(ROOT, modules())}
    for seed in seeds:
        kinds["odd" if seed % 2 else "even"].record(run_seed, seed)
    return {name: recorded.lines for name, recorded in kinds.items()}


def shown(drawn: Iterable[DrawnMutation]) -> Iterator[str]:
    for mutation in drawn:
        yield f"{mutation.name} ({mutation.site.function}): {mutation.change}"
        yield from (f"    {name}: {note}" for name in NOTES if (note := getattr(mutation, name)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.drawn_mutations", description=__doc__)
    parser.add_argument("--show", action="store_true", help="print the list, and draw nothing")
    parser.add_argument("--count", type=int, default=COUNT, help="bugs that are not equivalent (default: %(default)s)")
    parser.add_argument("--executed", type=Path, help="a file of executed lines: read if it exists, else written")
    options = parser.parse_args(arguments)
    if not options.show:
        write_list(draw(_executed(options.executed), read_list(), options.count))
    print("\n".join(shown(read_list())))
    return 0


def _executed(path: Path | None) -> dict[str, dict[str, set[int]]]:
    if path is not None and path.exists():
        rows = json.loads(path.read_text())
        return {kind: {name: set(numbers) for name, numbers in lines.items()} for kind, lines in rows.items()}
    executed = executed_lines()
    if path is not None:
        rows = {kind: {name: sorted(numbers) for name, numbers in lines.items()} for kind, lines in executed.items()}
        path.write_text(json.dumps(rows))
    return executed


if __name__ == "__main__":
    sys.exit(main())
