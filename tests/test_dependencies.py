"""What is installed with Ottla is enough for what it imports: `pip install ottla` has no test tools to lean on."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Modules that run only in a program that has these: a session of Spark, a run of pytest.
SPARK_FORMATS = {"pyspark_ottla", *(f"pyspark_ottla_{name}" for name in ("delta", "files", "iceberg", "sql"))}
ARROW = {"tables", "connect", "pipelines", *SPARK_FORMATS}
HOSTED = {
    "pyspark": {"pipelines", "demo", "examples", *SPARK_FORMATS},
    "py4j": {"pipelines"},
    "pandas": {"examples"},
    "pytest": {"testing"},
    "polars": {"frames"},
    "pyarrow": {
        *ARROW,
        "columns.py",
    },  # a core installation imports these packages only inside of `extra_needed` or behind `require`
    "numpy": {"tables"},
}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[ <>=!~;\\[]", one)[0].lower().replace("_", "-") for one in requirements}


def imports(path: Path) -> list[tuple[str, bool]]:
    """The packages that a module imports, and whether at once (not in a function, and not only for types)."""
    found: list[tuple[str, bool]] = []

    def walk(node: ast.AST, at_once: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name.split(".")[0], at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.level == 0 and child.module:
                found.append((child.module.split(".")[0], at_once))
            types_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            walk(child, at_once and not types_only and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    walk(ast.parse(path.read_text()), at_once=True)
    return found


def test_every_import_is_declared() -> None:
    core = names(PROJECT["dependencies"])
    extras = core | names(
        [one for extra in ("sql", "spark", "otel") for one in PROJECT["optional-dependencies"][extra]]
    )
    extras |= {"opentelemetry-api"}  # of opentelemetry-sdk
    owners = packages_distributions()
    problems = []
    paths = [path for path in sorted((ROOT / "src").rglob("*.py")) if "generated" not in path.parts]
    for path in paths:
        part = path.relative_to(ROOT / "src").parts
        for package, at_once in imports(path):
            if package in sys.stdlib_module_names or package in {"ottla", "compression", *SPARK_FORMATS}:  # 3.14 has it
                continue
            if set(part) & HOSTED.get(package, set()):
                continue
            allowed = core if at_once else extras
            if not {canonicalize_name(owner) for owner in owners.get(package, [package])} & allowed:
                problems.append(f"{path.relative_to(ROOT)}: {package}")
    assert problems == []


SAFE = {
    "authlib": ("1.6.9", "CVE-2026-27962"),
    "cryptography": ("46.0.5", "CVE-2026-26007"),
    "duckdb": ("1.4.2", "CVE-2024-41672, CVE-2025-64429"),
    "h11": ("0.16", "CVE-2025-43859"),
    "jinja2": ("3.1.6", "CVE-2024-56326, CVE-2025-27516"),
    "joserfc": ("1.7.4", "CVE-2025-65015, CVE-2026-27932, CVE-2026-48990, CVE-2026-49852"),
    "protobuf": ("6.33.5", "CVE-2025-4565, CVE-2026-0994"),
    "pyarrow": ("23.0.1", "CVE-2023-47248, CVE-2026-25087"),
    "pyspark": ("4.0.1", "CVE-2025-54920"),
    "python-multipart": (
        "0.0.31",
        "CVE-2024-53981, CVE-2026-24486, CVE-2026-40347, CVE-2026-42561, GHSA-5rvq-cxj2-64vf",
    ),
    "pyyaml": ("6.0", "CVE-2020-14343"),
    "requests": ("2.33", "CVE-2024-47081, CVE-2026-25645"),
    "starlette": ("1.0.1", "CVE-2025-54121, CVE-2025-62727, CVE-2026-48710"),
    "urllib3": ("2.6.3", "CVE-2025-66418, CVE-2025-66471, CVE-2026-21441"),
}
"""The first version above every vulnerability that is known of, as of 2026-11-18."""


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0]))


def test_no_floor_allows_a_version_with_a_known_vulnerability() -> None:
    extras = PROJECT["optional-dependencies"]
    floors: dict[str, list[str]] = {}
    for line in [*PROJECT["dependencies"], *(one for extra in extras.values() for one in extra)]:
        found = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)", line)
        if found is not None:
            floors.setdefault(found[1].lower(), []).append(found[2])
    for name, (first, reason) in SAFE.items():
        assert floors.get(name), f"{name} has no floor ({reason})"
        for floor in floors[name]:
            assert version(floor) >= version(first), f"{name}>={floor} allows {reason}"


def test_what_is_locked_is_above_the_floors() -> None:
    for lock in ("requirements.lock", "requirements-dev.lock", "requirements-spark.lock", "requirements-sql.lock"):
        locked = dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([\d.]+)", (ROOT / lock).read_text(), re.MULTILINE))
        for name, (first, reason) in SAFE.items():
            if name in locked:
                assert version(locked[name]) >= version(first), f"{lock}: {name}=={locked[name]} has {reason}"


def test_the_smaller_locks_are_parts_of_the_developers_lock() -> None:
    """`make test` after `make demo` adds packages and changes none."""
    pins = {
        name: set(re.findall(r"^[\w.-]+==\S+", (ROOT / f"requirements{name}.lock").read_text(), re.MULTILINE))
        for name in ("", "-sql", "-spark", "-dev")
    }
    assert pins[""] < pins["-sql"] < pins["-spark"] < pins["-dev"]
