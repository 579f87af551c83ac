"""Class archives of Java (AppCDS): a JVM maps the parsed classes of Apache Kafka or Spark instead of parsing the jars again.

On two cores (2026-11-18) a broker is ready after 1.4 s of CPU time instead of 2.6 s, and a Spark session has done its first
jobs after 6 s instead of 12 s. `python -m tests.support.prepare` makes the archives, once for each Java and each set of jars.
A JVM without its archive starts in the ordinary way: an archive changes time and nothing else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, classpath, fetch, file_lock, java

_QUIET = "-Xlog:disable"  # a JVM whose archive does not fit would print a warning into the output of a tool
_SPARK_WORK = """
import sys
from ottla.pipelines.session import spark
folder = sys.argv[1]
session = spark("local[2]", low_footprint=True, log_file=folder + "/spark.log")
counts = session.range(1000).selectExpr("id % 7 AS k", "cast(id AS string) AS v").groupBy("k").count()
counts.write.parquet(folder + "/counts")
stream = session.readStream.schema(counts.schema).parquet(folder + "/counts").groupBy("k").sum("count")
query = stream.writeStream.format("memory").queryName("sums").outputMode("complete")
query.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
print(session._jvm.java.lang.System.getProperty("java.class.path"))
session.stop()
jvm = session.sparkContext._gateway
jvm.shutdown()
jvm.proc.stdin.close()
jvm.proc.wait()
"""


@cache
def kafka_archive() -> Path:
    """The file for Apache Kafka's jars, which may not exist."""
    return cache_dir().with_name("ottla-class-archives") / f"kafka-{_key(fetch())}.jsa"


def kafka_options() -> tuple[str, ...]:
    """Options for a JVM whose class path begins with all of Kafka's jars; none without an archive."""
    return _options(kafka_archive()) if kafka_archive().exists() else ()


@cache
def spark_archive() -> Path:
    """The file for the jars of the installed PySpark: it lies in the virtual environment and goes with it."""
    return Path(sys.prefix, "class-archives", f"spark-{_key(_pyspark() / 'jars')}.jsa")


def spark_environment() -> dict[str, str]:
    """Variables with which PySpark starts its JVM on the archive, as soon as the archive exists; none without Java."""
    try:
        archive = spark_archive()
    except Unavailable:
        return {}
    return {
        "PYSPARK_SUBMIT_ARGS": _submit_words(*_options(archive)),
        "SPARK_LAUNCHER_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # of the JVM that composes the command
    }


def make_kafka_archive() -> Path:
    """A broker that starts and stops leaves the archive of its classes; most classes of the tools are among them."""
    from tests.support.apache_kafka import TEST_JVM, ApacheKafka

    with tempfile.TemporaryDirectory() as folder, file_lock(_lock(kafka_archive())):
        if not kafka_archive().exists():
            draft = _draft(kafka_archive())
            broker = ApacheKafka(Path(folder), jvm_options=(*TEST_JVM, f"-XX:ArchiveClassesAtExit={draft}", _QUIET))
            broker.start()
            broker.stop(timeout=120)
            _publish(draft, kafka_archive(), class_path=classpath())
    return kafka_archive()


def make_spark_archive(timeout: float = 600) -> Path:
    """A session that runs a batch and a stream leaves the archive of its classes."""
    with tempfile.TemporaryDirectory() as folder, file_lock(_lock(spark_archive())):
        if not spark_archive().exists():
            draft = _draft(spark_archive())
            words = _submit_words(f"-XX:ArchiveClassesAtExit={draft}", _QUIET)
            done = subprocess.run(
                [sys.executable, "-c", _SPARK_WORK, folder],
                env={**os.environ, "PYSPARK_SUBMIT_ARGS": words},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False,
            )  # fmt: skip
            _publish(draft, spark_archive(), class_path=done.stdout.strip())
    return spark_archive()


def _pyspark() -> Path:
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise Unavailable("no pyspark")
    return Path(package.origin).parent


def _options(archive: Path) -> tuple[str, ...]:
    return f"-XX:SharedArchiveFile={archive}", _QUIET


def _submit_words(*options: str) -> str:
    return f"--conf 'spark.driver.defaultJavaOptions={' '.join(options)}' pyspark-shell"


def _key(jars: Path) -> str:
    """Java refuses an archive of a different Java or of jars that have changed since: neither gets the same name."""
    program = Path(java()).resolve()
    files = [program, *sorted(jars.glob("*.jar"))]
    facts = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _lock(archive: Path) -> Path:
    return archive.with_suffix(".lock")


def _draft(archive: Path) -> Path:
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    return draft


def _publish(draft: Path, archive: Path, *, class_path: str) -> None:
    """Java verifies the draft before any test uses the archive: on half a file a JVM dies with SIGBUS."""
    if not draft.exists():
        raise Unavailable("Java left no class archive")
    checked = subprocess.run(
        [java(), "-XX:+UseSerialGC", "-Xshare:on", "-XX:+VerifySharedSpaces", "-XX:-CreateCoredumpOnCrash",
         "-XX:ErrorFile=/dev/null", f"-XX:SharedArchiveFile={draft}", _QUIET, "-cp", class_path, "-version"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    if checked.returncode:
        draft.unlink()
        raise Unavailable("Java does not map its new class archive")
    draft.rename(archive)


if __name__ == "__main__":
    os.nice(10)  # the tests run meanwhile
    make_spark_archive()
