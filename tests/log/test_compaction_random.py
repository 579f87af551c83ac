"""Random histories compacted by Apache Kafka and by Ottla from the same files: the same batches and records remain.

Every history is a topic with settings of its own: keys, tombstones, headers, five codecs, transactions that commit,
abort or stay open, earlier rounds of compaction with their delete horizons, compaction lags, dirty ratios, one policy or
both. Times lie days from every limit, so that seconds decide nothing. One run of Apache Kafka takes all of them.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.ottla_server import OttlaServer, hand_over
from tests.support.apache_kafka import ApacheKafka

from ottla.env.config import TopicConfig
from ottla.log.checkpoints import write_offsets
from ottla.log.cleaner import Cleaner
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import load_partition_log
from ottla.log.retention import delete_old_segments
from ottla.model.ids import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import DiskStorage

from .compaction_history import DAY, History, OneLog, finished, read_batches

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]

PROPERTIES = {
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "600000",  # the retention of logs that are not compacted has no part in this
    "offsets.topic.num.partitions": "1",
}
STABLE_S = 1.5
PATIENCE_S = 90.0
HOUR = DAY // 24


@dataclass
class Made:
    """One history on disk."""

    topic: str
    settings: dict[str, str]
    config: TopicConfig
    folder: Path
    checkpoint: int | None
    """How far an earlier round came."""
    steps: list[str]


def make(number: int, seed: int, where: Path) -> Made:
    rng = random.Random(f"{seed}/{number}")
    topic = f"history-{number}"
    policies = ["compact", "delete"] if rng.random() < 0.25 else ["compact"]
    config = TopicConfig(
        cleanup_policy=frozenset(policies),
        internal_segment_bytes=rng.choice([600, 2000, 1 << 20]),
        index_interval_bytes=100,
        delete_retention_ms=rng.choice([0, 3 * DAY, 400 * DAY]),
        min_cleanable_dirty_ratio=rng.choice([0.0, 0.0, 0.3, 0.9]),
        min_compaction_lag_ms=rng.choice([0, 0, 0, 3 * DAY]),
        max_compaction_lag_ms=rng.choice([(1 << 63) - 1, (1 << 63) - 1, 6 * DAY]),
        retention_ms=rng.choice([-1, 7 * DAY]),
        message_timestamp_before_max_ms=(1 << 63) - 1,
    )
    settings = {
        "cleanup.policy": ",".join(policies),
        "internal.segment.bytes": str(config.internal_segment_bytes),
        "index.interval.bytes": "100",
        "delete.retention.ms": str(config.delete_retention_ms),
        "min.cleanable.dirty.ratio": str(config.min_cleanable_dirty_ratio),
        "min.compaction.lag.ms": str(config.min_compaction_lag_ms),
        "max.compaction.lag.ms": str(config.max_compaction_lag_ms),
        "retention.ms": str(config.retention_ms),
    }
    history = History(where / topic, config)
    history.clock.now_ms = int(time.time() * 1000) - 10 * DAY - 3 * HOUR
    cleaner = history.cleaner()
    checkpoint, steps = None, []
    for _ in range(rng.randint(5, 60)):
        step = rng.choice(
            ["append"] * 4
            + ["idempotent"] * 2
            + ["transactional"] * 4
            + ["end"] * 3
            + ["roll"] * 2
            + ["day", "compact"]
        )
        steps.append(step)
        if step == "compact":
            stats = history.compact(cleaner)
            checkpoint = stats.end_offset if stats is not None else checkpoint
        else:
            apply(history, step, rng)
    history.clock.now_ms = max(history.clock.now_ms, int(time.time() * 1000) - DAY // 2)
    history.append((b"the", b"end"))
    history.log.flush(history.clock.now_ms)
    history.log.close()
    history.log.forget()
    return Made(topic, settings, config, Path(history.log.directory), checkpoint, steps)


def apply(history: History, step: str, rng: random.Random) -> None:
    producer = rng.randint(1, 3)
    if step == "roll":
        history.roll()
    elif step == "day":
        left = int(time.time() * 1000) - DAY - history.clock.now_ms
        history.clock.now_ms += min(DAY, max(left, 0))
    elif step == "end":
        if producer in history.open:
            history.end(producer, commit=rng.random() < 0.6)
    else:
        pairs = [
            (b"key %d" % rng.randint(0, 9), None if rng.random() < 0.25 else b"%d" % rng.randint(0, 999))
            for _ in range(rng.randint(1, 6))
        ]
        headers = [("header", None), ("another", b"%d" % rng.randint(0, 99))] if rng.random() < 0.3 else []
        if step == "append":
            history.append(*pairs, codec=rng.randint(0, 4), headers=headers)
        elif step == "transactional" or producer not in history.open:
            history.append(*pairs, codec=rng.randint(0, 4), producer_id=producer, transactional=step == "transactional")


def load(folder: Path, made: Made) -> PartitionLog:
    log = load_partition_log(
        LogDirectory(DiskStorage(), str(folder.parent)),
        str(folder),
        TopicPartition(made.topic, 0),
        made.config,
        now_ms=SystemClock().time_ms(),
        clean=False,
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


def compacted_here(made: Made, target: Path, *, delete_first: bool) -> PartitionLog:
    shutil.copytree(made.folder, target / f"{made.topic}-0")
    log = load(target / f"{made.topic}-0", made)
    log.offsets.cleaned_up_to = made.checkpoint or 0
    now_ms = SystemClock().time_ms()
    log.producers.remove_expired(now_ms)  # as a server does, and as Kafka does when it loads a log
    if delete_first:
        delete_old_segments(log, now_ms)
    cleaner = Cleaner(OneLog(log), SystemClock())
    for _ in range(10):
        if finished(cleaner.clean_next()) is None:
            break
    else:
        raise AssertionError(f"{made.topic}: the cleaner finds no end")
    delete_old_segments(log, now_ms)
    return log


def shape(log: PartitionLog) -> list[object]:
    """As in test_compaction_kafka; the horizon, which is the time of the pass, is taken to the next ten days."""
    found: list[object] = []
    for header, records in read_batches(log):
        horizon = round(header.base_timestamp / (10 * DAY)) if header.has_delete_horizon else 0
        found.append((header._replace(crc=0, base_timestamp=horizon, batch_length=0), records))
    return found


def words(log: PartitionLog) -> list[str]:
    return [
        f"{header.base_offset}-{header.last_offset} attributes {header.attributes:x} {[r.offset for r in records]}"
        for header, records in read_batches(log)
    ]


@contextmanager
def compacting_kafka(directory: Path, histories: list[Made]) -> Iterator[Callable[[], Path]]:
    """Ottla makes the topics, the histories are put into their folders, and Apache Kafka starts on them.

    Gives a copy of what it has made of them by now.
    """
    maker = OttlaServer(directory, properties=PROPERTIES)
    with maker:
        admin = AdminClient({"bootstrap.servers": maker.bootstrap_servers})
        topics = [NewTopic(made.topic, 1, 1, config=made.settings) for made in histories]
        for future in admin.create_topics(topics, request_timeout=60).values():
            future.result(60)
    for made in histories:
        folder = maker.data_dir / f"{made.topic}-0"
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in made.folder.iterdir():
            shutil.copy2(path, folder)
    known = {TopicPartition(made.topic, 0): made.checkpoint for made in histories if made.checkpoint is not None}
    checkpoint = maker.data_dir / "cleaner-offset-checkpoint"
    write_offsets(DiskStorage(), str(checkpoint), known)
    kafka = hand_over(maker, ApacheKafka)
    try:
        kafka.start(timeout=90)
        copies = itertools.count()

        def look() -> Path:
            await_quiet(kafka, checkpoint)
            copy = directory / f"kafka-{next(copies)}"
            shutil.copytree(kafka.data_dir, copy, ignore=shutil.ignore_patterns("*.deleted", "*.tmp"))
            return copy

        yield look
    finally:
        kafka.kill()


def await_quiet(kafka: ApacheKafka, checkpoint: Path) -> None:
    """Until neither the checkpoint nor any file of a log has changed for a while."""
    deadline = time.monotonic() + PATIENCE_S
    seen, since = state(kafka, checkpoint), time.monotonic()
    while time.monotonic() - since < STABLE_S:
        assert time.monotonic() < deadline, "the cleaner of Apache Kafka finds no end"
        time.sleep(0.2)
        now = state(kafka, checkpoint)
        if now != seen:
            seen, since = now, time.monotonic()


def state(kafka: ApacheKafka, checkpoint: Path) -> tuple[str, list[tuple[Path, int]]]:
    logs = sorted(kafka.data_dir.glob("history-*/*.log"))
    return checkpoint.read_text() if checkpoint.exists() else "", [(path, size(path)) for path in logs]


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


Outcome = tuple[list[object], int]


def outcome(log: PartitionLog) -> Outcome:
    return shape(log), log.log_start_offset


def compare(tmp_path: Path, seed: int, count: int) -> None:
    histories = [make(number, seed, tmp_path / "made") for number in range(count)]
    ours: dict[str, list[PartitionLog]] = {}
    for made in histories:
        # With both policies it is chance whether retention or compaction comes first; each order is right.
        orders = (False, True) if made.config.delete else (False,)
        ours[made.topic] = [
            compacted_here(made, tmp_path / f"ottla-{order}" / made.topic, delete_first=order) for order in orders
        ]
    right = {topic: [outcome(log) for log in logs] for topic, logs in ours.items()}
    with compacting_kafka(tmp_path / "server", histories) as look:
        deadline = time.monotonic() + PATIENCE_S
        while True:  # a cleaner that is quiet may only be slow: it has its time before it counts as different
            theirs = {made.topic: load(copy / f"{made.topic}-0", made) for copy in [look()] for made in histories}
            different = [made for made in histories if outcome(theirs[made.topic]) not in right[made.topic]]
            if not different or time.monotonic() > deadline:
                break
    told = []
    for made in different[:5]:
        kafka, mine = theirs[made.topic], ours[made.topic][0]
        told.append(
            f"seed {seed} {made.topic} {made.settings} checkpoint {made.checkpoint}\n  {' '.join(made.steps)}\n"
            f"  was    {words(load(made.folder, made))}\n  kafka  {kafka.log_start_offset} {words(kafka)}\n"
            f"  ottla  {mine.log_start_offset} {words(mine)}"
        )
    assert not different, f"{len(different)} of {count} differ:\n" + "\n".join(told)
    untouched = {
        made.topic: load(Path(shutil.copytree(made.folder, tmp_path / "untouched" / f"{made.topic}-0")), made)
        for made in histories
    }
    changed = sum(shape(log) != shape(untouched[topic]) for topic, log in theirs.items())
    assert changed > count // 4, "hardly anything was compacted: nothing was compared"
    print(f"seed {seed}: {count} histories, {changed} changed by compaction, all equal")


@pytest.mark.timeout(240)
def test_thirty_histories(tmp_path: Path) -> None:
    compare(tmp_path, seed=int(os.environ.get("SEED", "1")), count=30)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 100 + int(os.environ.get("ROUNDS", "3"))))
def test_hundreds_of_histories(tmp_path: Path, seed: int) -> None:
    compare(tmp_path, seed=seed, count=200)
