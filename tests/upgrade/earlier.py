"""An earlier version of Ottla, installed beside this one: its wheel, built from the repository's own history.

The wheel is unpacked into a folder for PYTHONPATH, over the libraries of this environment. A library that only the earlier
version needs comes from the package index.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

from tests.support.kafka_jars import Unavailable

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 600


def install(commit: str, folder: Path) -> Path:
    """The folder with the packages of the version; Unavailable gives the reason why there is none."""
    source, wheels, site = folder / "source", folder / "wheels", folder / "site"
    archive = folder / "source.tar"
    folder.mkdir(parents=True, exist_ok=True)
    _run("git has no such commit (a shallow clone?)", "git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}")
    _run("git cannot archive the commit", "git", "-C", ROOT, "archive", "-o", archive, commit)
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    words = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", wheels, source)
    _run("the wheel cannot be built", sys.executable, "-m", "pip", *words)
    (wheel,) = wheels.glob("ottla-*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(site)
    if missing := missing_requirements(site):
        words = ("install", "-q", "--no-deps", "--target", site, *missing)
        _run("the package index does not answer", sys.executable, "-m", "pip", *words)
    return site


def missing_requirements(site: Path) -> list[str]:
    """The requirements of the version, without its extras, that this environment does not have."""
    (metadata,) = site.glob("ottla-*.dist-info/METADATA")
    requirements = Parser().parsestr(metadata.read_text()).get_all("Requires-Dist") or []
    return [
        requirement.partition(";")[0].strip()
        for requirement in requirements
        if "extra ==" not in requirement and not _is_installed(re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0])
    ]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _run(problem: str, *words: object) -> None:
    try:
        done = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{problem}: {error}") from error
    if done.returncode:
        raise Unavailable(f"{problem}: {(done.stderr or done.stdout).strip()[-300:]}")
