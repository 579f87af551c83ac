"""--command-config of every tool: a file that is missing, a folder, none that Java can read, a value that is no number.

Words and exit code are Kafka's, on both servers the same: no tool gets as far as to ask one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.compared import Call, differences
from tests.cli.test_bad_input_compared import ASKS
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(600)]

READS = {
    **ASKS,
    "console-producer": "--topic t",
    "console-consumer": "--topic t",
    "console-share-consumer": "--topic t",
    "producer-perf-test": "--topic t --num-records 1 --throughput -1 --record-size 1",
    "consumer-perf-test": "--topic t --num-records 1",
    "e2e-latency": "--topic t --num-records 1 --producer-acks 1 --record-size 10",
    "verifiable-producer": "--topic t --max-messages 1",
    "verifiable-consumer": "--topic t --group-id g --max-messages 1",
}
FILES = {"no-number": "request.timeout.ms=soon\n", "bad-escape": "client.id=\\uZZZZ\n"}


@pytest.mark.parametrize("file", ["missing", "folder", *FILES])
def test_a_file_that_cannot_be_used(ottla_server: ApacheKafka, tmp_path: Path, file: str) -> None:
    (tmp_path / "folder").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    config = f"--bootstrap-server SERVER --command-config FOLDER/{file}"
    asked = [Call(f"{tool} {config} {words}") for tool, words in READS.items()]
    asked += [
        Call(f"cluster {name} --bootstrap-server SERVER {flag} FOLDER/{file}")
        for name in ("cluster-id", "list-endpoints")
        for flag in ("--config", "-c")
    ]
    found = differences(asked, ottla_server, tmp_path)
    assert not found, "\n".join(found)


def test_windows_and_latin_files_are_read(ottla_server: ApacheKafka, tmp_path: Path) -> None:
    (tmp_path / "crlf").write_bytes(b"request.timeout.ms=20000\r\nclient.id=x\r\n")
    (tmp_path / "latin").write_bytes(b"client.id=caf\xe9\nrequest.timeout.ms=20000\n")
    (tmp_path / "mark").write_bytes(b"\xef\xbb\xbf# a comment\nclient.id=x\n")
    asked = [
        Call(f"{words} --bootstrap-server SERVER --command-config FOLDER/{file}")
        for file in ("crlf", "latin", "mark")
        for words in ("topics --list", "get-offsets --topic none", "groups --list")
    ]
    found = differences(asked, ottla_server, tmp_path)
    assert not found, "\n".join(found)
