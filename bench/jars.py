"""Apache Kafka's jars: found in KAFKA_CACHE or the user's cache folder, else downloaded once with Maven."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

VERSION = "4.3.1"
_ARTIFACTS = ("kafka_2.13", "kafka-tools")
_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>jars</artifactId><version>1</version><dependencies>{dependencies}
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>"""


class MissingError(Exception):
    """Something that the benchmark needs is not on this machine."""


def cache_folder() -> Path:
    named = os.environ.get("KAFKA_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / f"apache-kafka-{VERSION}"


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        raise MissingError("no java: install a JDK >= 17 (Debian: openjdk-17-jdk-headless) or set JAVA_HOME")
    return found


def classpath() -> str:
    """The class path of Apache Kafka's server and tools, downloading them when this is the first time."""
    folder = cache_folder()
    # `.complete` is written last, so that an interrupted download is not taken for a whole one.
    if not (folder / ".complete").exists():
        _download(folder)
    return f"{folder}/*"


def _download(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingError(f"no Apache Kafka {VERSION} in KAFKA_CACHE or the cache folder, and no mvn to download it")
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId><version>{VERSION}</version></dependency>"
        for name in _ARTIFACTS
    )
    with tempfile.TemporaryDirectory() as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM.format(dependencies=dependencies))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True, timeout=600)
        except subprocess.SubprocessError as error:
            raise MissingError(f"Maven could not download Apache Kafka {VERSION}") from error
    (folder / ".complete").touch()
