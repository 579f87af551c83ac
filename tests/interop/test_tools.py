"""Apache Kafka's own tools on both servers, one call after another: the same exit code and the same words.

What two servers cannot have in common is masked: ids, ports, folders, times, and offsets of the metadata log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.conftest import PROPERTIES
from tests.interop.ottla_server import OttlaServer
from tests.interop.settled import await_led, await_settled
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_tools import (
    BrokerApiVersionsCommand,
    ClusterTool,
    ConfigCommand,
    ConsoleConsumer,
    ConsoleProducer,
    ConsumerGroupCommand,
    ConsumerPerformance,
    DeleteRecordsCommand,
    EndToEndLatency,
    FeatureCommand,
    GetOffsetShell,
    LeaderElectionCommand,
    LogDirsCommand,
    MetadataQuorumCommand,
    ProducerPerformance,
    ReassignPartitionsCommand,
    Result,
    TopicCommand,
    TransactionsCommand,
)

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]

Tool = Callable[..., Result]


class Call(NamedTuple):
    tool: str
    args: str
    input: str = ""
    mask: tuple[str, ...] = ()
    """Patterns that may differ, for this call only."""
    rows: bool = False
    """Whether the lines have no order of their own."""


def topics(args: str, **options: object) -> Call:
    return Call(TopicCommand, f"--bootstrap-server SERVER {args}", **options)  # type: ignore[arg-type]


def configs(args: str, **options: object) -> Call:
    return Call(ConfigCommand, f"--bootstrap-server SERVER {args}", **options)  # type: ignore[arg-type]


def offsets(args: str) -> Call:
    return Call(GetOffsetShell, f"--bootstrap-server SERVER {args}")


def groups(args: str, **options: object) -> Call:
    return Call(ConsumerGroupCommand, f"--bootstrap-server SERVER {args}", **options)  # type: ignore[arg-type]


LINES = "".join(f"k{n % 3}\tvalue {n}\n" for n in range(20))
READ = "--formatter-property print.key=true --formatter-property print.offset=true --formatter-property print.partition=true"
CALLS = (
    # topics
    topics("--create --topic tools --partitions 3 --config retention.ms=100000000 --config cleanup.policy=delete"),
    topics("--create --topic tools"),
    topics("--create --topic tools --if-not-exists"),
    topics("--create --topic bad/name"),
    topics("--create --topic dots.and_underscores"),
    topics("--create --topic dots_and.underscores"),
    topics("--create --topic three --replication-factor 3"),
    topics("--create --topic none --partitions 0"),
    topics("--create --topic unknown --config no.such.setting=1"),
    topics("--create --topic invalid --config retention.ms=soon"),
    topics("--create --topic placed --replica-assignment 1,1"),
    topics("--create --topic misplaced --replica-assignment 1,7"),
    topics("--create --topic removed --partitions 1"),
    topics("--list"),
    topics("--list --exclude-internal"),
    topics("--describe --topic tools"),
    topics("--describe", rows=True),
    topics("--describe --under-replicated-partitions"),
    topics("--describe --unavailable-partitions"),
    topics("--describe --under-min-isr-partitions"),
    topics("--describe --at-min-isr-partitions", rows=True),
    topics("--describe --topics-with-overrides"),
    topics("--describe --topic missing"),
    topics("--alter --topic tools --partitions 4"),
    topics("--alter --topic tools --partitions 2"),
    topics("--alter --topic missing --partitions 2"),
    topics("--describe --topic tools"),
    topics("--delete --topic removed"),
    topics("--delete --topic removed"),
    topics("--delete --topic removed --if-exists"),
    topics("--list"),
    # configs
    configs("--entity-type topics --entity-name tools --describe"),
    configs("--entity-type topics --entity-name tools --describe --all", rows=True),
    configs("--entity-type topics --entity-name tools --alter --add-config max.message.bytes=200000,segment.ms=3600000"),
    configs("--entity-type topics --entity-name tools --describe", rows=True),
    configs("--entity-type topics --entity-name tools --alter --delete-config segment.ms"),
    configs("--entity-type topics --entity-name tools --alter --add-config no.such.setting=1"),
    configs("--entity-type topics --entity-name tools --alter --add-config segment.bytes=1"),
    configs("--entity-type topics --entity-name tools --alter --add-config cleanup.policy=[compact,delete]"),
    configs("--entity-type topics --entity-name missing --alter --add-config segment.ms=1000"),
    configs("--topic tools --describe", rows=True),
    configs("--entity-type topics --describe", rows=True),
    configs("--entity-type brokers --entity-name 1 --alter --add-config log.cleaner.threads=2"),
    configs("--entity-type brokers --entity-name 1 --describe", rows=True),
    configs("--entity-type brokers --entity-default --alter --add-config log.retention.ms=200000000"),
    configs("--entity-type brokers --entity-default --describe", rows=True),
    configs("--entity-type brokers --entity-name 1 --alter --add-config log.dirs=/tmp"),
    configs("--entity-type brokers --entity-name 1 --describe --all", rows=True),
    configs("--entity-type brokers --entity-default --alter --delete-config log.retention.ms"),
    # writing and reading
    Call(ConsoleProducer, "--bootstrap-server SERVER --topic tools --reader-property parse.key=true", LINES),
    Call(ConsoleConsumer, f"--bootstrap-server SERVER --topic tools --from-beginning --max-messages 20 --timeout-ms 8000 {READ}", rows=True),
    Call(ConsoleConsumer, f"--bootstrap-server SERVER --topic tools --partition 0 --offset 2 --timeout-ms 1500 {READ}"),
    Call(ConsoleConsumer, "--bootstrap-server SERVER --topic tools --partition 0 --offset latest --timeout-ms 500"),
    Call(ConsoleConsumer, "--bootstrap-server SERVER --topic tools --group g --from-beginning --max-messages 20 --timeout-ms 8000", rows=True),
    # offsets
    *(
        offsets(f"--topic tools --time {time}")
        for time in ("latest", "earliest", "earliest-local", "latest-tiered", "earliest-pending-upload", "-1", "-2", "-4", "-5", "0", "99999999999999")
    ),
    offsets("--topic placed --time max-timestamp"),
    Call(GetOffsetShell, "--bootstrap-server SERVER --topic tools --time max-timestamp", mask=(r":\d+$",)),
    offsets("--topic-partitions tools:0,tools:2-4 --time latest"),
    offsets("--topic tools --partitions 1"),
    offsets("--topic to.* --exclude-internal-topics"),
    offsets("--topic missing"),
    offsets("--topic tools --time yesterday"),
    Call(DeleteRecordsCommand, "--bootstrap-server SERVER --offset-json-file FOLDER/delete.json", rows=True),
    offsets("--topic tools --time earliest"),
    Call(LogDirsCommand, "--bootstrap-server SERVER --describe --topic-list placed"),
    Call(LogDirsCommand, "--bootstrap-server SERVER --describe --broker-list 1 --topic-list placed,missing"),
    Call(LogDirsCommand, "--bootstrap-server SERVER --describe --broker-list 9"),
    # groups
    groups("--list", rows=True),
    groups("--list --state", rows=True),
    groups("--describe --group g", rows=True),
    groups("--describe --group g --state"),
    groups("--describe --group g --members"),
    groups("--describe --group nobody"),
    groups("--reset-offsets --group g --topic tools --to-earliest --dry-run", rows=True),
    groups("--reset-offsets --group g --topic tools --shift-by -1 --execute", rows=True),
    groups("--describe --group g", rows=True),
    groups("--delete-offsets --group g --topic tools", rows=True),
    groups("--delete --group g"),
    groups("--delete --group g"),
    # the cluster
    Call(ClusterTool, "cluster-id --bootstrap-server SERVER"),
    Call(ClusterTool, "list-endpoints --bootstrap-server SERVER"),
    Call(ClusterTool, "unregister --bootstrap-server SERVER --id 77"),
    Call(FeatureCommand, "--bootstrap-server SERVER describe", mask=(r"Epoch: \d+",)),
    Call(FeatureCommand, "--bootstrap-controller CONTROLLER describe", mask=(r"Epoch: \d+",)),
    Call(FeatureCommand, "version-mapping --release-version 4.3"),
    Call(FeatureCommand, "--bootstrap-server SERVER upgrade --feature metadata.version=99"),
    Call(MetadataQuorumCommand, "--bootstrap-server SERVER describe --status", mask=(r"(?<=[a-zA-Z]:)\s+\d+",)),
    Call(MetadataQuorumCommand, "--bootstrap-controller CONTROLLER describe --status", mask=(r"(?<=[a-zA-Z]:)\s+\d+",)),
    Call(MetadataQuorumCommand, "--bootstrap-server SERVER describe --replication", mask=(r"(?<= )\d+(?= )",)),
    Call(LeaderElectionCommand, "--bootstrap-server SERVER --election-type preferred --topic tools --partition 0"),
    Call(LeaderElectionCommand, "--bootstrap-server SERVER --election-type unclean --topic tools --partition 0"),
    Call(LeaderElectionCommand, "--bootstrap-server SERVER --election-type preferred --topic missing --partition 0"),
    Call(ReassignPartitionsCommand, "--bootstrap-server SERVER --list"),
    Call(ReassignPartitionsCommand, "--bootstrap-server SERVER --generate --broker-list 1 --topics-to-move-json-file FOLDER/move.json"),
    Call(ReassignPartitionsCommand, "--bootstrap-server SERVER --verify --reassignment-json-file FOLDER/reassign.json"),
    Call(ReassignPartitionsCommand, "--bootstrap-server SERVER --execute --reassignment-json-file FOLDER/reassign.json"),
    Call(TransactionsCommand, "--bootstrap-server SERVER describe-producers --topic tools --partition 1", mask=(r"^\d+\s.*",)),
)  # fmt: skip
MASKS = (
    (re.compile(r"^\[?\d{4}-\d\d-\d\d[ T][\d:,.]+\]?( INFO| WARN| ERROR)?", re.MULTILINE), "TIME"),
    # Before the ids: `console-consumer-12345` has 22 characters too.
    (re.compile(r"(console-consumer|perf-consumer|consumer-g)-[\w-]+"), "MEMBER"),
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"adminclient-\d+"), "CLIENT"),
    (re.compile(r"^\s*at .*\n", re.MULTILINE), ""),
)


class Side(NamedTuple):
    server: ApacheKafka
    folder: Path

    def run(self, tool: Tool, call: Call) -> tuple[int, list[str]]:
        known = {
            "SERVER": self.server.bootstrap_servers,
            "CONTROLLER": f"127.0.0.1:{self.server.controller_port}",
            "FOLDER": str(self.folder),
        }
        done = tool(
            call.tool,
            *(re.sub("|".join(known), lambda m: known[m[0]], w) for w in call.args.split()),
            input=call.input,
            timeout=25,
        )
        text = done.stdout + done.stderr
        for name in ("directory", "port", "controller_port"):
            text = text.replace(str(getattr(self.server, name)), name.upper())
        for pattern, replacement in (*MASKS, *((re.compile(p, re.MULTILINE), "MASKED") for p in call.mask)):
            text = pattern.sub(replacement, text)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return done.returncode, sorted(lines) if call.rows else lines


@pytest.fixture
def fresh_sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """Servers that nobody else uses: some calls list everything there is."""
    (tmp_path / "delete.json").write_text(
        '{"version": 1, "partitions": [{"topic": "tools", "partition": 1, "offset": 3},'
        ' {"topic": "tools", "partition": 2, "offset": -1}, {"topic": "tools", "partition": 3, "offset": 999}]}'
    )
    (tmp_path / "move.json").write_text('{"version": 1, "topics": [{"topic": "tools"}]}')
    (tmp_path / "reassign.json").write_text(
        '{"version": 1, "partitions": [{"topic": "tools", "partition": 0, "replicas": [1], "log_dirs": ["any"]}]}'
    )
    ottla = OttlaServer(tmp_path / "ottla", properties=PROPERTIES)
    apache = ApacheKafka(tmp_path / "apache", properties=PROPERTIES)
    try:
        yield Side(apache.start(), tmp_path), Side(ottla.start(), tmp_path)
    finally:
        ottla.stop()
        apache.kill()
    assert "Traceback" not in ottla.log_file.read_text(), ottla.log_tail(60)


@pytest.mark.timeout(150)
def test_the_same_words(fresh_sides: tuple[Side, Side], kafka_tool: Tool) -> None:
    """In one test, because each call builds on those before it."""
    different = []
    for call in CALLS:
        theirs, ours = words_of_both(fresh_sides, kafka_tool, call)
        if ours != theirs:
            different.append(f"{call.tool.rpartition('.')[2]} {call.args}\n  Apache Kafka: {theirs}\n  Ottla: {ours}")
    assert not different, "\n".join(different)


def words_of_both(sides: tuple[Side, Side], tool: Tool, call: Call) -> tuple[object, object]:
    """Brokers of Apache Kafka follow their controller a moment later: what changes something is waited for, and what
    only looks may look again."""
    deadline = time.monotonic() + 20
    looks = re.search(r"(--|\b)(describe|list)\b", call.args)
    while True:
        theirs, ours = (side.run(tool, call) for side in sides)
        if ours == theirs or time.monotonic() > deadline or not looks:
            break
    if re.search("--(create|alter|delete)", call.args):
        for side in sides:
            await_settled(side.server.bootstrap_servers)
    return theirs, ours


@pytest.fixture
def sides(ottla_server: OttlaServer, apache_server: ApacheKafka, tmp_path: Path) -> tuple[Side, Side]:
    return Side(apache_server, tmp_path), Side(ottla_server, tmp_path)


@pytest.fixture
def perf_topic(sides: tuple[Side, Side], kafka_tool: Tool, new_name: Callable[[str], str]) -> str:
    name = new_name("perf")
    for side in sides:
        side.run(kafka_tool, topics(f"--create --topic {name} --partitions 2"))
        await_led(side.server.bootstrap_servers, name, 2)  # kafka-verifiable-producer does not try again
    return name


def both(sides: tuple[Side, Side], tool: Tool, main_class: str, args: str) -> list[str]:
    """What each server's run printed; each ends well and complains of nothing."""
    found = []
    for side in sides:
        words = [word.replace("SERVER", side.server.bootstrap_servers) for word in args.split()]
        done = tool(main_class, *words, timeout=50)
        assert done.returncode == 0, done.stderr
        assert "ERROR" not in done.stderr, done.stderr
        found.append(done.stdout)
    return found


def test_performance_tools(sides: tuple[Side, Side], kafka_tool: Tool, perf_topic: str) -> None:
    """Not the numbers: they do their work on both."""
    produce = f"--topic {perf_topic} --num-records 5000 --record-size 200 --throughput -1 --bootstrap-server SERVER"
    for codec in ("none", "lz4"):
        for printed in both(
            sides, kafka_tool, ProducerPerformance, f"{produce} --command-property compression.type={codec}"
        ):
            assert re.search(r"^5000 records sent, ", printed, re.MULTILINE), printed
    consume = f"--bootstrap-server SERVER --topic {perf_topic} --num-records 10000 --timeout 20000"
    for printed in both(sides, kafka_tool, ConsumerPerformance, consume):
        columns = [word.strip() for word in printed.splitlines()[-1].split(",")]
        assert int(columns[4]) >= 10000, printed
    latency = f"--bootstrap-server SERVER --topic {perf_topic} --num-records 50 --producer-acks all --record-size 100"
    for printed in both(sides, kafka_tool, EndToEndLatency, latency):
        assert "Avg latency:" in printed


def test_verifiable_tools(sides: tuple[Side, Side], kafka_tool: Tool, perf_topic: str) -> None:
    produce = f"--bootstrap-server SERVER --topic {perf_topic} --max-messages 50 --acks -1"
    for printed in both(sides, kafka_tool, "org.apache.kafka.tools.VerifiableProducer", produce):
        assert printed.count('"name":"producer_send_success"') == 50
        assert '"sent":50,"acked":50' in printed.replace(" ", "")
    consume = f"--bootstrap-server SERVER --topic {perf_topic} --group-id {perf_topic} --max-messages 50 --reset-policy earliest"
    for printed in both(sides, kafka_tool, "org.apache.kafka.tools.VerifiableConsumer", consume):
        consumed = re.findall(r'"name":"records_consumed","count":(\d+)', printed)
        assert sum(map(int, consumed)) == 50, printed


def test_broker_api_versions(sides: tuple[Side, Side], kafka_tool: Tool) -> None:
    """Whatever we serve, we serve at the versions of Apache Kafka; the tool finds none unusable."""
    theirs, ours = (
        dict(re.findall(r"^\s(\w+\(\d+\)): ([^\n,]+),?$", printed, re.MULTILINE))
        for printed in both(sides, kafka_tool, BrokerApiVersionsCommand, "--bootstrap-server SERVER")
    )
    served = {name: versions for name, versions in ours.items() if "UNSUPPORTED" not in versions}
    assert len(served) > 35
    assert {
        name: (versions, theirs.get(name)) for name, versions in served.items() if versions != theirs.get(name)
    } == {}
