"""A pipeline that ran twice to the end of its input: Spark's checkpoints, the markers of its writers, its outputs."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset

from ottla.connect.sinks.delta import read_delta
from tests.robustness.server_process import COMMAND, ServerProcess, environment
from tests.upgrade import observations as observe
from tests.upgrade.observations import Json
from tests.upgrade.rows import START_MS, Record, send
from tests.upgrade.scenes.steps import SMALL, make_topic

TOPICS = ("hits", "hits.bad", "slow", "pages")
ROUNDS = (range(20), range(20, 40))
_CONF = (
    "spark.sql.shuffle.partitions=1", "spark.driver.memory=768m",
    "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
)  # fmt: skip


def record(folder: Path, work: Path) -> Json:
    (folder / "out").mkdir()
    shutil.copyfile(Path(__file__).with_name("hits.py"), folder / "hits.py")
    with ServerProcess(work, properties=SMALL, log_dirs=[folder / "data"]) as server:
        servers = server.bootstrap_servers
        with observe.connected(servers) as cluster:
            make_topic(cluster, "hits", 1)
            for numbers in ROUNDS:
                add_hits(servers, numbers)
                _run(folder, work, servers)
            topics = observe.topics(cluster)
            manifest = {
                "properties": SMALL,
                "topics": topics,
                "records": observe.records(servers, observe.places(topics)),
                "groups": observe.groups(cluster),
                "sent": ROUNDS[-1].stop,
                "outputs": outputs(folder, servers),
            }
        code, _ = server.stop()
        assert code == 0, server.log_text()
    assert manifest["outputs"] == expected(ROUNDS[-1].stop)
    return manifest


def add_hits(servers: str, numbers: range) -> None:
    """Every tenth is no JSON."""
    hits = [json.dumps({"page": f"/{n % 3}", "ms": n}).encode() if n % 10 else b"bad %d" % n for n in numbers]
    send(servers, "hits", [Record(None, hit, START_MS + n) for n, hit in zip(numbers, hits, strict=True)])


def _run(folder: Path, work: Path, servers: str) -> None:
    words = [
        "pipeline", "run", str(folder / "hits.py"), "-b", servers, "--master", "local[2]", "--once", "--quiet",
        "--checkpoints", str(folder / "checkpoints"), "--state", str(work / "state"),
        *[word for one in _CONF for word in ("--conf", one)],
    ]  # fmt: skip
    settings = environment() | {"OTTLA_TEST_OUT": str(folder / "out"), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*COMMAND, *words], env=settings, cwd=work, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout


def outputs(folder: Path, servers: str) -> dict[str, Any]:
    """What a reader finds in each output; a row that is there twice is listed twice."""
    found = observe.records(servers, [(topic, 0) for topic in ("slow", "hits.bad", "pages")])
    committed = {
        place: [row for row in one["rows"] if row[0] not in one["not_committed"]] for place, one in found.items()
    }
    with closing(sqlite3.connect(folder / "out/rows.db")) as database:
        rows = [row[0] for row in database.execute("select ms from rows")]
    files = pyarrow.dataset.dataset(str(folder / "out/parquet")).to_table()
    table = read_delta(str(folder / "out/pages"))[0].to_pylist()
    newest = {row[3]: json.loads(row[4]) for row in committed["pages-0"]}
    return {
        "slow": [json.loads(row[4])["ms"] for row in committed["slow-0"]],
        "bad": [row[4] for row in committed["hits.bad-0"]],
        "sql": sorted(rows),
        "parquet": sorted(files.column("ms").to_pylist()),
        "view": sorted([row["page"], row["n"], row["ms"]] for row in table),
        "view topic": sorted([page, row["n"], row["ms"]] for page, row in newest.items()),
    }


def expected(sent: int) -> dict[str, Any]:
    """The outputs when every input up to `sent` was counted once."""
    slow = [n for n in range(sent) if n % 10 and n % 2 == 0]
    pages = [[f"/{page}", len(own), sum(own)] for page in range(3) if (own := [n for n in slow if n % 3 == page])]
    return {
        "slow": slow,
        "bad": [f"bad {n}" for n in range(0, sent, 10)],
        "sql": slow,
        "parquet": slow,
        "view": pages,
        "view topic": pages,
    }
