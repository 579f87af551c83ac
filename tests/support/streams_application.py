"""A real application of Kafka Streams 4.3.1 (WordCount.java, or another program) as processes beside the test.

WordCount reads `lines` and writes `counts`, exactly once and with group.protocol=streams; without a record cache, so that
every update of a count is a record: the counts of a word must come out as 1, 2, 3 ... without a gap or a repetition.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from tests.support.class_archives import kafka_options
from tests.support.kafka_jars import cache_dir, classpath, file_lock, java

INPUT, OUTPUT = "lines", "counts"
_JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class StreamsInstance:
    """One process of the application; the context manager ends it."""

    def __init__(
        self,
        bootstrap_servers: str,
        application: str,
        name: str,
        folder: Path,
        *,
        threads: int = 1,
        program: str = "WordCount",
        **settings: str,
    ) -> None:
        """Further settings by their names, dots for underscores."""
        self.name = name
        self.log_file = folder / f"{name}.log"
        further = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        command = [java(), *_JVM, *kafka_options(), "-cp", f"{classpath()}:{_compiled(program)}"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", program, bootstrap_servers, application, name]
        command += [str(folder / f"{name}.state"), str(threads), "statestore.cache.max.bytes=0", *further]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)

    def says(self, text: str) -> bool:
        if self._process.poll() is not None and text not in self.log():
            raise AssertionError(f"{self.name} ended: {self.log()[-3000:]}")
        return text in self.log()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: it leaves no group and ends no transaction."""
        self._process.kill()
        self._process.wait(10)

    def close(self, timeout: float = 60) -> None:
        """It leaves its group and ends."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()


def await_that(condition: Callable[[], bool], what: str, timeout: float) -> None:
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until, f"not within {timeout:.0f} s: {what}"
        time.sleep(0.1)


class Counts:
    """What has come out so far, committed transactions only: the updates of each word, in their order."""

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "reads-counts",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(OUTPUT, index, 0) for index in range(partitions)])
        self.updates: dict[str, list[int]] = {}

    def have(self, updates: int) -> bool:
        """Read on; whether there are so many updates by now."""
        for message in self._consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            self.updates.setdefault(key.decode(), []).append(struct.unpack(">q", value)[0])
        return sum(map(len, self.updates.values())) >= updates

    def close(self) -> None:
        self._consumer.close()


def _compiled(program: str) -> Path:
    """The program's class, compiled once per version of its source."""
    source = Path(__file__).with_name(f"{program}.java")
    folder = cache_dir().with_name("ottla-word-count") / hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / f"{program}.class").exists():
            command = ["javac", "-cp", classpath(), "-d", str(folder), str(source)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder
