"""`python -m bench.pipelines`: Spark's two sources side by side, the direct scan beside the wire, and how both grow.

One broker in a process of its own; one Spark session for `format("ottla")` and one, in an environment of its own, for the
official connector; every row is measured in turns. CPU is that of Spark's processes, the broker's beside it. `--quick`
checks the script and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.ottla_server import ROOT, OttlaServer

from bench import machine
from bench.spark_worker import cpu_seconds
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.segments import scan_range
from ottla.tables.topics import settings_from

OFFICIAL = "4.0.0"
_PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{OFFICIAL}"
_WORKER = Path(__file__).with_name("spark_worker.py")
_VALUE = 1000
_FETCH = {"kafka.max.partition.fetch.bytes": str(8 << 20), "kafka.fetch.max.bytes": str(64 << 20)}
"""Both sources ask for as much at a time; both check the CRC."""


def official_python() -> Path:
    """The interpreter of an environment with pyspark and nothing else, made once in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / f"ottla-pyspark-{OFFICIAL}"
    python = cache / "bin" / "python"
    if not (cache / ".complete").exists():
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "-q", "--clear", str(cache), "--python", sys.executable], check=True)
        subprocess.run([uv, "pip", "install", "-q", "--python", str(python), f"pyspark=={OFFICIAL}"], check=True)
        (cache / ".complete").touch()
    return python


class Worker:
    """A Spark session in a process of its own."""

    def __init__(self, python: str, packages: str, log: Path) -> None:
        # Ours chooses its workers' Python itself; the official one must see nothing of ours.
        more = {"PYSPARK_PYTHON": python, "PYTHONPATH": ""} if packages else {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        environment = {**os.environ, **more}
        self._process = subprocess.Popen(
            [python, str(_WORKER), packages],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("wb"), text=True,
        )  # fmt: skip
        self.about = self._answer()

    def ask(self, **what: Any) -> dict[str, Any]:
        if self._process.stdin is None:
            raise RuntimeError("the worker has no stdin")
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise RuntimeError("a Spark session ended; its log says why")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


@dataclass
class Bed:
    server: OttlaServer
    workers: dict[str, Worker]
    rounds: int

    @property
    def servers(self) -> str:
        return self.server.bootstrap_servers

    def broker_cpu(self) -> float:
        process = self.server._process
        return cpu_seconds(process.pid) if process is not None else 0.0

    def topic(self, name: str, partitions: int, rows: int = 0) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(name, partitions, config={"retention.ms": "-1"})])[name].result(30)
        if rows:
            _fill(self.servers, name, partitions, rows)

    def in_turns(self, ways: dict[str, Callable[[int], dict[str, Any]]]) -> dict[str, dict[str, float]]:
        """Each way once to warm up, then in turns, each round beginning with another one; medians."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
        for number in range(self.rounds + 1):
            names = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
            for name in names:
                broker = self.broker_cpu()
                one = ways[name](number)
                one["broker_cpu"] = self.broker_cpu() - broker
                if number:
                    found[name].append(one)
        return {name: _summary(rows) for name, rows in found.items()}


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    rates = [one["bytes"] / one["seconds"] / 1e6 for one in rows]
    return {
        "MB/s": statistics.median(rates), "worst": min(rates), "best": max(rates),
        "seconds": statistics.median(one["seconds"] for one in rows),
        "cpu ms/MB": statistics.median(one["cpu"] / one["bytes"] * 1e9 for one in rows),
        "broker ms/MB": statistics.median(one["broker_cpu"] / one["bytes"] * 1e9 for one in rows),
    }  # fmt: skip


def _fill(servers: str, topic: str, partitions: int, rows: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "batch.size": 1_000_000, "linger.ms": 50, "log_level": 3})
    base = os.urandom(_VALUE * 2)
    for number in range(rows):
        begin = number % _VALUE
        while True:
            try:
                producer.produce(topic, base[begin : begin + _VALUE], b"key%07d" % number, number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if not number & 1023:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the topic could not be filled")


def reader(bed: Bed, source: str, topic: str, **options: str) -> Callable[[int], dict[str, Any]]:
    given = {"kafka.bootstrap.servers": bed.servers, "subscribe": topic, **_FETCH, **options}
    return lambda _: bed.workers[source].ask(do="read", format=source, options=given)


def writer(bed: Bed, source: str, rows: int, **options: str) -> Callable[[int], dict[str, Any]]:
    given = {"kafka.bootstrap.servers": bed.servers, "topic": "written", **options}
    return lambda _: bed.workers[source].ask(do="write", format=source, rows=rows, size=_VALUE, options=given)


def in_process(read: Callable[[], Iterator[Any]]) -> Callable[[int], dict[str, Any]]:
    """To Arrow, without Spark."""

    def run(_: int) -> dict[str, Any]:
        began, cpu = time.perf_counter(), time.process_time()
        size = sum(batch.column("value").nbytes for batch in read())
        return {"bytes": size, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}

    return run


@contextmanager
def bed_of(rounds: int, *, with_official: bool) -> Iterator[Bed]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as place, ExitStack() as stack:
        server = OttlaServer(Path(place) / "server", properties={"transaction.state.log.num.partitions": "4"})
        server.start()
        stack.callback(server.stop)
        workers = {"ottla": Worker(sys.executable, "", Path(place) / "ottla.log")}
        stack.callback(workers["ottla"].close)
        if with_official:
            workers["kafka"] = Worker(str(official_python()), _PACKAGE, Path(place) / "kafka.log")
            stack.callback(workers["kafka"].close)
        yield Bed(server, workers, rounds)


def measure(bed: Bed, rows: int) -> dict[str, Any]:
    sources = list(bed.workers)
    bed.topic("read", 4, rows)
    found: dict[str, Any] = {"versions": {name: worker.about for name, worker in bed.workers.items()}}
    found["read, 4 partitions"] = bed.in_turns({name: reader(bed, name, "read") for name in sources})
    print_rows("read, 4 partitions", found["read, 4 partitions"])
    path = str(bed.server.data_dir)
    paths = {"wire": reader(bed, "ottla", "read"), "files": reader(bed, "ottla", "read", path=path)}
    found["Spark: files beside the wire"] = bed.in_turns(paths)
    print_rows("Spark: files beside the wire", found["Spark: files beside the wire"])
    plan = FetchPlan(topic="read", partition=0, start=0, end=rows // 4)
    settings = settings_from({"bootstrap.servers": bed.servers})
    arrow = {
        "wire": in_process(lambda: read_range(settings, plan)),
        "files": in_process(lambda: scan_range(path, plan)),
    }
    found["Arrow, one partition: files beside the wire"] = bed.in_turns(arrow)
    print_rows("Arrow, one partition: files beside the wire", found["Arrow, one partition: files beside the wire"])
    bed.topic("written", 4)
    writes = {name: writer(bed, name, rows // 4) for name in sources if name != "ottla"}
    writes |= {
        "ottla, at least once": writer(bed, "ottla", rows // 4, exactlyOnce="false"),
        "ottla, exactly once": writer(bed, "ottla", rows // 4),
    }
    found["write, 4 tasks"] = bed.in_turns(writes)
    print_rows("write, 4 tasks", found["write, 4 tasks"])
    for partitions in (1, 16, 64):
        name = f"read, {partitions} partitions"
        bed.topic(f"read{partitions}", partitions, rows // 4)
        found[name] = bed.in_turns({source: reader(bed, source, f"read{partitions}") for source in sources})
        print_rows(name, found[name])
    small = found["read, 16 partitions"]["ottla"]
    large = found["read, 4 partitions"]["ottla"]
    found["100 GB, extrapolated"] = _extrapolated(rows // 4, small["seconds"], rows, large["seconds"])
    print(f'\n100 GB by format("ottla"), extrapolated from {rows / 4e6:.2f} and {rows / 1e6:.2f} GB by a straight line: '
          f"{found['100 GB, extrapolated'] / 60:.0f} minutes")  # fmt: skip
    return found


def _extrapolated(few: int, few_s: float, many: int, many_s: float) -> float:
    slope = (many_s - few_s) / (many - few)
    return many_s + slope * (100_000_000_000 / _VALUE - many)


def print_rows(title: str, rows: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}")
    first = next(iter(rows.values()))["MB/s"]
    for name, one in rows.items():
        print(
            f"  {name:<24} {one['MB/s']:7.0f} MB/s ({one['worst']:.0f} to {one['best']:.0f}, {one['MB/s'] / first:.2f}x)"
            f"  Spark {one['cpu ms/MB']:6.2f} ms/MB  broker {one['broker ms/MB']:5.2f} ms/MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small check, not a measurement")
    parser.add_argument("--rows", type=int, default=1_000_000, help="records of 1 KB in the topic that is read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-official", action="store_true", help='only format("ottla")')
    parser.add_argument("--results", type=Path, help="write the figures there, as JSON")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers and sessions end with it
    began, load = time.monotonic(), machine.load_average()
    with bed_of(1 if given.quick else given.rounds, with_official=not given.without_official) as bed:
        found = measure(bed, 40_000 if given.quick else given.rows)
    print(f"\nload before {load[0]}, after {machine.load_average()[0]}; {time.monotonic() - began:.0f} s")
    if given.results:
        given.results.write_text(json.dumps(found | {"load": load}, indent=1))


if __name__ == "__main__":
    main()
