"""Class archives: only a whole archive is used, and a JVM without an archive runs all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import class_archives
from tests.support.apache_kafka import BENCH_JVM, TEST_JVM
from tests.support.kafka_jars import Unavailable, classpath, java
from tests.support.kafka_tools import StorageTool, jvm_command

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of Kafka's archive, in this test's folder."""
    place = tmp_path / "kafka.jsa"
    monkeypatch.setattr(class_archives, "kafka_archive", lambda: place)
    return place


def test_half_an_archive_is_not_published(tmp_path: Path, archive: Path) -> None:
    """A broker that is killed while it writes its archive leaves half a file, on which every JVM would die."""
    whole, half = tmp_path / "whole.draft", tmp_path / "half.draft"
    command = [java(), "-XX:+UseSerialGC", f"-XX:ArchiveClassesAtExit={whole}", "-Xlog:disable", "-cp", classpath()]
    subprocess.run([*command, StorageTool, "random-uuid"], check=True, capture_output=True, timeout=120)
    half.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(Unavailable):
        class_archives._publish(half, archive, class_path=classpath())
    assert not half.exists()
    assert class_archives.kafka_options() == ()
    class_archives._publish(whole, archive, class_path=classpath())
    assert class_archives.kafka_options() == (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")
    assert f"-XX:SharedArchiveFile={archive}" in jvm_command(TEST_JVM, StorageTool)
    assert f"-XX:SharedArchiveFile={archive}" not in jvm_command(BENCH_JVM, StorageTool)


def test_an_archive_of_other_jars_changes_no_output(tmp_path: Path, archive: Path) -> None:
    jar = min(Path(classpath()).parent.glob("slf4j-api*.jar"))
    command = [java(), "-XX:+UseSerialGC", f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable", "-cp", str(jar)]
    subprocess.run([*command, "-version"], check=True, capture_output=True, timeout=120)
    assert archive.exists()
    command = jvm_command(TEST_JVM, StorageTool, "random-uuid")
    assert str(archive) in " ".join(command)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (len(done.stdout), done.stderr) == (23, "")


def test_a_jvm_without_its_archive_runs(tmp_path: Path) -> None:
    options = class_archives._options(tmp_path / "missing.jsa")
    command = [java(), *TEST_JVM, *options, "-cp", classpath(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    done = subprocess.run(
        [*command, StorageTool, "random-uuid"], capture_output=True, text=True, timeout=120, check=True
    )
    assert (len(done.stdout), done.stderr) == (23, "")


def test_each_java_and_each_set_of_jars_has_its_own_archive(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"1")
    first = class_archives._key(tmp_path)
    assert class_archives._key(tmp_path) == first
    (tmp_path / "b.jar").write_bytes(b"2")
    assert class_archives._key(tmp_path) != first
