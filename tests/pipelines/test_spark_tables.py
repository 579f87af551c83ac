"""Upserts by Spark's MERGE, and `spark_table` as sink and source: with the real jars on the PySpark they run on."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipelines.outputs.spark_merge import MergeTarget, merge_statement, merge_target
from ottla.pipelines.ports import delta, iceberg
from ottla.pipelines.session import use_java
from tests.interop.ottla_server import ROOT
from tests.pipelines.spark_tables_program import Scene, spark_parquet
from tests.support.kafka_jars import Unavailable
from tests.support.spark_jars import DELTA, ICEBERG, POSTGRESQL, TABLES_PYSPARK, older_pyspark, spark_jars

pytestmark = pytest.mark.timeout(1800)
with_jars = [pytest.mark.soak, pytest.mark.interop]
PROGRAM = Path(__file__).with_name("spark_tables_program.py")


def facts_of(folder: Path, artifacts: tuple[str, ...], *scenes: str, jdbc: str = "") -> dict[str, Any]:
    use_java()
    try:
        jars, packages = spark_jars(artifacts), older_pyspark(TABLES_PYSPARK)
    except Unavailable as reason:
        pytest.skip(str(reason))
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = os.pathsep.join(map(str, (packages, ROOT / "src", ROOT)))
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAM), jars, str(folder), *scenes],
        env={**plain, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
             "OTTLA_TEST_JDBC": jdbc},
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


def _marked(test: Any) -> Any:
    return functools.reduce(lambda marked, mark: mark(marked), with_jars, test)


@_marked
def test_delta_jar(tmp_path):
    facts = facts_of(tmp_path, DELTA, "delta_merge", "spark_delta")
    check_merge(facts["delta_merge"])
    assert facts["delta_merge"]["note"] == {"ottla.offsets": "3"}
    assert facts["spark_delta"]["sink"] == [[0, "a"], [1, "a"]]
    assert facts["spark_delta"]["rows of the table by batch"] == [2, 3]


@_marked
def test_iceberg_and_jdbc_jars(tmp_path, postgresql_server):
    url = f"jdbc:postgresql://{postgresql_server.partition('@')[2]}"
    facts = facts_of(tmp_path, ICEBERG + POSTGRESQL, "iceberg_merge", "spark_iceberg", "spark_jdbc", jdbc=url)
    check_merge(facts["iceberg_merge"])
    assert facts["iceberg_merge"]["marker"] == "3"
    for sink in ("spark_iceberg", "spark_jdbc"):
        assert facts[sink]["sink"] == [[0, "a"], [1, "a"], [1, "a"]], "neither sink has markers"
        assert facts[sink]["rows of the table by batch"] == [3, 4]


def test_spark_s_parquet_as_sink_and_input(spark, tmp_path):
    """Spark lists the files of an input when the query starts, and a run lists them again; files(...) has the markers."""
    scene = Scene(spark, tmp_path)
    spark_parquet(scene)
    assert scene.facts == {"sink": [[0, "a"], [1, "a"], [1, "a"]], "rows of the table by batch": [3, 4]}


def test_the_statement_of_a_merge():
    target = MergeTarget(kind="delta", name="delta.`/t`", keys=["a b", "k"], partition_by=[])
    assert merge_statement(target, "rows", ["a b", "k", "v`"], deletes=True).splitlines() == [
        "merge into delta.`/t` as t using rows as s on t.`a b` <=> s.`a b` and t.`k` <=> s.`k`",
        "when matched and s._deleted then delete",
        "when matched then update set t.`v``` = s.`v```",
        "when not matched and not coalesce(s._deleted, false) then insert (`a b`, `k`, `v```) values (s.`a b`, s.`k`, s.`v```)",
    ]
    assert merge_statement(target, "rows", ["a b", "k"], deletes=False).splitlines()[1:] == [
        "when not matched then insert (`a b`, `k`) values (s.`a b`, s.`k`)"
    ]


def test_a_session_without_the_jar_merges_in_one_task(spark, tmp_path):
    catalog = {"spark-catalog": "lake"}
    for port in (delta(str(tmp_path), keys=["id"]), iceberg("space.rows", catalog=catalog, keys=["id"])):
        assert merge_target(spark, port) is None
    settings = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension, org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    session = SimpleNamespace(conf={**settings, "spark.sql.extensions": extensions})
    merged = merge_target(session, delta("s3://bucket/t?endpoint=http://127.0.0.1:1", keys=["id"]))
    assert merged.name == "delta.`s3a://bucket/t`"
    assert merge_target(session, iceberg("space.rows", catalog=catalog, keys=["id"])).name == "`lake`.`space`.`rows`"
    assert merge_target(session, iceberg("space.rows", catalog={}, keys=["id"])) is None, "the port names no catalog"
