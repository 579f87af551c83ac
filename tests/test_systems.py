"""What only some systems have is called in `ottla.system` alone: with it and without it, the same program runs.

The names come from the stubs of mypy (`tests/support/linux_only.py`), so that a new call of that kind is found without
anybody adding it to a list. `make check` also runs mypy as on macOS.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.linux_only import linux_only, macos_only
from tests.test_tidy import ROOT, found, source_files

HOME = ROOT / "src/ottla/system"
PLACES = ("/proc", "/sys", "/dev", "/run", "/var")
"""Folders of the system whose contents differ. A path that a user may name in a setting is not meant."""
ALLOWED: dict[str, str] = {}
"""`file: name` -> why it may stand outside of `ottla.system`. Nothing does."""


def foreign_names(path: Path) -> Iterator[tuple[int, str]]:
    """Uses of what Linux or macOS has alone: `os.fdatasync`, `from os import fdatasync`, `getattr(os, "fdatasync")`."""
    only = {module: {*linux_only()[module], *macos_only()[module]} for module in linux_only()}
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in only.get(module, ()):
                yield node.lineno, f"{module}.{name}"
            case ast.ImportFrom(module=str(module)):
                yield from (
                    (node.lineno, f"{module}.{alias.name}")
                    for alias in node.names
                    if alias.name in only.get(module, ())
                )
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"), args=[ast.Name(id=module), ast.Constant(value=name), *_]
            ) if name in only.get(module, ()):
                yield node.lineno, f"{module}.{name}"
            case ast.Attribute(value=ast.Name(id="sys"), attr="platform"):
                yield node.lineno, "sys.platform: ask for what the system has, not for its name"
            case ast.Constant(value=str(text)) if (
                text.startswith(tuple(f"{place}/" for place in PLACES)) or text in PLACES
            ):
                yield node.lineno, text


def test_only_the_system_package_uses_what_some_systems_lack() -> None:
    problems = [
        found(path, line, name)
        for path in source_files()
        if HOME not in path.parents
        for line, name in foreign_names(path)
        if f"{path.relative_to(ROOT)}: {name}" not in ALLOWED
    ]
    assert problems == []


def test_the_names_are_those_that_a_node_may_be_tempted_to_use() -> None:
    only = linux_only()
    assert {"fdatasync", "posix_fallocate", "posix_fadvise", "memfd_create", "sched_getaffinity"} <= set(only["os"])
    assert "epoll" in only["select"]
    assert "ENOKEY" in only["errno"]
    assert "MSG_MORE" in only["socket"]
    assert "sendfile" not in only["os"]
    assert "F_FULLFSYNC" in macos_only()["fcntl"]


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.fdatasync(1)",
        "from os import memfd_create",
        'import select\nhasattr(select, "epoll")',
        "import errno\nerrno.ENOKEY",
        'open("/proc/self/statm")',
        'open(f"/proc/{pid}/stat")',
        "import sys\nsys.platform",
        "import fcntl\nfcntl.F_FULLFSYNC",
    ],
)
def test_the_rule_finds(text: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert list(foreign_names(tmp_path / "module.py"))
