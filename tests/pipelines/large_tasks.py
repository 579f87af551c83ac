"""One task over large records in a process of its own, as a Python worker runs it: prints the most memory that it had.

    python -m tests.pipelines.large_tasks WAY SERVERS TOPIC TARGET COUNT

WAY is read, to-topic or to-table; TARGET is the topic or the folder that the task writes. The JVM's part is left out, so one
process holds what a reading and a writing worker hold together.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.pipelines.writer import write_options, write_task
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.topics import settings_from
from tests.pipelines import attempts

VALUE = pa.schema([("value", pa.binary())])


def main() -> None:
    way, servers, name, target, count = sys.argv[1:]
    batches = _values(servers, name, int(count))
    if way == "read":
        rows = sum(batch.num_rows for batch in batches)
    elif way == "to-topic":
        options = {"kafka.bootstrap.servers": servers, "topic": target, "txnAppId": target, "txnVersion": "0"}
        schema = StructType([StructField("value", BinaryType())])
        rows = write_task(write_options(options, schema), batches, target, 0).rows  # type: ignore[attr-defined]
    else:
        writer = attempts.writer("delta", 0, VALUE, path=target)
        staged = writer.write(batches)
        writer.commit([staged])
        rows = staged.rows
    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def _values(servers: str, name: str, count: int) -> Iterator[pa.RecordBatch]:
    settings = settings_from({"bootstrap.servers": servers}, "ottla-large")
    for batch in read_range(settings, FetchPlan(topic=name, partition=0, start=0, end=count)):
        yield batch.select(["value"]).cast(VALUE)


if __name__ == "__main__":
    main()
