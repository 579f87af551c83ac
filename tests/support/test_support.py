"""The yardstick itself: a tool call ends as the tool ended, and a node comes back on its own folder."""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import kafka_tools as tools
from tests.support.apache_kafka import ApacheKafka, schemas
from tests.support.frames import RawConnection, frame, request_header
from tests.support.ports import free_port

Tool = Callable[..., tools.Result]


def test_a_request_header_is_kafkas() -> None:
    assert request_header(18, 3, 7, "ab", flexible=True) == bytes.fromhex("0012 0003 00000007 0002 6162 00")
    assert request_header(3, 1, 7, None) == bytes.fromhex("0003 0001 00000007 ffff")
    assert frame(b"abc") == b"\0\0\0\3abc"


def test_free_ports_differ_and_are_below_the_ephemeral_range() -> None:
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 10
    assert max(ports) < 32768


@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
def test_schemas_come_from_the_jars(tmp_path: Path) -> None:
    names = {path.name for path in schemas(tmp_path)}
    assert {"FetchRequest.json", "PartitionRecord.json", "OffsetCommitKey.json", "ProducerSnapshot.json"} <= names
    assert all(path.read_text() for path in tmp_path.rglob("*.json"))


@pytest.mark.interop
def test_a_tool_ends_with_its_own_code_and_output(kafka_tool: Tool) -> None:
    assert len(kafka_tool(tools.StorageTool, "random-uuid").stdout.strip()) == 22
    refused = kafka_tool(tools.TopicCommand, "--bootstrap-server", "127.0.0.1:1")
    assert refused.returncode == 1
    assert "exactly one action" in refused.stderr
    assert refused.stdout == ""


@pytest.mark.interop
def test_a_tool_that_hangs_is_ended_and_the_next_one_runs(kafka_tool: Tool) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        kafka_tool(tools.TopicCommand, "--bootstrap-server", "127.0.0.1:1", "--list", timeout=2)
    assert kafka_tool(tools.StorageTool, "random-uuid").returncode == 0


@pytest.mark.interop
def test_the_tool_server_and_a_fresh_jvm_agree(kafka_tool: Tool) -> None:
    args = (tools.GetOffsetShell, "--bogus")
    ours, fresh = kafka_tool(*args), kafka_tool(*args, fresh_jvm=True)
    assert ours.returncode == fresh.returncode == 1
    assert ours.stdout == fresh.stdout
    assert "bogus is not a recognized option" in ours.stderr
    assert "bogus is not a recognized option" in fresh.stderr


@pytest.mark.interop
def test_text_goes_in_and_comes_out_whole(apache_kafka: ApacheKafka, kafka_tool: Tool) -> None:
    server = ("--bootstrap-server", apache_kafka.bootstrap_servers)
    assert (
        kafka_tool(tools.TopicCommand, *server, "--create", "--topic", "support").stdout == "Created topic support.\n"
    )
    assert kafka_tool(tools.ConsoleProducer, *server, "--topic", "support", input="a\nžluť\n").returncode == 0
    read = kafka_tool(tools.ConsoleConsumer, *server, "--topic", "support", "--from-beginning", "--max-messages", "2")
    assert read.stdout == "a\nžluť\n"


@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
def test_a_node_keeps_its_topics_over_a_restart(tmp_path: Path, kafka_tool: Tool) -> None:
    with ApacheKafka(tmp_path, properties={"num.partitions": "3"}) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        kafka_tool(tools.TopicCommand, *server, "--create", "--topic", "kept")
        first = kafka.pid
        kafka.restart()
        assert kafka.pid != first
        assert "kept" in kafka_tool(tools.TopicCommand, *server, "--list").stdout
        deadline = time.monotonic() + 30  # Kafka tells of a topic before it has made its folders
        while not (kafka.data_dir / "kept-2").is_dir():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.interop
def test_raw_frames_reach_a_real_broker(apache_kafka: ApacheKafka) -> None:
    with RawConnection("127.0.0.1", apache_kafka.port) as connection:
        body = connection.request(18, 0, b"")
        assert body is not None
        assert struct.unpack(">h", body[:2]) == (0,)
        connection.send_frame(b"")
        assert connection.read_frame() is None


@pytest.mark.interop
def test_kcat_lists_a_real_broker(apache_kafka: ApacheKafka, kcat_tool: Tool) -> None:
    listed = kcat_tool("-L", "-b", apache_kafka.bootstrap_servers)
    assert "1 brokers" in listed.stdout
