"""What the examples have in common to show themselves: orders to work on, a crash, a second run, and the count.

An example gives `work(stage)`, which runs in a process of its own. The first run calls `stage.crash()` in the middle;
the second runs until nothing is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ORDERS = 60
BATCH = 5
CRASH_IN_BATCH = 6
IDLE_S = 2.0


class Stage:
    """One worker's view: where to read, where to write, when to die."""

    def __init__(self, servers: str, run: str, folder: str, *, doomed: bool) -> None:
        self.servers = servers
        self.orders, self.results = f"orders-{run}", f"results-{run}"
        self.database = str(Path(folder) / "results.db")
        self._doomed = doomed
        self._batches = 0

    def consumer(self, **options: object) -> Consumer:
        """A static member keeps its place in the group, so that the second run need not wait for a timeout."""
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.orders,
                "group.instance.id": "worker",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **options,
            }
        )

    def batches(self, consumer: Consumer) -> Iterator[list[Message]]:
        """Orders in batches, until none has come for a while."""
        last = time.monotonic()
        while time.monotonic() - last < (IDLE_S if self._batches else 30):
            messages = [message for message in consumer.consume(BATCH, 0.2) if not message.error()]
            if messages:
                self._batches += 1
                yield messages
                last = time.monotonic()

    def crash(self) -> None:
        """In the middle of the first run: no cleaning up, no last words."""
        if self._doomed and self._batches == CRASH_IN_BATCH:
            os.kill(os.getpid(), signal.SIGKILL)

    def read_results(self) -> list[str]:
        """What stands in the output topic, as a careful reader sees it."""
        reader = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "count",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        reader.assign([TopicPartition(self.results, 0, 0)])
        found = []
        while (message := reader.poll(10)) is not None and not message.error():
            found.append(message.value().decode())
        reader.close()
        return found


def show(script: str, work: Callable[[Stage], None], results: Callable[[Stage], list[str]]) -> None:
    """The main function of every example."""
    if len(sys.argv) == 6 and sys.argv[1] == "work":
        _, _, servers, run, folder, doomed = sys.argv
        work(Stage(servers, run, folder, doomed=doomed == "doomed"))
        os._exit(0)
    if len(sys.argv) > 1:
        _play(script, sys.argv[1], results)
        return
    from ottla.testing import Broker

    with Broker() as broker:
        _play(script, broker.bootstrap_servers, results)


def _play(script: str, servers: str, results: Callable[[Stage], list[str]]) -> None:
    run = f"{Path(script).stem}-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(servers, run, folder, doomed=False)
        _prepare(stage)
        command = [sys.executable, script, "work", servers, run, folder]
        first = subprocess.run([*command, "doomed"], stderr=subprocess.DEVNULL, check=False)
        if first.returncode != -signal.SIGKILL:
            sys.exit(f"the first run should have been killed, but ended with {first.returncode}")
        subprocess.run([*command, "spared"], stderr=subprocess.DEVNULL, check=True)
        times = Counter(Counter(results(stage)).values())
    done = sum(times.values())
    print(
        f"{Path(script).stem}: {ORDERS} orders, killed once: {times[1]} done once, {times[2]} done twice, "
        f"{ORDERS - done} lost"
    )


def _prepare(stage: Stage) -> None:
    admin = AdminClient({"bootstrap.servers": stage.servers})
    topics = [NewTopic(name, 1, 1) for name in (stage.orders, stage.results)]
    for created in admin.create_topics(topics).values():
        created.result(20)
    producer = Producer({"bootstrap.servers": stage.servers})
    for number in range(ORDERS):
        producer.produce(stage.orders, f"order-{number}")
    producer.flush(20)
