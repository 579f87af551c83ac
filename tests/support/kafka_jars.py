"""Apache Kafka's jars: where they are, how they get there, and why they may be missing.

The folder is $OTTLA_KAFKA_CACHE, else ~/.cache/apache-kafka-4.3.1; Maven fills it once (about 60 MB), under a file
lock, so that parallel test processes wait for one download. Nothing is fetched at import.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

VERSION = "4.3.1"
_ARTIFACTS = (
    "kafka_2.13",
    "kafka-tools",
    "kafka-shell",
    "kafka-streams",
    "connect-runtime",
    "connect-file",
    "connect-mirror",
)
_RETRY_AFTER_S = 1800  # a registry that was out of reach is asked again after half an hour


class Unavailable(Exception):
    """Apache Kafka cannot run here; the text says why."""


def cache_dir() -> Path:
    configured = os.environ.get("OTTLA_KAFKA_CACHE")
    if configured:
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / f"apache-kafka-{VERSION}"


def classpath() -> str:
    return f"{fetch()}/*"


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def java() -> str:
    """The java command, 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not command or not Path(command).exists():
        raise Unavailable("no java (>= 17) on PATH or in JAVA_HOME")
    said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if not found or int(found[1]) < 17:
        raise Unavailable(f"java is older than 17: {said.splitlines()[0] if said else command}")
    return command


def fetch(timeout: float = 600) -> Path:
    """The folder with all of Kafka's jars, downloaded when they are not there yet; Unavailable says what is missing."""
    wanted = [f"org.apache.kafka:{name}:{VERSION}" for name in _ARTIFACTS] + ["org.slf4j:slf4j-simple:1.7.36"]
    return fetch_artifacts(f"Apache Kafka {VERSION}", cache_dir(), wanted, timeout)


def fetch_artifacts(what: str, folder: Path, wanted: Sequence[str], timeout: float = 600) -> Path:
    """The jars of `group:artifact:version` and of what they need, in a folder of their own."""
    java()
    if (folder / ".complete").exists():
        return folder
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / ".complete").exists():
            _download(what, folder, wanted, timeout)
    return folder


def _download(what: str, folder: Path, wanted: Sequence[str], timeout: float) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"the jars of {what} are not in {folder.name} and there is no mvn to fetch them")
    failed = folder.with_name(folder.name + ".unreachable")
    if failed.exists() and time.time() - failed.stat().st_mtime < _RETRY_AFTER_S:
        raise Unavailable(failed.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        pom = Path(work, "pom.xml")
        pom.write_text(_pom(wanted))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={folder}")
        reason = ""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
            if done.returncode:
                lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
                reason = f"Maven could not fetch {what}: {lines[0][:300]}"
        except subprocess.TimeoutExpired:
            reason = f"Maven did not fetch {what} within {timeout:.0f} s"
    if reason:
        failed.write_text(reason)
        raise Unavailable(reason)
    failed.unlink(missing_ok=True)
    (folder / ".complete").touch()


def _pom(wanted: Sequence[str]) -> str:
    entries = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>"
        for g, a, v in (name.split(":") for name in wanted)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>k</artifactId><version>1</version>"
        # The versions also hold for what other artifacts ask for, some of which was never published.
        f"<dependencyManagement><dependencies>{entries}</dependencies></dependencyManagement>"
        f"<dependencies>{entries}</dependencies></project>"
    )


def schemas(target: Path) -> list[Path]:
    """Extract the JSON schemas of messages and records that the jars carry, as target/<jar>/**/<Name>.json."""
    found: list[Path] = []
    for jar in sorted(fetch().glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            names = [n for n in archive.namelist() if re.fullmatch(r"(common/)?(message|metadata)/.*\.json", n)]
            archive.extractall(target / jar.stem, names)
            found += [target / jar.stem / name for name in names]
    return found
