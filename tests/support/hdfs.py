"""A real HDFS in one JVM on loopback: a name node and a data node, from Hadoop's own minicluster jar."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kafka_jars import cache_dir, fetch_artifacts, java
from tests.support.ports import free_port

VERSION = "3.5.0"
_ARTIFACTS = [
    f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}",
    f"org.apache.hadoop:hadoop-client-api:{VERSION}",
    f"org.apache.hadoop:hadoop-client-runtime:{VERSION}",
    "org.junit.jupiter:junit-jupiter-api:5.14.0",  # the minicluster asks its own assertions for a folder
]
_START_S = 300


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Its address; Unavailable says what is missing."""
    jars = fetch_artifacts("Hadoop's minicluster", cache_dir().with_name(f"ottla-hdfs-{VERSION}"), _ARTIFACTS)
    folder.mkdir(parents=True)
    port, details, log = free_port(), folder / "details.json", folder / "hdfs.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dtest.build.data={folder}/data",
                "-cp", f"{jars}/*", "org.apache.hadoop.test.MiniDFSClusterManager",
                "-nnport", str(port), "-datanodes", "1", "-format", "-writeDetails", str(details),
            ],
            cwd=folder, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + _START_S
        while not details.exists():  # written when the data node has registered
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no HDFS: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.5)
        yield f"hdfs://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)
