"""`make demo`: a broker in this process, a topic, records written and read with a real client, and what it cost.

Only the client's public calls and the testing broker are used: the same lines work against Apache Kafka.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from ottla.env.logging import configure
from ottla.testing import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "page-views"
PARTITIONS = 3
RECORDS = 10_000
SHOWN = 8
TIMEOUT_S = 20.0
PEOPLE = ("ada", "bohumil", "franz", "max", "milena", "ottla")
PAGES = ("/", "/castle", "/letters", "/log", "/trial")


class DemoFailed(Exception):
    """What did not happen, in one line."""


class Step(NamedTuple):
    what: str
    seconds: float
    note: str = ""


class Stopwatch:
    """The steps of the demo and how long each took."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._since = time.perf_counter()

    def done(self, what: str, note: str = "") -> float:
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        self.steps.append(Step(what, seconds, note))
        return seconds


def main() -> int:
    """The exit code."""
    try:
        import confluent_kafka  # noqa: F401 - is it there?
    except ImportError:
        complaint("the demo needs a Kafka client: pip install confluent-kafka")
        return 1
    configure(level="warning")
    console = Console()
    try:
        run(console)
    except DemoFailed as failure:
        complaint(f"the demo failed: {failure}")
        return 1
    return 0


def complaint(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"ottla: {text}", markup=False)


def run(console: Console) -> None:
    watch = Stopwatch()
    with Broker() as broker:
        servers = broker.bootstrap_servers
        watch.done("start a broker", servers)
        create_topic(servers)
        watch.done("create a topic", f"{TOPIC}, {PARTITIONS} partitions")
        write(servers)
        rate = RECORDS / watch.done(f"write {RECORDS:,} records")
        watch.steps[-1] = watch.steps[-1]._replace(note=f"{rate:,.0f} a second, acks=all, idempotent")
        messages = read(servers)
        rate = RECORDS / watch.done(f"read {RECORDS:,} records")
        watch.steps[-1] = watch.steps[-1]._replace(note=f"{rate:,.0f} a second, as a consumer group")
        check(messages)
        console.print(records_table(messages))
    watch.done("stop")
    console.print(steps_table(watch.steps))
    console.print(f"Server and client together took {peak_memory_mib():.0f} MiB of memory at the most.")


def create_topic(servers: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    try:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(TIMEOUT_S)
    except KafkaException as error:
        raise DemoFailed(str(error)) from error


def write(servers: str) -> None:
    from confluent_kafka import Producer

    failures: list[str] = []

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": servers, "log_level": 3, "enable.idempotence": True})
    for number in range(RECORDS):
        who, page = PEOPLE[number % len(PEOPLE)], PAGES[number * 7 % len(PAGES)]
        producer.produce(TOPIC, key=who, value=f"{who} looked at {page} ({number})", on_delivery=on_delivery)
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    if failures or left:
        raise DemoFailed(failures[0] if failures else f"{left} records were not acknowledged in {TIMEOUT_S:.0f} s")


def read(servers: str) -> list[Any]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": servers, "log_level": 3, "group.id": "demo", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    try:
        return list(_messages(consumer))
    finally:
        consumer.close()


def _messages(consumer: Any) -> Iterator[Any]:
    deadline = time.monotonic() + TIMEOUT_S
    count = 0
    while count < RECORDS:
        for message in consumer.consume(500, 0.2):
            if message.error() is not None:
                raise DemoFailed(str(message.error()))
            count += 1
            yield message
        if time.monotonic() > deadline:
            raise DemoFailed(f"only {count} of {RECORDS} records came back in {TIMEOUT_S:.0f} s")


def check(messages: list[Any]) -> None:
    """Each record once, and in each partition the offsets without a gap."""
    if len({message.value() for message in messages}) != RECORDS:
        raise DemoFailed("what was read is not what was written")
    for partition in range(PARTITIONS):
        offsets = [message.offset() for message in messages if message.partition() == partition]
        if offsets != list(range(len(offsets))):
            raise DemoFailed(f"the offsets of {TOPIC}-{partition} have gaps")


def records_table(messages: list[Any]) -> Table:
    table = Table(title=f"{TOPIC}: the first and the last of {len(messages):,} records")
    for name in ("partition", "offset"):
        table.add_column(name, justify="right")
    for name in ("key", "value", "written"):
        table.add_column(name)
    for message in (*messages[: SHOWN // 2], None, *messages[-SHOWN // 2 :]):
        if message is None:
            table.add_row("…", "…", "…", "…", "…", style="dim")
            continue
        written = time.strftime("%H:%M:%S", time.localtime(message.timestamp()[1] / 1000))
        key, value = message.key().decode(), message.value().decode()
        table.add_row(str(message.partition()), str(message.offset()), key, value, written)
    return table


def steps_table(steps: list[Step]) -> Table:
    table = Table(title="What it took")
    table.add_column("step")
    table.add_column("ms", justify="right")
    table.add_column("")
    for step in steps:
        table.add_row(step.what, f"{step.seconds * 1000:,.0f}", step.note)
    return table


def peak_memory_mib() -> float:
    """Of this process since it began. Linux counts in getrusage what was there before exec, so it is asked elsewhere."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 1024


if __name__ == "__main__":
    sys.exit(main())
