"""Connectors that were stopped: where sources had read to, what sinks had written, and the files of `ottla connect`."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset

from ottla.connect.sinks.delta import read_delta
from ottla.connect.sources.identity import identity
from tests.robustness.server_process import COMMAND, ServerProcess, environment
from tests.upgrade import observations as observe
from tests.upgrade.observations import Json
from tests.upgrade.scenes.steps import FOLDER, SMALL, make_topic

SERVERS = "@SERVERS@"
"""Stands in a connector's settings for the bootstrap servers."""
TOPICS = ("lines", "shop-orders", "east.lines", "west.lines")
_ORDERS = {"topics": "shop-orders", "flush.size": "2"}
SOURCES = (
    {"name": "lines", "connector.class": "file-source", "file": f"{FOLDER}/in/lines.txt", "topic": "lines",
     "value.converter": "string"},
    {"name": "orders", "connector.class": "sql-source", "connection.url": f"sqlite:///{FOLDER}/in/shop.db",
     "table.whitelist": "orders", "mode": "incrementing", "incrementing.column.name": "id", "topic.prefix": "shop-"},
)  # fmt: skip
SINKS = (
    {"name": "to-sql", "connector.class": "sql-sink", "connection.url": f"sqlite:///{FOLDER}/out/rows.db",
     "table.name.format": "copies", **_ORDERS},
    {"name": "to-delta", "connector.class": "delta-sink", "path": f"{FOLDER}/out/delta", **_ORDERS},
    {"name": "to-parquet", "connector.class": "parquet-sink", "path": f"{FOLDER}/out/parquet", **_ORDERS},
    {"name": "from-east", "connector.class": "mirror-source", "source.cluster.alias": "east", "topics": "lines",
     "source.cluster.bootstrap.servers": SERVERS},
    {"name": "to-west", "connector.class": "mirror-sink", "source.cluster.alias": "west", "topics": "lines",
     "target.cluster.bootstrap.servers": SERVERS, "flush.size": "2"},
)  # fmt: skip
PROPERTIES = SMALL | {"auto.create.topics.enable": "false"}


def record(folder: Path, work: Path) -> Json:
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    add_input(folder, range(5))
    with ServerProcess(work, properties=PROPERTIES, log_dirs=[folder / "data"]) as server:
        servers = server.bootstrap_servers
        with observe.connected(servers) as cluster:
            for topic in TOPICS:
                make_topic(cluster, topic)
            for stage in (SOURCES, SINKS):
                _run(stage, folder, work, servers)
            topics = observe.topics(cluster)
            manifest = {
                "properties": PROPERTIES,
                "connectors": [*SOURCES, *SINKS],
                "file_identity": identity(str(folder / "in/lines.txt")),
                "topics": topics,
                "records": observe.records(servers, observe.places(topics)),
                "groups": observe.groups(cluster),
                "outputs": outputs(folder),
            }
        code, _ = server.stop()
        assert code == 0, server.log_text()
    return manifest


def settings(config: dict[str, str], folder: Path, servers: str) -> dict[str, str]:
    return {name: value.replace(FOLDER, str(folder)).replace(SERVERS, servers) for name, value in config.items()}


def _run(stage: tuple[dict[str, str], ...], folder: Path, work: Path, servers: str) -> None:
    files = []
    for config in stage:
        files.append(work / f"{config['name']}.json")
        files[-1].write_text(json.dumps(settings(config, folder, servers)))
    words = ["connect", "run", *map(str, files), "-b", servers, "--once", "--state", str(folder / "state")]
    # The working directory goes into the state files.
    done = subprocess.run(
        [*COMMAND, *words], env=environment(), cwd=work, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def add_input(folder: Path, numbers: range) -> None:
    """These rows into everything that a source reads."""
    with (folder / "in/lines.txt").open("a") as file:
        file.writelines(f"line {n}\n" for n in numbers)
    with closing(sqlite3.connect(folder / "in/shop.db")) as database:
        database.execute("create table if not exists orders (id integer primary key, what text)")
        database.executemany("insert into orders values (?, ?)", [(n, f"order {n}") for n in numbers])
        database.commit()


def outputs(folder: Path) -> dict[str, list[Any]]:
    """The ids that each sink of rows has, sorted: one that is there twice is listed twice."""
    with closing(sqlite3.connect(folder / "out/rows.db")) as database:
        rows = [row[0] for row in database.execute("select id from copies")]
    files = pyarrow.dataset.dataset(str(folder / "out/parquet")).to_table()
    return {
        "sql": sorted(rows),
        "delta": sorted(read_delta(str(folder / "out/delta"))[0].column("id").to_pylist()),
        "parquet": sorted(files.column("id").to_pylist()),
    }
