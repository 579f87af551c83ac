"""`python -m bench.table_joins --keys N`: a stream joined with a table that grows to N keys, 1,000 changes a batch.

`state` keeps the table by key (`changes_of`); `global` reads the whole table for each batch (`table_of`). The table grows
tenfold from step to step, in one broker and one Spark session. Each step loads its new keys and measures some batches:
medians of seconds, and of CPU seconds of the JVM and its Python workers. `--minutes` ends a run that takes too long.
`--quick` checks the script and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.ottla_server import OttlaServer

from bench import machine
from bench.process import cpu_seconds

_USER, _CLICK = "name string, country string", "user string, page string"


_LARGEST_GLOBAL = 1_000_000
"""Larger tables are not read whole for each batch."""


class TooSlow(Exception):
    """The time of the run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    seconds: float
    cpu_s: float
    """Of the JVM and its Python workers."""

    def __str__(self) -> str:
        return f"{self.seconds:8.2f} s, {self.cpu_s:8.2f} CPU s"


class Inputs:
    def __init__(self, servers: str) -> None:
        self.servers, self.keys = servers, 0
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(name, 2, config={"retention.ms": "-1"}) for name in ("users", "clicks")]
        for created in admin.create_topics(topics).values():
            created.result(30)
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
        )
        self._draw = random.Random(20)

    def grow(self, keys: int) -> None:
        for number in range(self.keys, keys):
            self._user(number)
        self._producer.flush(300)
        self.keys = keys

    def change(self, count: int) -> None:
        """Half of them clicks, half of them new rows of the table."""
        for number in range(count):
            key = self._draw.randrange(self.keys)
            if number % 2:
                self._user(key)
            else:
                click = json.dumps({"user": f"user-{key}", "page": f"/page/{number}"})
                self._producer.produce("clicks", click)
        self._producer.flush(60)

    def _user(self, number: int) -> None:
        country = self._draw.choice(("at", "cz", "uk"))
        value = f'{{"name": "name of {number}", "country": "{country}"}}'
        while True:
            try:
                self._producer.produce("users", value, f"user-{number}")
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)


class Join:
    """A running query: clicks with the users' countries."""

    def __init__(self, spark: Any, servers: str, way: str, folder: Path, deadline: float) -> None:
        from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

        from ottla.pipelines import changes_of, join, table_of, topic
        from ottla.pipelines.build import RunSettings, input_frame
        from ottla.pipelines.pins import folder_of

        self._jvm, self._deadline = spark.sparkContext._gateway.proc.pid, deadline
        checkpoint = str(folder / way)
        settings = RunSettings(bootstrap_servers=servers, checkpoints=str(folder))
        users, clicks = (
            topic(name, value="json", schema=schema) for name, schema in (("users", _USER), ("clicks", _CLICK))
        )
        stream = input_frame(spark, clicks, settings)
        if way == "state":
            rows = join(stream, input_frame(spark, changes_of(users), settings), on="user", how="left")
        else:
            table = input_frame(spark, table_of(users), settings, folder_of(checkpoint, "users"))
            rows = stream.join(table.select(F.col("_key").alias("user"), "country"), "user", "left")
        self._query = (
            rows.select("user", "page", "country")
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
        )

    def caught_up(self) -> Cost:
        """What all records cost that are in the topics now."""
        begun, cpu_s = time.monotonic(), cpu_seconds(self._jvm)
        waiting = threading.Thread(target=self._query.processAllAvailable, daemon=True)
        waiting.start()
        waiting.join(max(0.0, self._deadline - time.monotonic()))
        if waiting.is_alive():
            raise TooSlow
        if self._query.exception() is not None:
            raise RuntimeError(str(self._query.exception()))
        return Cost(seconds=time.monotonic() - begun, cpu_s=cpu_seconds(self._jvm) - cpu_s)

    def stop(self) -> None:
        self._query.stop()


def sizes_up_to(keys: int) -> list[int]:
    sizes = [keys]
    while sizes[0] > 10_000:
        sizes.insert(0, sizes[0] // 10)
    return sizes


def measure(spark: Any, servers: str, folder: Path, asked: argparse.Namespace) -> None:
    deadline = time.monotonic() + 60 * asked.minutes
    inputs = Inputs(servers)
    joins = {way: Join(spark, servers, way, folder, deadline) for way in asked.ways}
    try:
        for keys in sizes_up_to(asked.keys):
            before = inputs.keys
            inputs.grow(keys)
            inputs.change(asked.changes)  # the first rows of a table load beside rows of the stream
            for way in [way for way in joins if way == "global" and keys > _LARGEST_GLOBAL]:
                joins.pop(way).stop()
            for way, join in joins.items():
                load = join.caught_up()
                print(f"{way:6} {keys:>10,} keys: {keys - before:,} loaded in {load}", flush=True)
            costs: dict[str, list[Cost]] = {way: [] for way in joins}
            for _ in range(asked.batches):
                inputs.change(asked.changes)
                for way, join in joins.items():
                    costs[way].append(join.caught_up())
            for way, batches in costs.items():
                median = Cost(
                    seconds=statistics.median(cost.seconds for cost in batches),
                    cpu_s=statistics.median(cost.cpu_s for cost in batches),
                )
                print(f"{way:6} {keys:>10,} keys: {asked.changes:,} changes in {median}, load {_load()}", flush=True)
    except TooSlow:
        print(f"stopped after {asked.minutes:g} minutes (--minutes)")
    finally:
        for join in joins.values():
            join.stop()


def _load() -> str:
    return f"{os.getloadavg()[0]:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--ways", nargs="+", default=["state"], choices=["state", "global"])
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.quick:
        asked.keys, asked.changes, asked.batches = 100, 20, 2
    from ottla.pipelines.session import spark as new_session

    print(f"{machine.tag()}, {machine.cores()} cores, load {_load()} at the start")
    with tempfile.TemporaryDirectory(prefix="ottla-tables-") as temporary:
        folder = Path(temporary)
        server = OttlaServer(folder / "broker")
        server.start()
        session = new_session("local[2]", config={"spark.driver.memory": "2g"}, log_file=str(folder / "spark.log"))
        try:
            measure(session, server.bootstrap_servers, folder, asked)
        finally:
            session.stop()
            server.stop()


if __name__ == "__main__":
    main()
