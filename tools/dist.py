"""`python -m tools.dist`: wheel and sdist in dist/, built twice with equal bytes, and checked.

The timestamps of the files are that of the last commit (SOURCE_DATE_EPOCH), so that a second machine builds the same.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH_WITHOUT_GIT = "1580601600"
"""2020-02-02, hatchling's own default."""

NEEDED = (
    "Metadata-Version",
    "Name",
    "Version",
    "Summary",
    "License-Expression",
    "Requires-Python",
    "Description-Content-Type",
)
FORBIDDEN = (".pyc", ".lock.orig", "/.venv/", "/.git/")


class DistError(Exception):
    """The built files are not what a release may hold."""


def build(folder: Path, root: Path = ROOT) -> dict[str, str]:
    """Wheel and sdist in `folder`: name and SHA-256 of each file."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch(root)}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DistError(f"hatchling has failed: {done.stderr.strip()}")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def epoch(root: Path) -> str:
    if "SOURCE_DATE_EPOCH" in os.environ:
        return os.environ["SOURCE_DATE_EPOCH"]
    asked = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or EPOCH_WITHOUT_GIT


def check(folder: Path) -> None:
    """Metadata that an index accepts, and no file that has no place in a release."""
    wheel, sdist = next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        if archive.testzip() is not None:
            raise DistError(f"{wheel.name} is damaged")
        names = archive.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        check_metadata(wheel.name, BytesParser().parsebytes(archive.read(info)))
    with tarfile.open(sdist) as archive_of_sources:
        packed = archive_of_sources.getnames()
        member = archive_of_sources.extractfile(f"{packed[0].partition('/')[0]}/PKG-INFO")
        if member is None:
            raise DistError(f"{sdist.name} has no PKG-INFO")
        check_metadata(sdist.name, BytesParser().parsebytes(member.read()))
    strangers = [name for name in (*names, *packed) if any(part in f"/{name}" for part in FORBIDDEN)]
    if strangers:
        raise DistError(f"files that have no place in a release: {', '.join(strangers[:5])}")
    for needed in (
        "ottla/py.typed",
        "ottla/console/static/",
        "ottla/console/templates/",
        "ottla/examples/films/pipeline.py",
    ):
        if not any(name.startswith(needed) for name in names):
            raise DistError(f"{wheel.name} has no {needed}")


def check_metadata(file: str, metadata: Message) -> None:
    missing = [name for name in NEEDED if not metadata.get(name)]
    if missing:
        raise DistError(f"{file}: the metadata has no {', '.join(missing)}")
    if not (metadata.get_payload() or metadata.get("Description")):
        raise DistError(f"{file}: the metadata has no long description")


def main() -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-dist-") as again:
            target = ROOT / "dist"
            target.mkdir(exist_ok=True)
            for old in target.iterdir():
                old.unlink()
            first, second = build(target), build(Path(again))
        if first != second:
            raise DistError(f"two builds differ: {first} and {second}")
        check(target)
    except DistError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    for name, digest in first.items():
        print(f"{digest}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
