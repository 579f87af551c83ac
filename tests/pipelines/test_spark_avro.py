"""Avro values beside Spark's own from_avro: the same types and the same rows for the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.interop.ottla_server import ROOT
from tests.support.kafka_jars import Unavailable
from tests.support.spark_jars import AVRO, spark_jars

_COMPARE = """
import json, sys
from pyspark.sql.avro.functions import from_avro
from ottla.pipelines.codecs import decoded
from ottla.pipelines.ports import Format
from ottla.pipelines.session import spark
from tests.pipelines.test_avro_values import NODE, VALUES, record, without_logical, written

session = spark("local[1]", low_footprint=True, config={"spark.jars": sys.argv[1]}, log_file=sys.argv[2] + "/spark.log")
cases = [(record(v=kind), {"v": raw}, {}) for kind, _, raw, _ in VALUES]
cases.append((NODE, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}, {"recursiveFieldMaxDepth": "2"}))
different, compared = [], 0
for schema, row, options in cases:
    text = json.dumps(schema)
    frame = session.createDataFrame([(bytearray(written(without_logical(schema), row)[0]),)], "value binary")
    ours = decoded(frame, Format(kind="avro", schema=text, options=options), "s").selectExpr("value", "error")
    try:
        theirs = frame.select(from_avro("value", text, options).alias("value"))
        wanted = theirs.schema["value"].dataType.simpleString(), theirs.selectExpr("to_json(value) j").first().j
    except Exception as problem:
        wanted = type(problem).__name__, str(problem).splitlines()[0][:200]
    found = ours.schema["value"].dataType.simpleString(), ours.selectExpr("to_json(value) j").first().j
    compared += 1
    if found != wanted:
        different.append([text, found, wanted])
print(json.dumps({"compared": compared, "different": different}))
"""
DIFFERENT = {"time-micros", "timestamp-nanos", "local-timestamp-nanos", "null"}
"""Spark 4.3 has types for the first three that only a setting turns on: from_avro returns types that PySpark refuses."""


@pytest.mark.interop
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_types_and_rows_are_those_of_from_avro(tmp_path):
    """On purpose different: micros of a day are numbers, nanoseconds are timestamps, a field of type null is text."""
    try:
        jar = spark_jars(AVRO)
    except Unavailable as reason:
        pytest.skip(str(reason))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", _COMPARE, str(jar), str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    print(result)
    assert result["compared"] > 25
    kinds = [json.loads(schema)["fields"][0]["type"] for schema, _, _ in result["different"]]
    assert {kind["logicalType"] if isinstance(kind, dict) else kind[0] for kind in kinds} == DIFFERENT
