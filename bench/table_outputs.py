"""Tables by Spark's tasks: rate, and the driver's memory, for Delta, Iceberg and files.

`python -m bench.table_outputs --gigabytes 5` writes that much to each and fails if the driver's JVM or Python process grows
by more than 200 MB between the first and the last batch, or if a row comes to the driver (`spark.driver.maxResultSize=1m`).
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from ottla.pipelines.session import spark

_ROW_BYTES = 1000
_BATCHES = 10
_GROWTH_KB = 200_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    session = spark(arguments.master, config={"spark.driver.maxResultSize": "1m", "spark.driver.memory": "1g"})
    rows = int(arguments.gigabytes * 1e9 / _ROW_BYTES / _BATCHES)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        catalog = {"catalog.uri": f"sqlite:///{folder}/c.db", "catalog.warehouse": f"{folder}/lake"}
        targets = {
            "ottla-delta": {"path": f"{folder}/delta"},
            "ottla-iceberg": {"table": "bench.rows", **catalog},
            "ottla-files": {"path": f"{folder}/files"},
        }
        for name, options in targets.items():
            before, begun = 0, time.monotonic()
            for batch in range(_BATCHES):
                frame = session.range(rows).selectExpr("id as n", f"repeat(uuid(), {_ROW_BYTES // 36}) as filling")
                writer = frame.write.format(name).options(**options).option("txnAppId", "bench")
                writer.option("txnVersion", str(batch)).mode("append").save()
                before = before or _memory_kb(session)
            seconds, growth = time.monotonic() - begun, _memory_kb(session) - before
            print(f"{name}: {arguments.gigabytes * 1000 / seconds:.0f} MB/s, the driver grew by {growth // 1000} MB")
            if growth > _GROWTH_KB:
                raise SystemExit(f"{name}: the driver's memory grows with the rows")
    session.stop()


def _memory_kb(session: object) -> int:
    """The most that the JVM and this process ever had."""
    pid = int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[attr-defined]
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    jvm = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return jvm + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
