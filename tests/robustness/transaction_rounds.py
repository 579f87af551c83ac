"""Rounds of kill -9 during read-process-write: `python -m tests.robustness.transaction_rounds --rounds 100`.

Broker and workers are killed at random, often both. In the end every input stands exactly once in the output that
read_committed shows, no aborted record was ever seen, and no transaction is there in part.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.robustness.read_process_write import GROUP, INPUT, OUTPUT, PARTITIONS
from tests.robustness.server_process import ROOT, ServerProcess, environment
from tests.support.committed import await_decided

WORKERS = 2
INPUTS_PER_ROUND = 60
PROPERTIES = {
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": "4",
}


class Worker:
    def __init__(self, servers: str, name: str, log: Path, history: Path | None = None) -> None:
        """`history`: where the worker records its transactions."""
        self._servers, self._name, self._log = servers, name, log
        self._more = [] if history is None else [str(history)]
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def ensure(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            command = [sys.executable, "-m", "tests.robustness.read_process_write"]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*command, self._servers, self._name, str(self.starts), *self._more],
                    cwd=ROOT, env=environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                )  # fmt: skip

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)


class CopyLoad:
    """Workers that copy the input to the output in transactions, what was fed to them, and what came out."""

    def __init__(
        self,
        servers: str,
        directory: Path,
        *,
        replicas: int = 1,
        workers: int = WORKERS,
        history: Path | None = None,
    ) -> None:
        self.servers = servers
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(name, PARTITIONS, replicas) for name in (INPUT, OUTPUT)]
        for future in admin.create_topics(topics, operation_timeout=30).values():
            future.result(40)
        log = directory / "workers.log"
        self.workers = [Worker(servers, f"worker-{i}", log, history) for i in range(workers)]
        # One in flight, for leaders move: `tests.robustness.load.Sender` says why.
        feeding = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
        self.feeder = Producer({"bootstrap.servers": servers, "log_level": 0, **feeding})
        self.inputs = 0
        self.seen: dict[tuple[int, int], str] = {}
        """Output partition and offset -> value, as a read_committed reader saw them while the rounds went on."""
        self.reader = self._reader("read_committed")
        self.stuck = 0
        self._progress = (0, False)
        self._progress_at = time.monotonic()

    def _reader(self, isolation: str) -> Consumer:
        reader = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        reader.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(PARTITIONS)])
        return reader

    def feed(self, count: int) -> None:
        for _ in range(count):
            self.feeder.produce(INPUT, str(self.inputs), partition=self.inputs % PARTITIONS)
            self.inputs += 1
        for worker in self.workers:
            worker.ensure()
        self.feeder.poll(0)

    def look(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self.reader.poll(0.1)
            if message is not None and not message.error():
                self.seen[message.partition() or 0, message.offset() or 0] = (message.value() or b"").decode()

    def unstick(self, patience_s: float) -> None:
        """Kill workers that have had inputs and shown nothing new for so long: librdkafka waits for ever now and then when
        its coordinators die. What they leave open is aborted, and new ones go on from the offsets.
        """
        progress, now = (len(self.seen), len(self.seen) >= 2 * self.inputs), time.monotonic()
        if progress != self._progress or progress[1]:
            self._progress, self._progress_at = progress, now
        elif now - self._progress_at > patience_s:
            self.stuck += 1
            self._progress_at = now
            for worker in self.workers:
                worker.kill()

    def finish(self, timeout_s: float = 120, patience_s: float | None = None) -> str:
        """Let the workers read everything, then judge."""
        assert self.feeder.flush(60) == 0
        until = time.monotonic() + timeout_s
        while self._lag() > 0:
            assert time.monotonic() < until, f"the workers do not get done, {self._lag()} inputs are left"
            for worker in self.workers:
                worker.ensure()
            self.look(0.5)
            if patience_s is not None:
                self.unstick(patience_s)
        for worker in self.workers:
            worker.kill()
        await_decided(self.servers, OUTPUT)
        return self._judge()

    def _lag(self) -> int:
        asker = Consumer({"bootstrap.servers": self.servers, "group.id": GROUP, "log_level": 0})
        partitions = [TopicPartition(INPUT, partition) for partition in range(PARTITIONS)]
        try:
            committed = {place.partition: max(place.offset, 0) for place in asker.committed(partitions, 20)}
            ends = {tp.partition: asker.get_watermark_offsets(tp, 20)[1] for tp in partitions}
        finally:
            asker.close()
        return sum(ends.values()) - sum(committed.values())

    def _read_all(self, isolation: str) -> Iterator[tuple[tuple[int, int], str]]:
        reader = self._reader(isolation)
        ended: set[int] = set()
        until = time.monotonic() + 60
        while len(ended) < PARTITIONS:
            assert time.monotonic() < until, "the output does not end"
            message = reader.poll(1)
            if message is None:
                continue
            if message.error():
                ended.add(message.partition() or 0)
            else:
                ended.discard(message.partition() or 0)
                yield (message.partition() or 0, message.offset() or 0), (message.value() or b"").decode()
        reader.close()

    def _judge(self) -> str:
        committed = dict(self._read_all("read_committed"))
        everything = dict(self._read_all("read_uncommitted"))
        values: list[dict[str, Any]] = [json.loads(value) for value in committed.values()]
        assert not [value for value in values if value["aborted"]], "an aborted record was read"
        halves = Counter((value["n"], value["half"]) for value in values)
        wanted = {(number, half) for number in range(self.inputs) for half in range(2)}
        assert set(halves) == wanted, f"missing: {sorted(wanted - set(halves))[:10]}"
        twice = [half for half, count in halves.items() if count > 1]
        assert not twice, f"written more than once: {twice[:10]}"
        sizes = {value["attempt"]: value["size"] for value in values}
        counts = Counter(value["attempt"] for value in values)
        torn = [attempt for attempt, size in sizes.items() if counts[attempt] != size]
        assert not torn, f"{len(torn)} transactions are there in part"
        wrong = {place: value for place, value in self.seen.items() if committed.get(place) != value}
        assert not wrong, f"seen and not committed: {list(wrong.items())[:3]}"
        lost = len(everything) - len(committed)
        return (
            f"{self.inputs} inputs, {len(sizes)} transactions committed, {lost} records of aborted ones not shown, "
            f"{len(self.seen)} seen live"
        )

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.reader.close()


class TransactionRounds:
    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.server = ServerProcess(directory, properties=PROPERTIES).format()
        self.server.start()
        self.load = CopyLoad(self.server.bootstrap_servers, directory)
        self.broker_kills = self.worker_kills = 0

    def round(self) -> None:
        self.load.feed(INPUTS_PER_ROUND)
        self.load.look(self.random.uniform(0.3, 1.5))
        victim = self.random.random()
        if victim < 0.65:
            self.server.kill()
            self.broker_kills += 1
        if victim > 0.45:
            for worker in self.random.sample(self.load.workers, self.random.randint(1, WORKERS)):
                worker.kill()
                self.worker_kills += 1
        if victim < 0.65:
            if self.random.random() < 0.3:  # once more, while it completes what was prepared
                self.server.start()
                time.sleep(self.random.uniform(0, 0.1))
                self.server.kill()
                self.broker_kills += 1
            self.server.start()

    def finish(self) -> str:
        summary = self.load.finish()
        self.server.assert_no_traceback()
        return f"{self.broker_kills} broker kills, {self.worker_kills} worker kills, {summary}"

    def close(self) -> None:
        self.load.close()
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.kill()


def run(directory: Path, *, rounds: int, seed: int, progress: bool = False) -> str:
    play = TransactionRounds(directory, seed)
    try:
        for number in range(rounds):
            play.round()
            if progress and (number + 1) % 10 == 0:
                print(
                    f"round {number + 1}: {play.broker_kills} broker kills, {len(play.load.seen)} outputs seen",
                    flush=True,
                )
        return play.finish()
    finally:
        play.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-txn-") as temporary:
        print(run(Path(temporary), rounds=options.rounds, seed=options.seed, progress=True))


if __name__ == "__main__":
    main()
