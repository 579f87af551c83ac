"""Apache Kafka starts on what Ottla wrote, and Ottla on what Apache Kafka wrote; clients see no difference.

Two journeys of one directory: clean stops with a static quorum, Kafka first (its transactions and metadata snapshots
included); and kill -9 with a dynamic quorum, Ottla first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.interop import history, raw_batches
from tests.interop.dumps import dump_everything
from tests.interop.journeys import Journey, travel
from tests.interop.observation import Observation
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_tools import Result

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(180)]

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
ROUTES = {
    "clean-static": ((ApacheKafka, OttlaServer, ApacheKafka, OttlaServer), False, False),
    "killed-dynamic": ((OttlaServer, ApacheKafka, OttlaServer), True, True),
}


@pytest.mark.parametrize("name", [pytest.param("clean-static", marks=pytest.mark.soak), "killed-dynamic"])
def test_one_directory_for_both(name: str, kafka_tool: Callable[..., Result], tmp_path: Path) -> None:
    """One test for all, because the way is what takes the time."""
    route, dynamic, kill = ROUTES[name]
    journey = travel(tmp_path, route, dynamic=dynamic, kill=kill)
    check_that_there_is_something_of_everything(journey)
    check_that_clients_see_no_difference(journey)
    check_that_an_idempotent_producer_goes_on(journey)
    check_that_dump_log_segments_reads_every_file(journey, kafka_tool)
    check_that_each_server_writes_metadata_snapshots(journey)
    if not kill:  # a killed server's indexes are unfinished
        check_that_the_same_batches_make_the_same_files(journey, tmp_path)


def differences(left: Observation, right: Observation) -> list[str]:
    """What differs, in words: an assert on the whole would print megabytes."""
    found = [
        f"{name}: {getattr(left, name)} / {getattr(right, name)}"
        for name in ("cluster_id", "topic_ids", "groups")
        if getattr(left, name) != getattr(right, name)
    ]
    for topic in sorted({*left.configs, *right.configs}):
        one, other = left.configs.get(topic, {}), right.configs.get(topic, {})
        found += [f"{topic} {n}: {one.get(n)} / {other.get(n)}" for n in {*one, *other} if one.get(n) != other.get(n)]
    for at in sorted({*left.partitions, *right.partitions}):
        one_partition, other_partition = left.partitions.get(at), right.partitions.get(at)
        if one_partition is None or other_partition is None:
            found.append(f"{at} is only on one side")
        elif one_partition != other_partition:
            found.append(f"{at}: {one_partition.summary()} / {other_partition.summary()}")
            pairs = zip(one_partition.records, other_partition.records, strict=False)
            found += [f"{at}: {a} / {b}" for a, b in pairs if a != b][:3]
    return found


def check_that_clients_see_no_difference(journey: Journey) -> None:
    for before, after in pairwise(journey.stages):
        assert before.left is not None
        assert after.found is not None
        assert sum(len(seen.records) for seen in before.left.partitions.values()) > 1000
        assert differences(before.left, after.found) == [], f"{before.server} -> {after.server}"


def check_that_there_is_something_of_everything(journey: Journey) -> None:
    """So that equal is not equally empty."""
    first, last = journey.stages[0].left, journey.stages[-1].found
    assert first is not None
    assert last is not None
    assert all(len(offsets) == 5 for name, offsets in last.groups.items() if name == history.GROUP)
    assert 2 < len(last.groups[history.TRANSACTIONAL_GROUP]) < 5  # the aborted transactions' partitions are missing
    transactions = last.partitions["transactions", 0]
    assert len(transactions.committed) < len(transactions.records) < transactions.latest
    assert last.partitions["trimmed", 0].earliest > 0
    assert {record.timestamp[0] for record in last.partitions["appended", 0].records} == {2}
    if journey.killed:
        assert transactions.records[-1].value == b"behind it"
        assert transactions.committed[-1] < transactions.records[-2].offset  # an open transaction holds it back
    else:
        cleaned = last.partitions["cleaned", 0]
        assert 29 <= len(cleaned.records) < 250
        assert cleaned.latest == 500


def check_that_an_idempotent_producer_goes_on(journey: Journey) -> None:
    """Its last batch repeated is answered with the first offset, a gap is refused, the next one appended."""
    for before, after in pairwise(journey.stages):
        assert before.last_answer is not None
        assert after.repeated == before.last_answer
        assert after.skipped is not None
        assert after.skipped.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert after.next_answer == (0, before.last_answer.base_offset + 3)


def check_that_dump_log_segments_reads_every_file(journey: Journey, kafka_tool: Callable[..., Result]) -> None:
    for turn, stage in enumerate(journey.stages):
        if journey.killed and stage.server == "apache":
            continue  # the tool stumbles over the space that Kafka reserves at the end of an open index
        printed = dump_everything(kafka_tool, stage.files)
        records = re.findall(r"^\| offset: ", printed["log"], re.MULTILINE)
        assert len(records) > 1000, stage.server
        assert printed["index"].count("passed sanity check") >= 2
        assert len(re.findall(r"^timestamp: ", printed["timeindex"], re.MULTILINE)) >= 10
        snapshots = 2 if journey.killed else 8  # a killed server has them only where it began a new segment
        assert len(re.findall(r"^producerId: ", printed["snapshot"], re.MULTILINE)) >= snapshots
        assert '"type":"TOPIC_RECORD"' in printed["metadata"]
        assert '"group":"readers"' in printed["offsets"]
        assert '"type":"TOPIC_RECORD"' in printed["checkpoint"]
        if "apache" in (earlier.server for earlier in journey.stages[: turn + 1]):  # only it has transactions
            assert len(re.findall(r"lastStableOffset: ", printed["txnindex"])) >= 2


def check_that_each_server_writes_metadata_snapshots(journey: Journey) -> None:
    known: set[str] = set()
    for stage in journey.stages[:-1]:
        snapshots = {file.name for file in (stage.files / "__cluster_metadata-0").glob("*.checkpoint")}
        assert snapshots - known, stage.server
        known |= snapshots


def check_that_the_same_batches_make_the_same_files(journey: Journey, tmp_path: Path) -> None:
    """Log, offset index, time index, producer snapshots and leader epochs, byte for byte."""
    with OttlaServer(tmp_path / "raw", properties=history.PROPERTIES) as server:
        raw_batches.write(server.bootstrap_servers)
    for partition, count in ((f"{raw_batches.TOPIC}-0", 10), (f"{raw_batches.EMPTY_TOPIC}-0", 3)):
        theirs, ours = (contents(data / partition) for data in (journey.stages[0].files, server.data_dir))
        if partition.startswith(raw_batches.EMPTY_TOPIC):
            theirs.pop("leader-epoch-checkpoint")  # ours comes with the first batch
        assert sorted(ours) == sorted(theirs)
        assert len(ours) >= count
        assert [name for name in ours if ours[name] != theirs[name]] == []


def contents(folder: Path) -> dict[str, bytes]:
    """All but partition.metadata, which holds the topic's id."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "partition.metadata"}
