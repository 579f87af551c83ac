"""Checkpoints on a real S3 server, through Hadoop's S3A: a run goes on where the last one ended, and what a batch costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ottla.connect.sender import Outgoing, Sender
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT
from tests.pipelines.conftest import Topics
from tests.pipelines.stored_pipeline import STORED_PIPELINE
from tests.support.kafka_jars import Unavailable, cache_dir, fetch_artifacts
from tests.support.s3 import KEYS, s3_server

pytestmark = [pytest.mark.soak, pytest.mark.interop, pytest.mark.timeout(1800)]


def test_checkpoints_in_a_bucket(ottla_server, tmp_path):
    try:
        s3a = fetch_artifacts(
            "Hadoop's S3A", cache_dir().with_name("ottla-hadoop-aws-3.5.0"), ["org.apache.hadoop:hadoop-aws:3.5.0"]
        )
        with s3_server(tmp_path) as store:
            _check(ottla_server, store, s3a, tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))


PAGE = ROOT / "docs" / "pipeline-object-store.md"


def test_the_example_of_the_page(ottla_server, tmp_path):
    """Its files and commands with this server's address, keys and brokers; then a wrong key, and a bucket that is gone."""
    try:
        s3a = fetch_artifacts(
            "Hadoop's S3A", cache_dir().with_name("ottla-hadoop-aws-3.5.0"), ["org.apache.hadoop:hadoop-aws:3.5.0"]
        )
        with s3_server(tmp_path) as store:
            _follow(ottla_server, store, s3a, tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))


def _follow(ottla_server, store, s3a: Path, folder: Path) -> None:
    blocks = dict(
        re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    )  # the last of each kind
    exports = re.search(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert exports is not None
    jars = ",".join(str(jar) for jar in sorted(s3a.glob("*.jar")))
    here = {
        "http://localhost:9000": store.endpoint,
        "localhost:9092": ottla_server.bootstrap_servers,
        "KEY ": f"{KEYS['AWS_ACCESS_KEY_ID']} ",
        "KEY\n": f"{KEYS['AWS_ACCESS_KEY_ID']}\n",
        "SECRET ": f"{KEYS['AWS_SECRET_ACCESS_KEY']} ",
        "SECRET\n": f"{KEYS['AWS_SECRET_ACCESS_KEY']}\n",
        "spark.jars.packages: org.apache.hadoop:hadoop-aws:3.5.0": f"spark.jars: {jars}",
    }

    def placed(text: str) -> str:
        for name, value in here.items():
            text = text.replace(name, value)
        return text

    store.bucket("shop")
    (folder / "s3.env").write_text(placed(exports[1]))
    (folder / "lake.py").write_text(blocks["python"])
    settings = placed(blocks["yaml"])
    (folder / "lake.yaml").write_text(settings)
    Topics(ottla_server).make("orders", 1)
    sender = Sender({"bootstrap.servers": ottla_server.bootstrap_servers})
    sender.send(Outgoing("orders", None, b'{"id": %d, "page": "/a", "amount": %d}' % (n % 80, n)) for n in range(100))
    sender.flush()
    run, *_, query = (line for line in blocks["sh"].splitlines() if "run lake.py" in line or "ottla sql" in line)
    done = _shell(folder, run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((store.root / "shop" / "checkpoints" / "lake").glob("*/commits/0"))
    counted = _shell(folder, f"{query} -o json")
    assert '"count_star()":80' in counted.stdout.replace(" ", ""), counted.stdout + counted.stderr
    for wrong, words in (
        (
            settings.replace("s3a://shop/", "s3a://gone/"),
            "the bucket of the checkpoints s3a://gone/checkpoints does not exist",
        ),
        (settings.replace(KEYS["AWS_SECRET_ACCESS_KEY"], "wrong"), "refuses the login: check its settings"),
    ):
        (folder / "lake.yaml").write_text(wrong)
        refused = _shell(folder, run)
        print(refused.stderr)
        assert refused.returncode == 1
        assert words in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1


def _shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        ["bash", "-c", f". ./s3.env; exec {line}"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip


def _check(ottla_server, store, s3a: Path, tmp_path: Path) -> None:
    topics = Topics(ottla_server)
    source, target, counts = (topics.new(name, 1) for name in ("stored", "stored-out", "stored-counts"))
    file = tmp_path / "stored.py"
    file.write_text(STORED_PIPELINE.format(source=source, target=target, counts=counts))
    bucket = store.bucket("pipelines")
    for begin, end in ((0, 50), (50, 150)):
        sender = Sender({"bootstrap.servers": ottla_server.bootstrap_servers})
        sender.send(Outgoing(source, None, b'{"n": %d}' % n) for n in range(begin, end))
        sender.flush()
        done = _ottla(
            "pipeline", "run", str(file), "--once", "--quiet", "--state", str(tmp_path / "state"),
            "-b", ottla_server.bootstrap_servers, "--checkpoints", f"s3a://{bucket}/checkpoints",
            "--max-offsets-per-trigger", "10", *_settings(store, s3a),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
    rows = topic_table({"bootstrap.servers": ottla_server.bootstrap_servers}, target).to_pylist()
    assert Counter(json.loads(row["value"])["n"] for row in rows) == Counter(range(150))
    newest = {row["key"]: json.loads(row["value"])["count"] for row in topic_table(
        {"bootstrap.servers": ottla_server.bootstrap_servers}, counts).to_pylist()}  # fmt: skip
    assert newest == {b"0": 75, b"1": 75}
    assert list((store.root / bucket / "checkpoints" / "stored").glob("*/offsets/14"))
    assert not list(Path.cwd().glob("s3a:*"))
    for query, most in (("copy", 60), ("counts", 100)):
        costs = _requests_of_a_batch(tmp_path, query)
        print(f"{query}: {sum(costs.values()):.0f} requests for a batch: {costs}")
        assert sum(costs.values()) <= most, "docs/pipeline-operation.md has the figures"
    done = _ottla("pipeline", "reset", "stored", "--yes", "-b", ottla_server.bootstrap_servers, "--state",
                  str(tmp_path / "state"), "--checkpoints", f"s3a://{bucket}/checkpoints", *_settings(store, s3a))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not list((store.root / bucket / "checkpoints").glob("stored/**/metadata"))


def _settings(store, s3a: Path) -> list[str]:
    settings = {
        "spark.jars": ",".join(str(jar) for jar in sorted(s3a.glob("*.jar"))),
        "spark.hadoop.fs.s3a.endpoint": store.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": KEYS["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": KEYS["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": KEYS["AWS_SECRET_ACCESS_KEY"],
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "900m",
    }
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def _ottla(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *words],
        env=environment, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip


def _requests_of_a_batch(folder: Path, query: str) -> dict[str, float]:
    """From the server's log, by method: between the batches 1 and 4 of the first run."""
    lines = (folder / "s3.log").read_text(errors="replace").replace("%2F", "/").splitlines()
    fields = [line.split(" | ") for line in lines if f"/stored/{query}/" in line and line.count(" | ") > 6]
    begin, end = (
        next(
            n
            for n, row in enumerate(fields)
            if row[5].strip() == "PUT" and row[6].strip().endswith(f"/offsets/{batch}")
        )
        for batch in (1, 4)
    )
    return {method: count / 3 for method, count in Counter(row[5].strip() for row in fields[begin:end]).items()}
