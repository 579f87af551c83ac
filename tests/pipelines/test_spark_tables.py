"""Delta's and Iceberg's own jars: MERGE through Spark, and `spark_table` as sink and source, on the PySpark they run on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.session import use_java
from tests.interop.ottla_server import ROOT
from tests.support.kafka_jars import Unavailable
from tests.support.spark_jars import DELTA, ICEBERG, TABLES_PYSPARK, older_pyspark, spark_jars

pytestmark = [pytest.mark.soak, pytest.mark.interop, pytest.mark.timeout(1800)]
PROGRAM = Path(__file__).with_name("spark_tables_program.py")


def facts_of(folder: Path, artifacts: tuple[str, ...], *scenes: str) -> dict[str, Any]:
    use_java()
    try:
        jars, packages = spark_jars(artifacts), older_pyspark(TABLES_PYSPARK)
    except Unavailable as reason:
        pytest.skip(str(reason))
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = os.pathsep.join(map(str, (packages, ROOT / "src", ROOT)))
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAM), jars, str(folder), *scenes],
        env={**plain, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=1500, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("facts: ")]
    facts: dict[str, Any] = json.loads(lines[-1].removeprefix("facts: "))
    return facts


def check_merge(facts: dict[str, Any]) -> None:
    assert facts["rows"] == [[1, "A"], [3, "c"], [5, "e"]]
    assert facts["after a replay"] == facts["rows"]
    assert facts["with a new column"] == [[1, "A", None], [3, "c", 7], [5, "e", None]]


def test_delta_jar(tmp_path):
    facts = facts_of(tmp_path, DELTA, "delta_merge", "spark_delta")
    check_merge(facts["delta_merge"])
    assert facts["delta_merge"]["note"] == {"ottla.offsets": "3"}
    assert facts["spark_delta"]["sink"] == [[0, "a"], [1, "a"]]
    assert facts["spark_delta"]["rows of the table by batch"] == [2, 3]


def test_iceberg_jar(tmp_path):
    facts = facts_of(tmp_path, ICEBERG, "iceberg_merge", "spark_iceberg")
    check_merge(facts["iceberg_merge"])
    assert facts["iceberg_merge"]["marker"] == "3"
    assert facts["spark_iceberg"]["sink"] == [[0, "a"], [1, "a"], [1, "a"]]
    assert facts["spark_iceberg"]["rows of the table by batch"] == [3, 4]
