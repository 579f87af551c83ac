"""Memory of a run over large records: the peaks of its processes, and after three times as many records.

    python -m tests.pipelines.large_records SERVERS FOLDER SIZE COUNT

Runs three queries over COUNT records of SIZE bytes, then over three times as many: a read, a step from topic to topic, and a
step into a Delta table. Prints one line of JSON for each query. Each query has Python workers of its own.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Producer

from ottla.pipelines import Pipeline, delta, topic
from ottla.pipelines.build import RunSettings
from ottla.pipelines.run import PipelineRun
from ottla.pipelines.session import spark
from tests.pipelines.conftest import Topics

HEAP = {1_000_000: "1g", 10_000_000: "1500m", 50_000_000: "3g"}


def main() -> None:
    servers, folder, size, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    topics = Topics(SimpleNamespace(bootstrap_servers=servers))  # type: ignore[arg-type]
    few, many = (filled(topics, number, size) for number in (count, 3 * count))
    for way in (_read, _to_topic, _to_table):
        config = {"spark.driver.memory": HEAP[size], "spark.python.worker.idleTimeoutSeconds": "0"}
        session = spark("local[1]", config=config, log_file=f"{folder}/spark.log")
        assert session.conf.get("spark.sql.adaptive.enabled") == "true"
        assert urllib.request.urlopen(session.sparkContext.uiWebUrl, timeout=60).status == 200
        peaks = []
        for name, records in ((few, count), (many, 3 * count)):
            assert way(session, topics, name, size, folder / f"{way.__name__}-{size}-{records}") == records
            peaks.append({"records": records, **_peaks_mb(session)})
        print(json.dumps({"way": way.__name__.strip("_"), "size": size, "peaks": peaks}), flush=True)
        session.stop()


def filled(topics: Topics, count: int, size: int) -> str:
    name = topics.new("large", 1, max_message_bytes=str(size + 1_000_000))
    producer = Producer({"bootstrap.servers": topics.servers, "message.max.bytes": size + 1_000_000, "linger.ms": 0})
    for number in range(count):
        producer.produce(name, bytes([65 + number % 26]) * size, b"%d" % number)
        producer.flush(60)
    return name


def _read(session: Any, topics: Topics, name: str, size: int, _folder: Path) -> int:
    rows = session.read.format("ottla").options(**topics.options(subscribe=name)).load()
    return int(rows.where(f"length(value) = {size}").count())


def _to_topic(session: Any, topics: Topics, name: str, size: int, folder: Path) -> int:
    target = topics.new("large-out", 1, max_message_bytes=str(size + 1_000_000))
    _run(session, topics, name, topic(target, value="bytes"), folder)
    return _read(session, topics, target, size, folder)


def _to_table(session: Any, topics: Topics, name: str, _size: int, folder: Path) -> int:
    from deltalake import DeltaTable

    _run(session, topics, name, delta(f"{folder}-table"), folder)
    return int(DeltaTable(f"{folder}-table").count())


def _run(session: Any, topics: Topics, name: str, writes: Any, folder: Path) -> None:
    pipeline = Pipeline("large")

    @pipeline.step(reads={"rows": topic(name)}, writes=writes)
    def same(rows: Any) -> Any:
        return rows.select("value")

    PipelineRun(session, pipeline, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(folder))).once()


def _peaks_mb(session: Any) -> dict[str, int]:
    """The most that this process, the JVM and any Python worker ever had."""
    jvm = int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    below = _below(jvm)
    return {"driver": _peak_mb(os.getpid()), "jvm": _peak_mb(jvm), "worker": max(map(_peak_mb, below), default=0)}


def _below(pid: int) -> list[int]:
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    below = [child for child, parent in parents.items() if parent == pid]
    return below + [process for child in below for process in _below(child)]


def _peak_mb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    main()
