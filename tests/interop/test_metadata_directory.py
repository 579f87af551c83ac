"""One metadata directory, two servers: Apache Kafka starts on ours, we start on its, and its tools read our files."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.metadata.image import MetadataImage
from ottla.model.ids import uuid_to_str
from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.controller.node import Node, node_properties
from tests.interop.settled import await_settled
from tests.support.apache_kafka import ApacheKafka
from tests.support.images import broker_config
from tests.support.kafka_tools import (
    ConfigCommand,
    DumpLogSegments,
    MetadataQuorumCommand,
    MetadataShell,
    Result,
    StorageTool,
    TopicCommand,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.usefixtures("requires_apache_kafka"),
    pytest.mark.timeout(240),  # each starts a real Kafka two or three times
]

Tool = Callable[..., Result]
SNAPSHOTS_OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "500"}


def kafka_in(directory: Path, *, dynamic: bool, **properties: str) -> ApacheKafka:
    kafka = ApacheKafka(directory, properties=properties)
    if dynamic:
        del kafka.properties["controller.quorum.voters"]
        kafka.properties["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{kafka.controller_port}"
    return kafka


def our_node(kafka: ApacheKafka, *, dynamic: bool, **properties: str) -> Node:
    ports = {"port": kafka.port, "controller_port": kafka.controller_port}
    return Node(kafka.data_dir, {**node_properties(kafka.data_dir, dynamic=dynamic, **ports), **properties})


def write_something(node: Node) -> None:
    def configured(name: str, partitions: int, **configs: str) -> CreatableTopic:
        values = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        return CreatableTopic(name, partitions, 1, [], values)

    asked = [configured("plain", 1), configured("wide", 3, retention_ms="12345"), configured("gone", 2)]
    assert [r.error_code for r in node.submit(CreateTopicsRequest(asked), 7).topics] == [0, 0, 0]
    node.submit(CreatePartitionsRequest([CreatePartitionsTopic("plain", 4, None)]), 3)
    node.submit(DeleteTopicsRequest([], ["gone"]), 5)
    resources = [
        AlterConfigsResource(4, "", [AlterableConfig("log.retention.ms", 0, "7777777")]),
        AlterConfigsResource(2, "wide", [AlterableConfig("cleanup.policy", 2, "compact")]),
    ]
    node.submit(IncrementalAlterConfigsRequest(resources), 1)


def described(tool: Tool, kafka: ApacheKafka) -> dict[str, tuple[str, int]]:
    """name -> (topic id, partitions) as kafka-topics.sh tells."""
    out = tool(TopicCommand, "--bootstrap-server", kafka.bootstrap_servers, "--describe").stdout
    lines = [dict(part.split(": ", 1) for part in line.split("\t")) for line in out.splitlines() if "TopicId" in line]
    return {line["Topic"]: (line["TopicId"], int(line["PartitionCount"])) for line in lines}


def image_topics(image: MetadataImage) -> dict[str, tuple[str, int]]:
    return {t.name: (uuid_to_str(t.id), len(t.partitions)) for t in image.topics_by_name.values()}


STOPS = pytest.mark.parametrize(
    ("dynamic", "stop"),
    [
        pytest.param(False, "clean", id="static-clean"),
        pytest.param(False, "kill", id="static-kill", marks=pytest.mark.soak),
        pytest.param(True, "clean", id="dynamic-clean", marks=pytest.mark.soak),
        pytest.param(True, "kill", id="dynamic-kill"),
    ],
)


@STOPS
def test_kafka_starts_on_our_directory(tmp_path: Path, kafka_tool: Tool, *, dynamic: bool, stop: str) -> None:
    kafka = kafka_in(tmp_path, dynamic=dynamic)
    node = our_node(kafka, dynamic=dynamic, **(SNAPSHOTS_OFTEN if stop == "clean" else {}))
    node.format()
    node.start().join()
    write_something(node)
    ours = image_topics(node.image)
    if stop == "clean":
        node.shut_down()
        assert len(list(node.metadata_dir.glob("*.checkpoint"))) > 1
    else:
        node.kill()
    with kafka:
        assert described(kafka_tool, kafka) == ours
        assert ours["plain"][1] == 4
        config = kafka_tool(
            ConfigCommand, "--bootstrap-server", kafka.bootstrap_servers, "--describe", "--topic", "wide"
        ).stdout
        assert "retention.ms=12345" in config
        assert "cleanup.policy=delete,compact" in config
        quorum = kafka_tool(
            MetadataQuorumCommand, "--bootstrap-server", kafka.bootstrap_servers, "describe", "--status"
        ).stdout
        assert "LeaderEpoch:            2" in quorum
    assert "ERROR" not in kafka.log_tail(), kafka.log_tail()


@STOPS
def test_we_start_on_a_directory_of_kafka(tmp_path: Path, kafka_tool: Tool, *, dynamic: bool, stop: str) -> None:
    kafka = kafka_in(tmp_path, dynamic=dynamic, **SNAPSHOTS_OFTEN)
    if dynamic:
        config = tmp_path / "format.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in kafka.properties.items()))
        formatted = kafka_tool(StorageTool, "format", "--standalone", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(config))
        assert formatted.returncode == 0, formatted.stderr
    with kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        kafka_tool(TopicCommand, *server, "--create", "--topic", "a", "--partitions", "3", "--config", "retention.ms=9")
        kafka_tool(TopicCommand, *server, "--create", "--topic", "b")
        await_settled(kafka.bootstrap_servers)
        kafka_tool(ConfigCommand, *server, "--alter", "--topic", "b", "--add-config", "cleanup.policy=compact")
        kafka_tool(ConfigCommand, *server, "--alter", "--broker-defaults", "--add-config", "log.retention.ms=4242")
        kafka_tool(TopicCommand, *server, "--alter", "--topic", "b", "--partitions", "2")
        await_settled(kafka.bootstrap_servers)
        theirs = described(kafka_tool, kafka)
        if stop == "kill":
            kafka.kill()
    assert set(theirs) == {"a", "b"}
    node = our_node(kafka, dynamic=dynamic).start()
    assert image_topics(node.image) == theirs
    assert node.image.topic_config("a") == {"retention.ms": "9"}
    assert node.image.topic_config("b") == {"cleanup.policy": "compact"}
    assert broker_config(node.image, 1) == {"log.retention.ms": "4242", "min.insync.replicas": "1"}
    assert node.image.metadata_version == 30
    assert node.raft.kraft_version == int(dynamic)
    node.join(_clean_shutdown_epoch(kafka.data_dir) if stop == "clean" else -1)
    assert all(p.leader == 1 and p.isr == (1,) for _, _, p in node.image.partitions())
    node.submit(CreateTopicsRequest([CreatableTopic("ours", 1, 1)]), 7)
    node.shut_down()
    with kafka:
        assert set(described(kafka_tool, kafka)) == {"a", "b", "ours"}


def _clean_shutdown_epoch(data_dir: Path) -> int:
    return int(json.loads((data_dir / ".kafka_cleanshutdown").read_text())["brokerEpoch"])


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_kafkas_tools_read_our_files(tmp_path: Path, kafka_tool: Tool, *, dynamic: bool) -> None:
    node = Node(tmp_path / "data", node_properties(tmp_path / "data", dynamic=dynamic))
    node.format()
    node.start().join()
    write_something(node)
    node.runtime.snapshot()
    node.shut_down()
    files = sorted(str(path) for path in node.metadata_dir.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    dumped = kafka_tool(DumpLogSegments, "--cluster-metadata-decoder", "--files", ",".join(files))
    assert "isvalid: false" not in dumped.stdout
    assert '"type":"REGISTER_BROKER_RECORD","version":4' in dumped.stdout
    assert '"type":"REMOVE_TOPIC_RECORD"' in dumped.stdout
    assert ("KRaftVoters" in dumped.stdout) == dynamic
    assert not dumped.stderr
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in node_properties(tmp_path / "data", dynamic=dynamic).items()))
    info = kafka_tool(StorageTool, "info", "-c", str(config))
    assert info.returncode == 0, info.stdout
    assert "cluster.id=5L6g3nShT-eMCtK--X86sw" in info.stdout
    snapshot = max(node.metadata_dir.glob("*.checkpoint"))
    shell = looked(kafka_tool, str(snapshot), "ls")
    assert shell.stdout.split() == ["plain", "wide"], shell
    log = str(node.metadata_dir / "00000000000000000000.log")  # the shell reads a log file as it reads a snapshot
    found = looked(kafka_tool, log, "find")
    names = {line.removeprefix("/image/topics/byName/").partition("/")[0] for line in found.stdout.split()[1:]}
    assert names == {"plain", "wide"}, found


def looked(tool: Tool, file: str, command: str) -> Result:
    """What the shell tells of the topics. It looks when it has read the file, and now and then before its image is made."""
    deadline = time.monotonic() + 60
    while True:
        shell = tool(MetadataShell, "--snapshot", file, command, "/image/topics/byName", fresh_jvm=True)
        if "wide" in shell.stdout or time.monotonic() > deadline:
            return shell


def test_a_killed_kafka_leaves_a_tail_that_we_cut(tmp_path: Path, kafka_tool: Tool) -> None:
    """A torn batch at the end of a log that Kafka wrote: cut off, and Kafka goes on behind us."""
    kafka = kafka_in(tmp_path, dynamic=False)
    with kafka:
        kafka_tool(TopicCommand, "--bootstrap-server", kafka.bootstrap_servers, "--create", "--topic", "kept")
        kafka.kill()
    log = kafka.data_dir / "__cluster_metadata-0" / "00000000000000000000.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[-72:-9])
    shutil.copytree(kafka.data_dir, tmp_path / "torn")
    node = our_node(kafka, dynamic=False).start().join()
    assert set(node.image.topics_by_name) == {"kept"}
    node.shut_down()
    with kafka:
        assert set(described(kafka_tool, kafka)) == {"kept"}
