"""Jars that Spark's programs add, without what they need, and older versions of PySpark; both are fetched once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

TABLES_PYSPARK = "4.1.4"
"""The newest version that both table formats run on (2026-11-18)."""
DELTA = ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
"""The newest on Maven Central (2026-11-17)."""
POSTGRESQL = ("org.postgresql:postgresql:42.7.14",)


@cache
def spark_jars(artifacts: Sequence[str]) -> str:
    """The paths of jars as `spark.jars` takes them; Unavailable where Maven cannot fetch one."""
    return ",".join(str(_jar(artifact)) for artifact in artifacts)


def _jar(artifact: str) -> Path:
    _, name, version = artifact.split(":")
    folder = cache_dir().with_name("ottla-spark-jars")
    jar = folder / f"{name}-{version}.jar"
    with file_lock(cache_dir().with_name("ottla-spark-jars.lock")):
        if not jar.exists():
            _fetch(artifact, folder)
    return jar


def _fetch(artifact: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"no mvn on PATH to fetch {artifact} with")
    folder.mkdir(parents=True, exist_ok=True)
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"fetching {artifact} took longer than 300 s") from None
    if done.returncode:
        raise Unavailable(f"Maven could not fetch {artifact}: {(done.stdout + done.stderr).strip()[:200]}")


def older_pyspark(version: str) -> Path:
    """PySpark in a folder that goes before the installed one on the path of modules."""
    folder = cache_dir().with_name(f"ottla-pyspark-{version}")
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / "pyspark").exists():
            done = subprocess.run(
                [Path(sys.executable).with_name("uv"), "pip", "install", "-q", "--python", sys.executable,
                 "--target", str(folder), f"pyspark=={version}"],
                capture_output=True, text=True, timeout=900, check=False,
            )  # fmt: skip
            if done.returncode:
                raise Unavailable(
                    f"pyspark {version} cannot be installed: {done.stderr.strip().splitlines()[-1][:200]}"
                )
    return folder
