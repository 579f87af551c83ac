"""The same file on older PySpark: 4.2 has `format("ottla")`, 4.0 and 4.1 have Spark's own connector.

Python sources have no admission control before 4.2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ottla.connect.sender import Outgoing, Sender
from ottla.pipelines.session import use_java
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT
from tests.pipelines.conftest import Topics
from tests.support.kafka_jars import Unavailable, cache_dir, fetch_artifacts, file_lock

pytestmark = [pytest.mark.soak, pytest.mark.interop, pytest.mark.timeout(1800)]
CONNECTORS = {
    "4.0.0": ["org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"],
    "4.1.4": [
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",  # 4.1.1 was never published
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    ],
    "4.2.0": [],
}
FILE = """
from ottla.pipelines import Pipeline, topic
p = Pipeline("older")
N = topic("{source}", value="json", schema="n long", dead_letter="{source}.bad")
@p.step(reads={{"rows": N}}, writes=topic("{target}", value="json", key="n"))
def copy(rows):
    return rows.select("n")
@p.step(reads={{"rows": N}}, writes=topic("{target}-counts", value="json", key="odd"), output_mode="update")
def counts(rows):
    return rows.groupBy((rows.n % 2).alias("odd")).count()
"""


@pytest.mark.parametrize("version", CONNECTORS)
def test_the_same_file(ottla_server, tmp_path, version):
    """Without a connector's jars the topics are read and written by `format("ottla")`."""
    use_java()
    try:
        jars = [
            str(jar)
            for jar in fetch_artifacts(
                f"Spark's Kafka connector for {version}",
                cache_dir().with_name(f"ottla-spark-kafka-{version}"),
                CONNECTORS[version],
            ).glob("*.jar")
        ] if CONNECTORS[version] else []  # fmt: skip
        packages = _pyspark(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    topics = Topics(ottla_server)
    source, target = topics.new("older", 1), topics.new("older-out", 1)
    client = {"bootstrap.servers": ottla_server.bootstrap_servers}
    file = tmp_path / "older.py"
    file.write_text(FILE.format(source=source, target=target))
    for begin, end in ((0, 50), (50, 80)):
        sender = Sender(client)
        sender.send(Outgoing(source, None, b'{"n": %d}' % n) for n in range(begin, end))
        sender.flush()
        words = [str(file), "-b", ottla_server.bootstrap_servers, "--checkpoints", str(tmp_path / "c"), "--once",
                 "--master", "local[1]", "--conf", f"spark.jars={','.join(sorted(jars))}",
                 "--conf", "spark.driver.memory=768m", "--conf", "spark.sql.shuffle.partitions=1"]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-P", "-c", SCRIPT, version, *words],
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
                "PYTHONPATH": f"{packages}{os.pathsep}{ROOT / 'src'}",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True, text=True, timeout=1500, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    rows = topic_table(client, target).to_pylist()
    assert Counter(json.loads(row["value"])["n"] for row in rows) == Counter(range(80))
    newest = {
        row["key"]: json.loads(row["value"])["count"] for row in topic_table(client, f"{target}-counts").to_pylist()
    }
    assert newest == {b"0": 40, b"1": 40}


SCRIPT = """
import sys
import pyspark
assert pyspark.__version__ == sys.argv[1], pyspark.__version__
from ottla.pipelines.submit import main
main(sys.argv[2:])
"""


def _pyspark(version: str) -> Path:
    """PySpark in a folder that goes before the installed one."""
    folder = cache_dir().with_name(f"ottla-pyspark-{version}")
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / "pyspark").exists():
            done = subprocess.run(
                [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable,
                 "--target", str(folder), f"pyspark=={version}"],
                capture_output=True, text=True, timeout=900, check=False,
            )  # fmt: skip
            if done.returncode:
                raise Unavailable(
                    f"pyspark {version} cannot be installed: {done.stderr.strip().splitlines()[-1][:200]}"
                )
    return folder
