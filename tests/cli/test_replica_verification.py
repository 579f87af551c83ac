"""kafka-replica-verification: the lines it prints while it runs, beside Kafka's own on the same cluster, on both servers."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import islice
from typing import IO

import pytest

from ottla.cli.kafka.options import Exit
from ottla.cli.kafka.replica_verification import _compare
from ottla.protocol.records_header import BatchHeader
from tests.cli.tools import JAVA, ours, ours_apart
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_tools import start_tool

FLAGS = ("--topics-include", "verified", "--time", "-2", "--report-interval-ms", "100", "--max-wait-ms", "100")
REPORT = "TIME: max lag is 0 for partition verified-0 at offset 7 among 1 partitions"


def reported(out: IO[str] | None, lines: int) -> list[str]:
    assert out is not None
    return [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "TIME", line.strip()) for line in islice(out, lines)]


@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
@pytest.mark.parametrize("server", ["apache_server", "ottla_server"])
def test_reports(server: str, request: pytest.FixtureRequest) -> None:
    running: ApacheKafka = request.getfixturevalue(server)
    where = running.bootstrap_servers
    assert ours("topics", ["--bootstrap-server", where, "--create", "--topic", "verified"]).code == 0
    lines = "".join(f"{number}\n" for number in range(7))
    assert ours_apart("console-producer", ["--bootstrap-server", where, "--topic", "verified"], lines).code == 0
    command = [sys.executable, "-m", "ottla.cli.kafka", "replica-verification", "--broker-list", where, *FLAGS]
    for process in (
        start_tool(JAVA["replica-verification"], "--broker-list", where, *FLAGS),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True),
    ):
        with process:
            try:
                assert reported(process.stdout, 4) == ["TIME: verification process is started", *[REPORT] * 3]
            finally:
                process.kill()


def batch(base: int, count: int, crc: int) -> BatchHeader:
    return BatchHeader(base, 100, 0, 2, crc, 0, count - 1, 0, 0, -1, -1, -1, count)


def test_batches_that_all_replicas_have_move_the_offset() -> None:
    batches = [batch(0, 5, 1), batch(5, 5, 2)]
    assert _compare(("t", 0), {1: (10, batches), 2: (10, batches)}, 0) == 10
    assert _compare(("t", 0), {1: (10, batches), 2: (10, batches[:1])}, 0) == 5
    assert (
        _compare(("t", 0), {1: (5, batches), 2: (5, batches)}, 0) == 5
    )  # above the high watermark nothing is compared
    assert _compare(("t", 0), {1: (10, []), 2: (10, batches)}, 3) == 3


def test_a_checksum_that_differs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert _compare(("t", 0), {1: (5, [batch(0, 5, 1)]), 3: (5, [batch(0, 5, -2)])}, 0) == 5
    said = capsys.readouterr().out.split(": ", 1)[1].strip()
    assert said == (
        "partition t-0 has unmatched checksum at offset 4; replica 1's checksum 1; replica 3's checksum 4294967294"
    )


def test_offsets_that_differ_end_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit):
        _compare(("t", 0), {1: (9, [batch(0, 5, 1)]), 2: (9, [batch(0, 4, 1)])}, 0)
    assert "replica 1's offset 4 doesn't match replica 2's offset 3" in capsys.readouterr().out
