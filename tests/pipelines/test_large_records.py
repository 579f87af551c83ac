"""Records of 1 to 50 MB: the memory of a Python worker is bounded by a few records, however many records a task has.

A worker holds a fetched record, its Arrow copy and the batch that is on its way to the JVM. A writer also holds 32 MB of rows
before its transaction opens, and librdkafka's queue of 100 MB. A table's task holds 64 MB of rows and Parquet's page of them.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.interop.ottla_server import ROOT
from tests.pipelines.conftest import Topics
from tests.pipelines.large_records import filled

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
SIZES = [(1_000_000, 100), (10_000_000, 20), (50_000_000, 10)]
BASE_MB = 450
"""Imports, queues and gathered rows."""
RECORDS_HELD = 8
SLACK_MB = 60
"""Between two runs of the same work: what the allocator keeps."""


def most_mb(size):
    return BASE_MB + RECORDS_HELD * size // 1_000_000


def run(*words):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(("size", "count"), SIZES)
@pytest.mark.parametrize("way", ["read", "to-topic", "to-table"])
def test_a_task_holds_a_few_records(ottla_server, tmp_path, way, size, count):
    topics = Topics(ottla_server)
    name = filled(topics, 3 * count, size)
    peaks = []
    for records in (count, 3 * count):
        limit = str(size + 1_000_000)
        target = topics.new("out", 1, max_message_bytes=limit) if way == "to-topic" else tmp_path / str(records)
        rows, peak = run("tests.pipelines.large_tasks", way, topics.servers, name, target, records).split()[-2:]
        assert int(rows) == records
        peaks.append(int(peak))
    print(f"{way}: {count} records of {size:,} bytes {peaks[0]} MB, {3 * count} records {peaks[1]} MB")
    assert peaks[1] <= peaks[0] + SLACK_MB, "memory grows with the number of records"
    assert peaks[1] <= most_mb(size)


@pytest.mark.parametrize(("size", "count"), SIZES)
def test_whole_queries(ottla_server, tmp_path, size, count):
    """Three queries on Spark: driver, JVM and the largest Python worker."""
    for line in run(
        "tests.pipelines.large_records", ottla_server.bootstrap_servers, tmp_path, size, count
    ).splitlines():
        if line.startswith("{"):
            print(line)
            few, many = json.loads(line)["peaks"]
            assert many["worker"] <= max(few["worker"] + SLACK_MB, most_mb(size) // 2)
            assert many["worker"] <= most_mb(size)
            assert many["driver"] <= few["driver"] + SLACK_MB
