"""Shuffle files are lost in the middle of a write: Spark submits both stages again, and the tasks count attempts from 0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pyarrow.dataset
import pytest

from tests.interop.ottla_server import ROOT
from tests.pipelines.conftest import Topics

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
CODE = """
import glob, json, os, sys
from pyspark import TaskContext
from ottla.pipelines.session import spark
servers, topic, folder = sys.argv[1:]
session = spark("local[2]", low_footprint=True)
jvm = session.sparkContext._jvm
folders = [str(path) for path in jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()]

def written(kind):
    flag = f"{folder}/{kind}"

    def lose(batches):
        yield from batches
        if TaskContext.get().partitionId() == 0 and not os.path.exists(flag):
            open(flag, "w").close()
            for path in folders:
                for name in glob.glob(f"{path}/**/shuffle_*", recursive=True):
                    os.remove(name)

    rows = session.range(0, 600, 1, 2).repartition(6, "id").mapInArrow(lose, "id long")
    return rows.selectExpr("cast(id as string) as key", "cast(id as string) as value")

def save(kind, **options):
    writer = written(kind).write.format(f"ottla{kind}").options(**options, txnAppId="lost", txnVersion="1")
    writer.option("newVersion", "true").mode("append").save()

save("", **{"kafka.bootstrap.servers": servers, "topic": topic})
save("-files", path=f"{folder}/out")
stages = session.sparkContext._jsc.sc().statusStore().stageList(None)
print(json.dumps([stages.apply(n).attemptId() for n in range(stages.size())]))
session.stop()
"""


@pytest.fixture
def topics(ottla_server):
    return Topics(ottla_server)


def test_rows_come_once_when_stages_are_submitted_again(topics, committed, tmp_path):
    name = topics.new("lost", 1)
    done = subprocess.run(
        [sys.executable, "-c", CODE, topics.servers, name, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    attempts = json.loads(done.stdout.splitlines()[-1])
    assert sum(attempt > 0 for attempt in attempts) >= 2, "no stage ran again"
    once = Counter(str(number) for number in range(600))
    assert Counter(row["value"].decode() for row in committed(name)) == once
    table = pyarrow.dataset.dataset(tmp_path / "out", format="parquet").to_table()
    assert Counter(table.column("value").to_pylist()) == once
