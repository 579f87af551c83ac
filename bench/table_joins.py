"""`python -m bench.table_joins`: a stream joined with tables of growing size, a batch of 1,000 changes at a time.

`state` keeps the table by key (`changes_of`); `global` reads the whole table for each batch (`table_of`). One broker and
one Spark session run all sizes. The figures are medians of the batches behind the first, which loads the table.
`--quick` checks the script and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.ottla_server import OttlaServer

from bench import machine

_USER, _CLICK = "name string, country string", "user string, page string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    way: str
    keys: int
    first_s: float
    batch_s: float
    """Median of a whole trigger."""
    tasks_s: float
    """Median of its addBatch: planning, tasks, state and output."""


class Inputs:
    def __init__(self, servers: str, keys: int) -> None:
        self.servers, self.keys = servers, keys
        self.users, self.clicks = f"users-{keys}", f"clicks-{keys}"
        admin = AdminClient({"bootstrap.servers": servers})
        wanted = [NewTopic(name, 2, config={"retention.ms": "-1"}) for name in (self.users, self.clicks)]
        for made in admin.create_topics(wanted).values():
            made.result(30)
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
        )
        self._draw = random.Random(keys)
        for number in range(keys):
            self._user(number)
        self._producer.flush(300)

    def change(self, count: int) -> None:
        """Half of them clicks, half of them new rows of the table."""
        for number in range(count):
            key = self._draw.randrange(self.keys)
            if number % 2:
                self._user(key)
            else:
                click = json.dumps({"user": f"user-{key}", "page": f"/page/{number}"})
                self._producer.produce(self.clicks, click)
        self._producer.flush(60)

    def _user(self, number: int) -> None:
        value = json.dumps({"name": f"name of {number}", "country": self._draw.choice(("at", "cz", "uk"))})
        while True:
            try:
                self._producer.produce(self.users, value, f"user-{number}")
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)


def measured(spark: Any, inputs: Inputs, way: str, folder: Path, *, batches: int, changes: int) -> Measured:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

    from ottla.pipelines import changes_of, join, table_of, topic
    from ottla.pipelines.build import RunSettings, input_frame
    from ottla.pipelines.pins import folder_of

    checkpoint = str(folder / f"{way}-{inputs.keys}")
    settings = RunSettings(bootstrap_servers=inputs.servers, checkpoints=str(folder))
    users, clicks = (
        topic(name, value="json", schema=schema) for name, schema in ((inputs.users, _USER), (inputs.clicks, _CLICK))
    )
    stream = input_frame(spark, clicks, settings)
    if way == "state":
        rows = join(stream, input_frame(spark, changes_of(users), settings), on="user", how="left")
    else:
        table = input_frame(spark, table_of(users), settings, folder_of(checkpoint, "users"))
        rows = stream.join(table.select(F.col("_key").alias("user"), "country"), "user", "left")
    begun = time.monotonic()
    inputs.change(changes)
    query = (
        rows.select("user", "page", "country")
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        query.processAllAvailable()
        first_s = time.monotonic() - begun
        first = query.lastProgress
        seen = first["batchId"] if first is not None else -1
        for _ in range(batches):
            inputs.change(changes)
            query.processAllAvailable()
        found = [
            dict(progress["durationMs"])
            for progress in query.recentProgress
            if progress["batchId"] > seen and progress["numInputRows"]
        ]
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
    finally:
        query.stop()
    return Measured(
        way=way,
        keys=inputs.keys,
        first_s=first_s,
        batch_s=statistics.median(one["triggerExecution"] for one in found) / 1000,
        tasks_s=statistics.median(one["addBatch"] for one in found) / 1000,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=7)
    parser.add_argument("--ways", nargs="+", default=["state", "global"], choices=["state", "global"])
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.quick:
        asked.keys, asked.changes, asked.batches = [100], 20, 2
    from ottla.pipelines.session import spark as new_session

    print(f"{machine.tag()}, {machine.cores()} cores, load {os.getloadavg()[0]:.0f} at the start")
    with tempfile.TemporaryDirectory(prefix="ottla-tables-") as temporary:
        folder = Path(temporary)
        server = OttlaServer(folder / "broker")
        server.start()
        session = new_session("local[2]", config={"spark.driver.memory": "2g"}, log_file=str(folder / "spark.log"))
        try:
            for keys in asked.keys:
                inputs = Inputs(server.bootstrap_servers, keys)
                for way in asked.ways:
                    one = measured(session, inputs, way, folder, batches=asked.batches, changes=asked.changes)
                    print(
                        f"{way:6} {keys:>9,} keys: first batch {one.first_s:7.1f} s, then {one.batch_s:6.2f} s a batch of "
                        f"{asked.changes:,} (addBatch {one.tasks_s:6.2f} s), load {os.getloadavg()[0]:.0f}",
                        flush=True,
                    )
        finally:
            session.stop()
            server.stop()


if __name__ == "__main__":
    main()
