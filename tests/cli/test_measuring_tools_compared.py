"""Tools that measure, verify, share, hand out tokens and format: Kafka's own and ours, on the same server, on both servers.

Figures and times are masked, counts and columns are not. Calls build on those before them, so they are one test per server.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.compared import NAMES, Call, calls, differences
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(600)]

FIGURES = (
    r"-?\d+\.\d+",
    r'"timestamp": \d+',
    r"\b\d+ ms\b",
    r"(?<=99th = )\d+",
    r"(?<=50th = )\d+",
    r"(?<=MASKEDth = )\d+",
)
TIMES = (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[:,]\d{3}", r"(?<=, )\d+, \d+(?=, MASKED, MASKED$)", r"^\d\d:\d\d, \d\d:\d\d")
# Both tools print one line more for each interval that passes (5 s unless told), which a busy machine reaches with ten
# records; and they stop reading after 10 s without one, which may be over before the group is joined.
ONE_LINE = "--reporting-interval 600000"
PATIENT = "--timeout 60000"
PERF = f"producer-perf-test --bootstrap-server SERVER --topic NAME --num-records 10 --throughput -1 {ONE_LINE}"

PRODUCER = calls(f"""
    producer-perf-test
    producer-perf-test --help
    producer-perf-test --bogus
    producer-perf-test --topic NAME
    {PERF}
    {PERF} --record-size x
    {PERF} --record-size 0
    {PERF} --record-size 10
    producer-perf-test --bootstrap-server SERVER --topic NAME --num-records 0 --throughput -1 --record-size 10
    producer-perf-test --bootstrap-server SERVER --topic NAME --num-records x --throughput -1 --record-size 10
    producer-perf-test --bootstrap-server SERVER --topic NAME --num-records 10 --throughput x --record-size 10
    producer-perf-test --bootstrap-server SERVER --topic NAME --num-records 10 --throughput 100 --payload-monotonic {ONE_LINE}
    producer-perf-test --bootstrap-server nonsense --topic NAME --num-records 10 --throughput -1 --record-size 10
    producer-perf-test --topic NAME --num-records 10 --throughput -1 --record-size 10 {ONE_LINE}
    producer-perf-test --topic NAME --num-records 10 --throughput -1 --record-size 10 --command-property acks=1 {ONE_LINE}
    producer-perf-test --topic NAME --num-records 10 --throughput -1 --record-size 10 --producer-props bootstrap.servers=SERVER acks=1 {ONE_LINE}
    {PERF} --payload-monotonic --record-size 10
    {PERF} --payload-file FOLDER/NAME-payloads
    {PERF} --payload-file FOLDER/NAME-payloads --payload-delimiter ;
    {PERF} --record-size 10 --transactional-id NAME-t --transaction-duration-ms 100
    {PERF} --record-size 10 --transaction-duration-ms 0
    {PERF} --record-size 10 --warmup-records 5
    {PERF} --record-size 10 --warmup-records 10
    producer-perf-test --bootstrap-server SERVER --topic NAME --num-records 10 --throughput -1 --record-size 10 --reporting-interval 0
    {PERF} --record-size 10 --command-config FOLDER/none
    {PERF} --record-size 10 --producer.config FOLDER/NAME.properties
    {PERF} --record-size 10 --producer-props acks=1 --command-property acks=1
""", masks=FIGURES)  # fmt: skip
# The transaction's marker is an offset too, so the topic that is read has records only.
CONSUMER = calls(f"""
    topics --bootstrap-server SERVER --create --topic NAME-c
    producer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 --throughput -1 --record-size 10 {ONE_LINE}
    consumer-perf-test
    consumer-perf-test --bogus
    consumer-perf-test --bootstrap-server SERVER
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records x
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 5 --messages 5
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --include NAME --num-records 5
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 {PATIENT}
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --messages 30 --hide-header --group NAME-cp {PATIENT}
    consumer-perf-test --bootstrap-server SERVER --include NAME-c.* --num-records 30 {PATIENT}
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 --from-latest --timeout 400
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 --show-detailed-stats --reporting-interval 1 {PATIENT}
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 --date-format HH:mm --fetch-size 1000000 --socket-buffer-size 100000 {PATIENT}
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 --date-format nonsense
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 --command-property fetch.min.bytes=2 {PATIENT}
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 --reporting-interval 0 {PATIENT}
    consumer-perf-test --bootstrap-server SERVER --topic NAME-c --num-records 30 --command-config FOLDER/none {PATIENT}
    consumer-perf-test --bootstrap-server nonsense --topic NAME-c --num-records 30 --hide-header
""", masks=(*FIGURES, *TIMES))  # fmt: skip
LATENCY = calls("""
    e2e-latency
    e2e-latency --bogus
    e2e-latency --help
    e2e-latency SERVER NAME
    e2e-latency SERVER NAME-e 5 1 20
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records 5 --producer-acks all --record-size 20 --command-config FOLDER/NAME.properties
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records 5 --producer-acks 0 --record-size 20
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records x --producer-acks all --record-size 20
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records 0 --producer-acks all --record-size 20
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records 5 --producer-acks all
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records 5 --producer-acks all --record-size -5
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records 5 --producer-acks all --record-size 20 --record-key-size 5 --num-headers 2 --record-header-key-size 3 --record-header-size 4
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records 5 --producer-acks all --record-size 20 --record-header-size -2 --num-headers 1
    e2e-latency --bootstrap-server SERVER --topic NAME-e --num-records 5 --producer-acks all --record-size 20 --command-config FOLDER/none
    e2e-latency --bootstrap-server nonsense --topic NAME-e --num-records 5 --producer-acks all --record-size 20
""", masks=FIGURES)  # fmt: skip
VERIFIABLE = calls("""
    topics --bootstrap-server SERVER --create --topic NAME-v
    verifiable-producer
    verifiable-producer --help
    verifiable-producer --bogus
    verifiable-producer --topic a
    verifiable-producer --bootstrap-server SERVER --topic a --max-messages x
    verifiable-producer --bootstrap-server nonsense --topic NAME-v --max-messages 2
    verifiable-producer --bootstrap-server SERVER --topic NAME-v --max-messages 2 --command-config FOLDER/none
    verifiable-producer --bootstrap-server SERVER --topic NAME-v --max-messages 2 --producer.config FOLDER/none
    verifiable-producer --bootstrap-server SERVER --topic NAME-v --max-messages 5
    verifiable-producer --bootstrap-server SERVER --topic NAME-v --max-messages 5 --repeating-keys 2 --value-prefix 7 --acks 1 --throughput 1000 --message-create-time 1000
    verifiable-producer --bootstrap-server SERVER --topic NAME-w --max-messages 2 --acks 0
    verifiable-consumer
    verifiable-consumer --bogus
    verifiable-consumer --topic a
    verifiable-consumer --bootstrap-server SERVER --topic a --group-id g --max-messages x
    verifiable-consumer --bootstrap-server SERVER --topic a --group-id g --max-messages 1 --group-protocol bogus
    verifiable-consumer --bootstrap-server SERVER --topic a --group-id g --max-messages 1 --reset-policy bogus
    verifiable-consumer --bootstrap-server nonsense --topic a --group-id g --max-messages 1
    verifiable-consumer --bootstrap-server SERVER --topic NAME-v --group-id g --command-config FOLDER/none
    verifiable-consumer --bootstrap-server SERVER --topic NAME-v --group-id NAME-va --max-messages 10 --verbose --enable-autocommit
    verifiable-consumer --bootstrap-server SERVER --topic NAME-v --group-id NAME-vl --max-messages 3 --verbose
    verifiable-consumer --bootstrap-server SERVER --topic NAME-v --group-id NAME-vb --max-messages 10 --assignment-strategy org.apache.kafka.clients.consumer.RoundRobinAssignor --session-timeout 20000 --group-instance-id NAME-i
""", masks=FIGURES, json_lines=True)  # fmt: skip
NEW_PROTOCOL = [
    Call(
        "verifiable-consumer --bootstrap-server SERVER --topic NAME-v --group-id NAME-vc --max-messages 10"
        " --group-protocol consumer --group-remote-assignor range --reset-policy earliest",
        # Java's new consumer now and then hears of an empty assignment first.
        masks=(r'\{"name": "partitions_assigned", "partitions": \[\].*\n', *FIGURES),
        json_lines=True,
    )
]
SHARE = calls("""
    console-share-consumer
    console-share-consumer --bogus
    console-share-consumer --bootstrap-server SERVER
    console-share-consumer --topic a
    console-share-consumer --bootstrap-server SERVER --topic a --reject --release
    console-share-consumer --bootstrap-server SERVER --topic a --max-messages x
    console-share-consumer --bootstrap-server SERVER --topic a --timeout-ms x
    console-share-consumer --bootstrap-server SERVER --topic a --formatter nosuch
    console-share-consumer --bootstrap-server nonsense --topic a
    console-share-consumer --bootstrap-server SERVER --topic a --command-config FOLDER/none
    console-share-consumer --bootstrap-server SERVER --topic a --consumer-property a=b --command-property a=b
    console-share-consumer --bootstrap-server SERVER --topic a --group g --command-property group.id=h
    share-groups --help
    share-groups --bogus
    share-groups --list
    share-groups --bootstrap-server SERVER --list --describe
    share-groups --bootstrap-server SERVER --list --group x
    share-groups --bootstrap-server SERVER --list --verbose
    share-groups --bootstrap-server SERVER --describe --all-groups --group x
    share-groups --bootstrap-server SERVER --describe --group x --offsets --members
    share-groups --bootstrap-server SERVER --delete
    share-groups --bootstrap-server SERVER --delete --group a --all-groups
    share-groups --bootstrap-server SERVER --delete --all-groups --topic x
    share-groups --bootstrap-server SERVER --reset-offsets --group x
    share-groups --bootstrap-server SERVER --reset-offsets --group x --dry-run
    share-groups --bootstrap-server SERVER --reset-offsets --group x --topic y --dry-run
    share-groups --bootstrap-server SERVER --reset-offsets --dry-run --topic y --to-earliest
    share-groups --bootstrap-server SERVER --reset-offsets --group x --to-earliest --to-latest --topic y --dry-run
    share-groups --bootstrap-server SERVER --reset-offsets --group x --to-earliest --topic y --dry-run --execute
    share-groups --bootstrap-server SERVER --delete-offsets --group x
    share-groups --bootstrap-server SERVER --delete-offsets --topic x
""")  # fmt: skip
# Both tools describe one group: where it begins by now depends on the batches in which its own readers acknowledged.
_READ = "console-share-consumer --bootstrap-server SERVER --topic NAME-v --group NAME-s --timeout-ms 40000"
SHARE_READ = calls(f"""
    configs --bootstrap-server SERVER --group NAME-s --alter --add-config share.auto.offset.reset=earliest
    {_READ} --max-messages 4 --formatter-property print.key=true --formatter-property print.offset=true --formatter-property print.delivery=true --formatter-property print.partition=true
    {_READ} --max-messages 3 --property print.offset=true --release
    {_READ} --max-messages 3 --formatter-property print.offset=true --reject --enable-systest-events
    share-groups --bootstrap-server SERVER --list --state bogus
    share-groups --bootstrap-server SERVER --list --state empty
    share-groups --bootstrap-server SERVER --list
    share-groups --bootstrap-server SERVER --describe --group {NAMES[0]}-s
    share-groups --bootstrap-server SERVER --describe --group {NAMES[0]}-s --verbose
    share-groups --bootstrap-server SERVER --describe --group {NAMES[0]}-s --members
    share-groups --bootstrap-server SERVER --describe --group {NAMES[0]}-s --state
    share-groups --bootstrap-server SERVER --describe --group nosuch
    share-groups --bootstrap-server SERVER --describe --group nosuch --members
    share-groups --bootstrap-server SERVER --describe --group nosuch --state
    share-groups --bootstrap-server SERVER --reset-offsets --group NAME-s --topic NAME-v --to-earliest --dry-run
    share-groups --bootstrap-server SERVER --reset-offsets --group NAME-s --topic NAME-v --to-latest --execute
    share-groups --bootstrap-server SERVER --reset-offsets --group NAME-s --all-topics --to-earliest --execute
    share-groups --bootstrap-server SERVER --reset-offsets --group NAME-s --topic NAME-v --to-datetime 2020-01-01T00:00:00.000 --execute
    share-groups --bootstrap-server SERVER --reset-offsets --group NAME-s --topic NAME-v --to-datetime bogus --execute
    share-groups --bootstrap-server SERVER --reset-offsets --group NAME-s --topic missing --to-earliest --execute
    share-groups --bootstrap-server SERVER --reset-offsets --group NAME-s --group b --topic NAME-v --to-earliest --execute
    share-groups --bootstrap-server SERVER --reset-offsets --group nosuch --topic NAME-v --to-earliest --execute
    share-groups --bootstrap-server SERVER --delete-offsets --group NAME-s --topic missing
    share-groups --bootstrap-server SERVER --delete-offsets --group NAME-s --topic NAME-v
    share-groups --bootstrap-server SERVER --delete-offsets --group nosuch --topic NAME-v
    share-groups --bootstrap-server SERVER --delete --group nosuch
    share-groups --bootstrap-server SERVER --delete --group NAME-s --group nosuch
""", rows=True, masks=(r"(?<=Valid states are: )[\w, ]+",))  # fmt: skip
STREAMS = calls("""
    streams-groups --list
    streams-groups --bogus
    streams-groups --bootstrap-server SERVER --list --state
    streams-groups --bootstrap-server SERVER --list --state bogus
    streams-groups --bootstrap-server SERVER --describe
    streams-groups --bootstrap-server SERVER --delete
    streams-groups --bootstrap-server SERVER --delete --group nosuch
    streams-groups --bootstrap-server SERVER --reset-offsets --group nosuch
    streams-groups --bootstrap-server SERVER --delete-offsets --group nosuch
""", masks=(r"(?<=Valid states are: )[\w, ]+",))  # fmt: skip
METRICS_AND_TOKENS = calls("""
    client-metrics --bogus
    client-metrics --list
    client-metrics --bootstrap-server SERVER --list --describe
    client-metrics --bootstrap-server SERVER --alter --generate-name --metrics a.
    client-metrics --bootstrap-server SERVER --alter --name NAME-k --interval 1000 --match bogus=1
    client-metrics --bootstrap-server SERVER --alter --name NAME-k --interval 1
    client-metrics --bootstrap-server SERVER --alter --name NAME-k --interval 1000
    client-metrics --bootstrap-server SERVER --describe --name NAME-k
    client-metrics --bootstrap-server SERVER --alter --name NAME-k --interval
    client-metrics --bootstrap-server SERVER --delete
    client-metrics --bootstrap-server SERVER --delete --name nosuch
    client-metrics --bootstrap-server SERVER --delete --name NAME-k
    delegation-tokens --bogus
    delegation-tokens --bootstrap-server SERVER
    delegation-tokens --bootstrap-server SERVER --describe --create --command-config FOLDER/NAME.properties
    delegation-tokens --bootstrap-server SERVER --create --command-config FOLDER/none --max-life-time-period 1000
    delegation-tokens --bootstrap-server SERVER --create --command-config FOLDER/NAME.properties --max-life-time-period 1000
    delegation-tokens --bootstrap-server SERVER --renew --command-config FOLDER/NAME.properties
    delegation-tokens --bootstrap-server SERVER --renew --command-config FOLDER/NAME.properties --hmac abcd --renew-time-period 100
    delegation-tokens --bootstrap-server SERVER --expire --command-config FOLDER/NAME.properties --hmac abcd --expiry-time-period 100
    delegation-tokens --bootstrap-server SERVER --describe --command-config FOLDER/NAME.properties
    delegation-tokens --bootstrap-server SERVER --describe --command-config FOLDER/NAME.properties --owner-principal bad
""", masks=(r"(?<=config for )[\w-]{22}\.",))  # fmt: skip
REPLICAS = calls("""
    replica-verification
    replica-verification --bogus
    replica-verification --version
    replica-verification --broker-list nonsense
    replica-verification --broker-list SERVER --topics-include (
    replica-verification --broker-list SERVER --fetch-size x
    replica-verification --broker-list SERVER --max-wait-ms x
""")  # fmt: skip
_ID = "5L6g3nShT-eMCtK--X86sw"
_FORMAT = f"storage format -t {_ID} -c FOLDER/NAME-static.properties"
_DYNAMIC = f"storage format -t {_ID} -c FOLDER/NAME-dynamic.properties"
_BROKER = f"storage format -t {_ID} -c FOLDER/NAME-broker.properties"
_VOTERS = "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg,2@localhost:9094:aEXY6aqzQY-32P5TStzaFg"
STORAGE = calls(f"""
    storage --help
    storage info
    storage info -c FOLDER/NAME-static.properties
    storage random-uuid --bogus
    storage format -c FOLDER/NAME-static.properties
    storage format -t {_ID} -c FOLDER/none
    {_FORMAT} --standalone
    {_FORMAT} -f bogus=1
    {_FORMAT} -f bogus
    {_FORMAT} -f group.version=99
    {_FORMAT} -r 9.9
    {_FORMAT} -r 4.0 -f metadata.version=20
    {_FORMAT} -S bogus
    {_FORMAT} -S SCRAM-SHA-256=[name=a]
    {_FORMAT} -S SCRAM-SHA-256=[password=a]
    {_FORMAT} -S SCRAM-SHA-9=[name=a,password=b]
    {_FORMAT} -S SCRAM-SHA-256=[name=a,password=b,iterations=1]
    {_FORMAT} -r 4.1 --feature group.version=0 --add-scram SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]
    {_FORMAT}
    {_FORMAT} --ignore-formatted
    storage format -t 5L6g3nShT-eMCtK--X86sx -c FOLDER/NAME-static.properties --ignore-formatted
    storage info -c FOLDER/NAME-static.properties
    dump-log --cluster-metadata-decoder --files FOLDER/NAME-static/bootstrap.checkpoint
    {_DYNAMIC}
    {_DYNAMIC} --standalone --no-initial-controllers
    {_DYNAMIC} --initial-controllers bogus
    {_DYNAMIC} --initial-controllers {_VOTERS}
    storage info -c FOLDER/NAME-dynamic.properties
    dump-log --cluster-metadata-decoder --files FOLDER/NAME-dynamic/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint
    {_BROKER} --standalone
    {_BROKER} --no-initial-controllers
    storage info -c FOLDER/NAME-broker.properties
    storage version-mapping
    storage version-mapping -r 3.3-IV3
    storage version-mapping -r 9
    storage feature-dependencies
    storage feature-dependencies -f bogus=1
    storage feature-dependencies -f group.version=1 -f transaction.version=2
""", masks=(
    r"^Bootstrap metadata: .*\n",  # what it is about to write, as Java prints its objects; dump-log shows the same below
    r"(?<=directory.id=)[\w-]{22}", r"CreateTime: \d+", r"(?<=Timestamp.:)\d+", r"crc: \d+", r"(?:position|size|valueSize): \d+", r'"(?:salt|storedKey|serverKey)":"[^"]*"',
    r"^Dumping .*",
))  # fmt: skip
_SHELL = "metadata-shell --snapshot FOLDER/__cluster_metadata-0/00000000000000000000.log"
SHELL = calls(f"""
    metadata-shell
    metadata-shell --help
    metadata-shell --bogus
    metadata-shell -s FOLDER/none ls
    {_SHELL} ls
    {_SHELL} ls /image
    {_SHELL} ls /image/topics/byName/javas* /image/features/metadataVersion
    {_SHELL} ls /nosuch
    {_SHELL} find /image/topics
    {_SHELL} find /nosuch
    {_SHELL} cat /image
    {_SHELL} cat /nosuch
    {_SHELL} cat /local/version /local/commitId
    {_SHELL} cat /image/provenance
    {_SHELL} cat
    {_SHELL} pwd
    {_SHELL} bogus
    {_SHELL} tree /image/acls
    {_SHELL} tree /image/clientQuotas
    {_SHELL} tree /image/cluster
    {_SHELL} tree /image/configs
    {_SHELL} tree /image/features
    {_SHELL} tree /image/producerIds
    {_SHELL} tree /image/scram
    {_SHELL} tree /image/topics/byName
""")  # fmt: skip
SEEN_IN_THE_SHELL = calls("""
    configs --bootstrap-server SERVER --user NAME --alter --add-config producer_byte_rate=1000,consumer_byte_rate=20
    configs --bootstrap-server SERVER --user NAME --alter --add-config SCRAM-SHA-256=[iterations=8192,password=x]
    configs --bootstrap-server SERVER --broker 1 --alter --add-config log.cleaner.threads=2
    configs --bootstrap-server SERVER --group NAME --alter --add-config consumer.session.timeout.ms=50000
    acls --bootstrap-server SERVER --add --topic NAME --deny-principal User:bob --operation Write --deny-host 10.0.0.1
""")  # fmt: skip
ON_A_SERVER = (
    *PRODUCER, *CONSUMER, *LATENCY, *VERIFIABLE, *NEW_PROTOCOL, *SHARE, *METRICS_AND_TOKENS, *REPLICAS,
)  # fmt: skip
FILES_ONLY = STORAGE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}-payloads").write_text("one\ntwo;three\n")
        (tmp_path / f"{name}.properties").write_text("client.id=x\n")
        for kind in ("static", "dynamic", "broker"):
            voters = "controller.quorum.voters=1@" if kind == "static" else "controller.quorum.bootstrap.servers="
            controller = "" if kind == "broker" else ",controller"
            listener = "" if kind == "broker" else ",CONTROLLER://:9093"
            (tmp_path / f"{name}-{kind}.properties").write_text(
                f"process.roles=broker{controller}\nnode.id=1\n{voters}localhost:9093\nlisteners=PLAINTEXT://:9092{listener}\n"
                f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path / name}-{kind}\n"
            )
    return tmp_path


def in_the_shell(server: ApacheKafka, folder: Path) -> list[str]:
    """Java's shell locks the folder of the log, so both look at a copy."""
    found = differences(SEEN_IN_THE_SHELL, server, folder)
    log = "__cluster_metadata-0/00000000000000000000.log"
    (folder / log).parent.mkdir()
    shutil.copy(server.data_dir / log, folder / log)
    return found + differences(SHELL, server, folder)


def test_on_apache_kafka(apache_server: ApacheKafka, folder: Path) -> None:
    found = differences((*ON_A_SERVER, *STREAMS, *SHARE_READ), apache_server, folder)
    found += in_the_shell(apache_server, folder)
    assert not found, "\n".join(found)


def test_on_ottla(ottla_server: ApacheKafka, folder: Path) -> None:
    found = differences((*ON_A_SERVER, *STREAMS, *SHARE_READ, *FILES_ONLY), ottla_server, folder)
    found += in_the_shell(ottla_server, folder)
    assert not found, "\n".join(found)
