"""Apache Kafka's own DumpLogSegments reads every file that a log writes, and finds its indexes sane."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.kafka_tools import DumpLogSegments, Result

from ottla.env.config import TopicConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.validation import AppendOrigin
from ottla.protocol.records import build_end_txn_marker

from .partition_files import NOW, append, new_log

pytestmark = pytest.mark.interop

CONFIG = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=4000, index_interval_bytes=300)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> PartitionLog:
    log = new_log(tmp_path_factory.mktemp("dump"), CONFIG)
    for number in range(100):
        append(log, b"a", b"b", timestamp=NOW + number * 10, producer_id=7, epoch=0, sequence=2 * number)
        if number % 10 == 0:
            append(
                log,
                b"t",
                timestamp=NOW + number * 10,
                producer_id=8,
                epoch=0,
                sequence=number // 10,
                transactional=True,
            )
            marker = build_end_txn_marker(
                commit=number % 20 == 0, coordinator_epoch=1, timestamp=NOW, producer_id=8, producer_epoch=0
            )
            log.append_as_leader(marker, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.close()
    return log


def dump(tool: Callable[..., Result], paths: list[Path], *flags: str) -> str:
    done = tool(DumpLogSegments, *flags, "--files", ",".join(str(path) for path in paths))
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(log: PartitionLog, suffix: str) -> list[Path]:
    return sorted(Path(log.directory).glob(f"*{suffix}"))


def test_batches(log: PartitionLog, kafka_tool: Callable[..., Result]) -> None:
    text = dump(kafka_tool, files(log, ".log"), "--deep-iteration")
    assert "isvalid: false" not in text
    assert [int(offset) for offset in re.findall(r"\| offset: (\d+)", text)] == list(range(log.log_end_offset))
    assert text.count("endTxnMarker: ABORT") == 5


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes(log: PartitionLog, kafka_tool: Callable[..., Result], suffix: str) -> None:
    paths = files(log, suffix)
    assert len(paths) > 2
    assert dump(kafka_tool, paths, "--index-sanity-check").count("passed sanity check") == len(paths)
    text = dump(kafka_tool, paths)
    assert "Found " not in text
    assert "mismatch" not in text.lower()
    entries = re.findall(r"^(?:offset|timestamp): \d+", text, re.MULTILINE)
    assert len(entries) == sum(path.stat().st_size for path in paths) // (8 if suffix == ".index" else 12)


def test_transactions_and_producers(log: PartitionLog, kafka_tool: Callable[..., Result]) -> None:
    text = dump(kafka_tool, files(log, ".txnindex"))
    listed = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", text)
    assert [tuple(map(int, entry)) for entry in listed] == [
        tuple(entry) for entry in log.aborted.between(0, log.log_end_offset)
    ]
    text = dump(kafka_tool, files(log, ".snapshot")[-1:])
    assert re.search(r"producerId: 7 producerEpoch: 0 .* lastSequence: 199 ", text)
    assert re.search(r"producerId: 8 producerEpoch: 0 coordinatorEpoch: 1 ", text)
