"""Spark's own Avro functions, which come from Maven: the reference of the Avro values of pipelines."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

ARTIFACT = "org.apache.spark:spark-avro_2.13:4.1.1"
"""The newest on Maven Central (2026-11-17)."""


@cache
def spark_avro() -> Path:
    """The jar; Unavailable where Maven cannot fetch it."""
    folder = cache_dir().with_name("ottla-spark-avro")
    with file_lock(cache_dir().with_name("ottla-spark-avro.lock")):
        jar = next(iter(sorted(folder.glob("spark-avro*.jar"))), None)
        return jar if jar is not None else _fetch(folder)


def _fetch(folder: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("no mvn on PATH to fetch Spark's Avro functions with")
    folder.mkdir(parents=True, exist_ok=True)
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable("fetching Spark's Avro functions took longer than 120 s") from None
    jar = next(iter(sorted(folder.glob("spark-avro*.jar"))), None)
    if done.returncode or jar is None:
        raise Unavailable(f"Maven could not fetch {ARTIFACT}: {(done.stdout + done.stderr).strip()[:200]}")
    return jar
