"""Debian's Chromium driven by Playwright; from npm axe-core for accessibility and the Nu validator for HTML."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.support.debian import debian_command
from tests.support.kafka_jars import Unavailable, cache_dir, file_lock, java

CHROMIUM_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
AXE = "axe-core@4"
VALIDATOR = "vnu-jar@26"


def chromium() -> str:
    """Chromium's path; Unavailable says why there is none."""
    return debian_command("chromium", "chromium", timeout_s=240)


@cache
def axe_source() -> str:
    """The script that finds accessibility problems; Unavailable where npm cannot fetch it."""
    return _from_npm(AXE, "package/axe.min.js", 50).read_text("utf-8")


@cache
def html_validator() -> Path:
    """The Nu validator's jar (30 MB); Unavailable where npm cannot fetch it."""
    return _from_npm(VALIDATOR, "package/build/dist/vnu.jar", 150)


def html_complaints(pages: Mapping[str, str], folder: Path) -> list[str]:
    """What the validator calls an error in these pages, by name; Unavailable without Java or the jar."""
    jar = html_validator()
    files = {}
    for number, (name, html) in enumerate(pages.items()):
        file = folder / f"{number}.html"
        file.write_text(html, "utf-8")
        files[file.name] = name
    command = [
        java(),
        "-Xmx256m",
        "-jar",
        str(jar),
        "--errors-only",
        "--format",
        "json",
        *map(str, folder.glob("*.html")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    messages = json.loads(done.stderr)["messages"]
    if done.returncode and not messages:
        raise RuntimeError(f"the validator failed: {done.stderr[-500:]}")
    return [
        f"{files[Path(said['url']).name]}: {said['message']} ({said.get('extract', '')[:120]})"
        for said in messages
        if said["type"] == "error"
    ]


def _from_npm(package: str, member: str, seconds: float) -> Path:
    """One file of a package, kept in the user's cache."""
    name = package.partition("@")[0].removesuffix("-core").removesuffix("-jar")
    folder = cache_dir().with_name(f"ottla-{name}")
    with file_lock(cache_dir().with_name(f"ottla-{name}.lock")):
        if not (folder / member).exists():
            _fetch(package, member, folder, seconds)
    return folder / member


def _fetch(package: str, member: str, folder: Path, seconds: float) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable(f"no npm on PATH to fetch {package} with")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            [npm, "pack", "--silent", package], cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm pack {package} took longer than {seconds:.0f} s") from None
    if done.returncode != 0:
        raise Unavailable(f"npm could not fetch {package}: {done.stderr.strip()[-200:]}")
    packed = folder / done.stdout.strip().splitlines()[-1]
    with tarfile.open(packed) as archive:
        archive.extract(member, folder, filter="data")
    packed.unlink()
