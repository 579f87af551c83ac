"""Each tool and main flag: what Apache Kafka's own tool prints and what ours prints, on the same server, on both servers.

Calls that change something have NAME in them: each side gets a name of its own, of the same length, so that both find the
same state. Calls build on those before them, so they are one test per server.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.compared import NAMES, Call, calls, differences
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(600)]


TOPICS = calls("""
    topics
    topics --list
    topics --bogus
    topics --bootstrap-server
    topics --version
    topics --bootstrap-server SERVER --create --topic NAME --partitions 3 --config retention.ms=100000000 --config cleanup.policy=delete
    topics --bootstrap-server SERVER --create --topic NAME
    topics --bootstrap-server SERVER --create --topic NAME --if-not-exists
    topics --bootstrap-server SERVER --create --topic NAME.with_both
    topics --bootstrap-server SERVER --create --topic bad/name
    topics --bootstrap-server SERVER --create --topic NAME-3 --replication-factor 3
    topics --bootstrap-server SERVER --create --topic NAME-0 --partitions 0
    topics --bootstrap-server SERVER --create --topic NAME-x --partitions x
    topics --bootstrap-server SERVER --create --topic NAME-u --config no.such.setting=1
    topics --bootstrap-server SERVER --create --topic NAME-i --config retention.ms=soon
    topics --bootstrap-server SERVER --create --topic NAME-i --config retention.ms
    topics --bootstrap-server SERVER --create --topic NAME-p --replica-assignment 1,1
    topics --bootstrap-server SERVER --create --topic NAME-q --replica-assignment 1,7
    topics --bootstrap-server SERVER --create --topic NAME-q --replica-assignment 1:1
    topics --bootstrap-server SERVER --create --topic NAME-q --replica-assignment 1 --partitions 1
    topics --bootstrap-server SERVER --create
    topics --bootstrap-server SERVER --create --topic a --topic b
    topics --bootstrap-server SERVER --list --describe
    topics --bootstrap-server SERVER --list
    topics --bootstrap-server SERVER --list --exclude-internal
    topics --bootstrap-server SERVER --list --partitions 3
    topics --bootstrap-server SERVER --describe --topic NAME
    topics --bootstrap-server SERVER --describe --topic NAME --partition-size-limit-per-response 1
    topics --bootstrap-server SERVER --describe --under-replicated-partitions
    topics --bootstrap-server SERVER --describe --unavailable-partitions
    topics --bootstrap-server SERVER --describe --under-min-isr-partitions
    topics --bootstrap-server SERVER --describe --at-min-isr-partitions --topic NAME
    topics --bootstrap-server SERVER --describe --topics-with-overrides --topic NAME
    topics --bootstrap-server SERVER --describe --under-replicated-partitions --topics-with-overrides
    topics --bootstrap-server SERVER --describe --topic missing
    topics --bootstrap-server SERVER --describe --topic missing --if-exists
    topics --bootstrap-server SERVER --describe --topic-id nosuch
    topics --bootstrap-server SERVER --describe --topic-id 7LlQUEnVSVuR4-bC3uF6iw
    topics --bootstrap-server SERVER --alter --topic NAME --partitions 4
    topics --bootstrap-server SERVER --alter --topic NAME --partitions 2
    topics --bootstrap-server SERVER --alter --topic missing --partitions 2
    topics --bootstrap-server SERVER --alter --topic NAME --partitions 2 --config a=b
    topics --bootstrap-server SERVER --describe --topic NAME
    topics --bootstrap-server SERVER --delete --topic NAME-p
    topics --bootstrap-server SERVER --delete --topic NAME-gone
    topics --bootstrap-server SERVER --delete --topic NAME-gone --if-exists
    topics --bootstrap-server nohost.invalid:9092 --list
    topics --bootstrap-server localhost --list
    topics --bootstrap-server SERVER --list --command-config FOLDER/missing
""", masks=(r"TopicId: \S+",))  # fmt: skip
ALL_TOPICS = [Call("configs --bootstrap-server SERVER --entity-type topics --describe", rows=True)]
CONFIGS = calls("""
    configs
    configs --bogus
    configs --describe
    configs --bootstrap-server SERVER --describe --entity-type tpics
    configs --bootstrap-server SERVER --describe --alter --entity-type topics
    configs --bootstrap-server SERVER --entity-type topics --entity-name NAME --describe
    configs --bootstrap-server SERVER --entity-type topics --entity-name NAME --describe --all
    configs --bootstrap-server SERVER --topic NAME --alter --add-config max.message.bytes=200000,segment.ms=3600000
    configs --bootstrap-server SERVER --topic NAME --describe
    configs --bootstrap-server SERVER --topic NAME --alter --delete-config segment.ms
    configs --bootstrap-server SERVER --topic NAME --alter --add-config cleanup.policy=[compact,delete]
    configs --bootstrap-server SERVER --topic NAME --alter --add-config no.such.setting=1
    configs --bootstrap-server SERVER --topic NAME --alter --add-config segment.bytes=1
    configs --bootstrap-server SERVER --topic NAME --alter --add-config segment.bytes
    configs --bootstrap-server SERVER --topic NAME --alter
    configs --bootstrap-server SERVER --topic missing --describe
    configs --bootstrap-server SERVER --topic bad/name --describe
    configs --bootstrap-server SERVER --topic missing --alter --add-config segment.ms=1000
    configs --bootstrap-server SERVER --broker 1 --alter --add-config log.cleaner.threads=2
    configs --bootstrap-server SERVER --broker 1 --describe
    configs --bootstrap-server SERVER --entity-type brokers --entity-default --alter --add-config log.retention.ms=200000000
    configs --bootstrap-server SERVER --entity-type brokers --describe
    configs --bootstrap-server SERVER --broker 1 --describe --all
    configs --bootstrap-server SERVER --broker 1 --alter --add-config log.dirs=/tmp
    configs --bootstrap-server SERVER --broker-defaults --alter --delete-config log.retention.ms
    configs --bootstrap-server SERVER --broker 1 --alter --delete-config log.cleaner.threads
    configs --bootstrap-server SERVER --broker x --describe
    configs --bootstrap-server SERVER --broker 9 --describe
    configs --bootstrap-controller CONTROLLER --entity-type brokers --describe
    configs --bootstrap-server SERVER --group NAME --alter --add-config consumer.session.timeout.ms=50000
    configs --bootstrap-server SERVER --group NAME --describe
    configs --bootstrap-server SERVER --client-metrics NAME --alter --add-config interval.ms=1000
    configs --bootstrap-server SERVER --client-metrics NAME --describe
""", masks=(r"directory\S*=\S*",))  # fmt: skip
QUOTAS = calls("""
    configs --bootstrap-server SERVER --user NAME --alter --add-config producer_byte_rate=1000,consumer_byte_rate=20
    configs --bootstrap-server SERVER --user NAME --client c --alter --add-config producer_byte_rate=20971520
    configs --bootstrap-server SERVER --user NAME --describe
    configs --bootstrap-server SERVER --user NAME --client c --describe
    configs --bootstrap-server SERVER --user NAME --alter --add-config SCRAM-SHA-256=[iterations=8192,password=x]
    configs --bootstrap-server SERVER --user NAME --alter --add-config SCRAM-SHA-256=[iterations=1,password=x]
    configs --bootstrap-server SERVER --user NAME --describe
    configs --bootstrap-server SERVER --user nobody --describe
    configs --bootstrap-server SERVER --user NAME --alter --add-config bogus=1
    configs --bootstrap-server SERVER --user NAME --alter --delete-config request_percentage
    configs --bootstrap-server SERVER --user NAME --alter --add-config producer_byte_rate=abc
    configs --bootstrap-server SERVER --entity-type ips --entity-name 127.0.0.1 --describe
""")  # fmt: skip
RECORDS = [
    Call("console-producer --bootstrap-server SERVER --topic NAME --reader-property parse.key=true",
         stdin="".join(f"k{n % 3}\tvalue {n}\n" for n in range(20))),
    Call("console-producer --bootstrap-server SERVER --topic NAME --property parse.key=true --property key.separator=:",
         stdin="a:b\nnone\n"),
    *calls("""
    console-producer
    console-producer --bogus
    console-producer --bootstrap-server SERVER
    console-producer --topic a
    console-producer --bootstrap-server x --topic a
    console-producer --bootstrap-server SERVER --topic a --batch-size x
    console-consumer
    console-consumer --bogus
    console-consumer --bootstrap-server SERVER
    console-consumer --topic a
    console-consumer --bootstrap-server SERVER --topic a --offset 1
    console-consumer --bootstrap-server SERVER --topic a --partition 0 --offset x
    console-consumer --bootstrap-server SERVER --topic a --partition 0 --group g
    console-consumer --bootstrap-server SERVER --topic a --formatter nosuch
    """),
    *calls("""
    console-consumer --bootstrap-server SERVER --topic NAME --from-beginning --max-messages 21 --timeout-ms 40000 --formatter-property print.key=true --formatter-property print.offset=true --formatter-property print.partition=true
    console-consumer --bootstrap-server SERVER --topic NAME --group NAME-g --from-beginning --max-messages 21 --timeout-ms 40000
    console-consumer --bootstrap-server SERVER --topic NAME --partition 0 --offset 2 --timeout-ms 1500 --property print.headers=true
    """, rows=True),
]  # fmt: skip
OFFSETS = calls("""
    get-offsets
    get-offsets --bootstrap-server SERVER --topic NAME
    get-offsets --bootstrap-server SERVER --topic NAME --time earliest
    get-offsets --bootstrap-server SERVER --topic NAME --time -2
    get-offsets --bootstrap-server SERVER --topic NAME --time 0
    get-offsets --bootstrap-server SERVER --topic NAME --time yesterday
    get-offsets --bootstrap-server SERVER --topic NAME --partitions 1
    get-offsets --bootstrap-server SERVER --topic-partitions NAME:0,NAME:2-4
    get-offsets --bootstrap-server SERVER --topic missing
    delete-records --bootstrap-server SERVER --offset-json-file FOLDER/NAME.json
    get-offsets --bootstrap-server SERVER --topic NAME --time earliest
    log-dirs --bootstrap-server SERVER --describe --topic-list missing
    log-dirs --bootstrap-server SERVER --describe --topic-list NAME.with_both
    log-dirs --bootstrap-server SERVER --describe --broker-list 9
""", rows=True, masks=(r'"size":\d+', r"max-timestamp.*"))  # fmt: skip
GROUPS = calls("""
    consumer-groups
    consumer-groups --bogus
    consumer-groups --bootstrap-server SERVER
    consumer-groups --bootstrap-server SERVER --list
    consumer-groups --bootstrap-server SERVER --list --state
    consumer-groups --bootstrap-server SERVER --list --type --state empty
    consumer-groups --bootstrap-server SERVER --list --type bogus
    consumer-groups --bootstrap-server SERVER --describe
    consumer-groups --bootstrap-server SERVER --describe --group NAME-g
    consumer-groups --bootstrap-server SERVER --describe --group NAME-g --offsets --verbose
    consumer-groups --bootstrap-server SERVER --describe --group NAME-g --members
    consumer-groups --bootstrap-server SERVER --describe --group NAME-g --members --verbose
    consumer-groups --bootstrap-server SERVER --describe --group NAME-g --state
    consumer-groups --bootstrap-server SERVER --describe --group NAME-g --state --verbose
    consumer-groups --bootstrap-server SERVER --describe --group NAME-g --state --members
    consumer-groups --bootstrap-server SERVER --describe --group nobody
    consumer-groups --bootstrap-server SERVER --describe --all-groups --state
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --topic NAME
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --topic NAME --to-earliest --dry-run
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --topic NAME --to-latest --execute
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --topic NAME:0 --to-offset 1 --execute
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --topic NAME --to-offset 99 --execute
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --topic NAME --to-offset x --execute
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --topic missing --to-offset 1 --execute
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --all-topics --shift-by -1 --execute
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --all-topics --to-current --dry-run
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --all-topics --to-datetime 2020-01-01T00:00:00.000 --dry-run
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --all-topics --to-datetime yesterday --dry-run
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --all-topics --by-duration PT1H --dry-run
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --topic NAME --to-current --export --dry-run
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --from-file FOLDER/NAME.csv --dry-run
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-new --topic NAME --to-earliest --execute
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME-g --to-earliest --to-latest --topic NAME
    consumer-groups --bootstrap-server SERVER --delete-offsets --group NAME-g
    consumer-groups --bootstrap-server SERVER --delete-offsets --group NAME-g --topic NAME:1
    consumer-groups --bootstrap-server SERVER --delete-offsets --group NAME-g --topic missing
    consumer-groups --bootstrap-server SERVER --delete-offsets --group nobody --topic NAME
    consumer-groups --bootstrap-server SERVER --delete --group NAME-g
    consumer-groups --bootstrap-server SERVER --delete --group nobody
    consumer-groups --bootstrap-server SERVER --delete
    consumer-groups --validate-regex f.*
    consumer-groups --validate-regex f(
""", rows=True)  # fmt: skip
CLUSTER = calls("""
    features
    features --bootstrap-server SERVER describe
    features --bootstrap-controller CONTROLLER describe
    features version-mapping --release-version 3.5
    features version-mapping --release-version 9
    features feature-dependencies --feature eligible.leader.replicas.version=1 --feature metadata.version=20
    features feature-dependencies --feature x=2
    features --bootstrap-server SERVER upgrade --feature metadata.version=99
    features --bootstrap-server SERVER upgrade --release-version 4.3 --dry-run
    features --bootstrap-server SERVER upgrade
    storage
    storage bogus
    storage format
    storage version-mapping -r 4.0
    storage feature-dependencies -f metadata.version=20
    cluster cluster-id --bootstrap-server SERVER
    cluster list-endpoints --bootstrap-server SERVER
    cluster list-endpoints --bootstrap-controller CONTROLLER
    cluster unregister --bootstrap-server SERVER --id 77
""", masks=(r"Epoch: \d+",))  # fmt: skip
ACLS = calls("""
    acls
    acls --list
    acls --bogus
    acls --bootstrap-server SERVER
    acls --bootstrap-server SERVER --add
    acls --bootstrap-server SERVER --add --topic NAME
    acls --bootstrap-server SERVER --add --topic NAME --allow-principal User:alice --operation Read --operation Describe
    acls --bootstrap-server SERVER --add --topic NAME --allow-principal User:alice --operation Read
    acls --bootstrap-server SERVER --add --topic NAME --deny-principal User:bob --allow-principal User:c --producer
    acls --bootstrap-server SERVER --add --topic NAME-pre --group NAME-g --allow-principal User:c --consumer --resource-pattern-type prefixed
    acls --bootstrap-server SERVER --list --topic NAME
    acls --bootstrap-server SERVER --list --group NAME-g --resource-pattern-type prefixed
    acls --bootstrap-server SERVER --list --topic NAME --principal User:alice
    acls --bootstrap-server SERVER --add --topic NAME --allow-principal bad
    acls --bootstrap-server SERVER --add --topic NAME --allow-principal User:a --resource-pattern-type match
    acls --bootstrap-server SERVER --add --topic NAME --allow-principal User:a --resource-pattern-type bogus
    acls --bootstrap-server SERVER --add --producer --allow-principal User:z
    acls --bootstrap-server SERVER --add --consumer --allow-principal User:z --topic NAME
    acls --bootstrap-server SERVER --remove --topic NAME --force
    acls --bootstrap-server SERVER --remove --topic NAME-pre --group NAME-g --resource-pattern-type prefixed --force
    acls --bootstrap-server SERVER --list
""", rows=True)  # fmt: skip
TRANSACTIONS = calls("""
    transactions
    transactions list
    transactions --bootstrap-server SERVER
    transactions --bootstrap-server SERVER bogus
    transactions --bootstrap-server SERVER list
    transactions --bootstrap-server SERVER list --transactional-id-pattern a.*
    transactions --bootstrap-server SERVER describe
    transactions --bootstrap-server SERVER describe --transactional-id nosuch
    transactions --bootstrap-server SERVER describe-producers --topic NAME --partition 0
    transactions --bootstrap-server SERVER find-hanging
    transactions --bootstrap-server SERVER find-hanging --topic NAME
    transactions --bootstrap-server SERVER abort --topic NAME --partition 0
    transactions --bootstrap-server SERVER abort --topic NAME --partition 0 --start-offset 999
""", masks=(r"^\d+\s.*",))  # fmt: skip
MOVES = calls("""
    leader-election
    leader-election --bogus
    leader-election --bootstrap-server SERVER --election-type preferred --topic NAME --partition 0
    leader-election --bootstrap-server SERVER --election-type preferred --topic missing --partition 0
    leader-election --bootstrap-server SERVER --election-type preferred --all-topic-partitions
    leader-election --bootstrap-server SERVER --election-type bogus --topic NAME --partition 0
    leader-election --bootstrap-server SERVER --topic NAME
    leader-election --bootstrap-server SERVER --election-type preferred
    leader-election --bootstrap-server SERVER --election-type preferred --topic NAME
    reassign-partitions
    reassign-partitions --bogus
    reassign-partitions --bootstrap-server SERVER
    reassign-partitions --bootstrap-server SERVER --list
    reassign-partitions --bootstrap-server SERVER --list --throttle 5
    reassign-partitions --bootstrap-server SERVER --generate
    reassign-partitions --bootstrap-server SERVER --generate --broker-list 1 --topics-to-move-json-file FOLDER/NAME-move.json
    reassign-partitions --bootstrap-server SERVER --generate --broker-list x --topics-to-move-json-file FOLDER/NAME-move.json
    reassign-partitions --bootstrap-server SERVER --verify --reassignment-json-file FOLDER/NAME-plan.json
    reassign-partitions --bootstrap-server SERVER --execute --reassignment-json-file FOLDER/NAME-plan.json --throttle 1000000
    configs --bootstrap-server SERVER --broker 1 --describe
    configs --bootstrap-server SERVER --topic NAME --describe
    reassign-partitions --bootstrap-server SERVER --verify --reassignment-json-file FOLDER/NAME-plan.json
    reassign-partitions --bootstrap-server SERVER --cancel --reassignment-json-file FOLDER/NAME-plan.json
    reassign-partitions --bootstrap-server SERVER --execute --reassignment-json-file FOLDER/NAME.csv
    reassign-partitions --bootstrap-server SERVER --execute --reassignment-json-file FOLDER/missing
    reassign-partitions --bootstrap-server SERVER --execute
""")  # fmt: skip
REST = calls("""
    groups
    groups --bootstrap-server SERVER
    groups --bootstrap-server SERVER --list
    groups --bootstrap-server SERVER --list --consumer
    groups --bootstrap-server SERVER --list --group-type bogus
    groups --bootstrap-server SERVER --list --protocol consumer
    client-metrics
    client-metrics --bootstrap-server SERVER
    client-metrics --bootstrap-server SERVER --alter --name NAME-m --interval 1000 --metrics a.,b. --match client_id=x
    client-metrics --bootstrap-server SERVER --describe --name NAME-m
    client-metrics --bootstrap-server SERVER --describe --name nope
    client-metrics --bootstrap-server SERVER --alter --interval 100
    client-metrics --bootstrap-server SERVER --alter --name NAME-m --interval abc
    client-metrics --bootstrap-server SERVER --delete --name NAME-m
    client-metrics --bootstrap-server SERVER --list
    metadata-quorum
    metadata-quorum describe --status
    metadata-quorum --bootstrap-server SERVER describe
    metadata-quorum --bootstrap-server SERVER bogus
    metadata-quorum --bootstrap-server SERVER describe --status
    metadata-quorum --bootstrap-controller CONTROLLER describe --status
    metadata-quorum --bootstrap-server SERVER describe --replication
    broker-api-versions
    broker-api-versions --bogus
    broker-api-versions --bootstrap-server SERVER
    delegation-tokens
    delegation-tokens --bootstrap-server SERVER --create
    share-groups
    share-groups --bootstrap-server SERVER
    share-groups --bootstrap-server SERVER --list
    share-groups --bootstrap-server SERVER --describe
    streams-groups
    streams-groups --bootstrap-server SERVER
    streams-groups --bootstrap-server SERVER --list
    dump-log
    dump-log --files FOLDER/missing
""", rows=True, masks=(r"HighWatermark: +\d+", r"\t\d+ +\t.*"))  # fmt: skip
ALL = (
    *TOPICS,
    *CONFIGS,
    *ALL_TOPICS,
    *QUOTAS,
    *RECORDS,
    *OFFSETS,
    *GROUPS,
    *CLUSTER,
    *ACLS,
    *TRANSACTIONS,
    *MOVES,
    *REST,
)


def test_on_apache_kafka(apache_server: ApacheKafka, tmp_path: Path) -> None:
    found = differences(ALL, apache_server, tmp_path)
    assert not found, "\n".join(found)


def test_on_ottla(ottla_server: ApacheKafka, tmp_path: Path) -> None:
    found = differences([call for call in ALL if not call.apache_only], ottla_server, tmp_path)
    assert not found, "\n".join(found)


RESETS = [
    Call("topics --bootstrap-server SERVER --create --topic NAME-r --partitions 3"),
    Call("console-producer --bootstrap-server SERVER --topic NAME-r --reader-property parse.key=true",
         stdin="".join(f"k{n}\tvalue {n}\n" for n in range(8))),
    *(Call(f"consumer-groups --bootstrap-server SERVER --reset-offsets {line.strip()}", rows=True) for line in """
    --group NAME-rg --topic NAME-r --to-latest --execute
    --group NAME-rh --topic NAME-r --to-earliest --execute
    --group NAME-rg --all-topics --to-earliest --dry-run
    --group NAME-rg --all-topics --to-earliest
    --group NAME-rg --all-topics --to-earliest --execute --dry-run
    --group NAME-rg --all-topics --to-earliest --export
    --group NAME-rg --all-topics --to-latest --export --execute
    --group NAME-rg --group NAME-rh --topic NAME-r --to-earliest --export --dry-run
    --group NAME-rg --group NAME-rh --topic NAME-r --to-latest --dry-run
    --group NAME-rg --topic NAME-r --to-offset 1 --dry-run
    --group NAME-rg --topic NAME-r --to-offset -5 --dry-run
    --group NAME-rg --topic NAME-r --to-offset 99999999999999 --dry-run
    --group NAME-rg --topic NAME-r --to-offset 99999999999999999999 --dry-run
    --group NAME-rg --topic NAME-r --shift-by 100 --dry-run
    --group NAME-rg --topic NAME-r --shift-by -100 --dry-run
    --group NAME-rg --topic NAME-r --shift-by x --dry-run
    --group NAME-rg --topic NAME-r --shift-by 0 --dry-run
    --group NAME-rn --topic NAME-r --shift-by -1 --dry-run
    --group NAME-rn --topic NAME-r --to-current --dry-run
    --group NAME-rn --all-topics --to-current --dry-run
    --group NAME-rg --topic NAME-r --by-duration P1D --dry-run
    --group NAME-rg --topic NAME-r --by-duration PT0S --dry-run
    --group NAME-rg --topic NAME-r --by-duration 1h --dry-run
    --group NAME-rg --topic NAME-r --by-duration P1DT2H3M4.5S --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2020-01-01T00:00:00.000Z --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2020-01-01T00:00:00.000+02:00 --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2020-01-01T00:00:00 --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2020-01-01 --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2120-01-01T00:00:00.000 --dry-run
    --group NAME-rg --from-file FOLDER/NAME-many.csv --dry-run
    --group NAME-rg --from-file FOLDER/NAME-many.csv --execute
    --group NAME-rg --from-file FOLDER/NAME-rgroups.csv --dry-run
    --group NAME-rg --group NAME-rh --from-file FOLDER/NAME-rgroups.csv --dry-run
    --group NAME-rg --from-file FOLDER/NAME-bad.csv --dry-run
    --group NAME-rg --from-file FOLDER/NAME-num.csv --dry-run
    --group NAME-rg --from-file FOLDER/NAME-rgone.csv --dry-run
    --group NAME-rg --from-file FOLDER/NAME-crlf.csv --dry-run
    --group NAME-rg --from-file FOLDER/NAME-empty.csv --dry-run
    --group NAME-rg --from-file FOLDER/NAME-quoted.csv --dry-run
    --group NAME-rg --from-file FOLDER/missing --dry-run
    --group NAME-rg --from-file FOLDER/NAME-many.csv --topic NAME-r --dry-run
    --group NAME-rg --topic NAME-r:0,1 --to-earliest --dry-run
    --group NAME-rg --topic NAME-r:0 --topic NAME-r:2 --to-latest --dry-run
    --group NAME-rg --topic NAME-r:9 --to-latest --dry-run
    --group NAME-rg --topic NAME-r:x --to-latest --dry-run
    --group NAME-rg --topic NAME-r: --to-latest --dry-run
    --group NAME-rg --topic NAME-r --all-topics --to-latest --dry-run
    --group NAME-rg --to-latest --dry-run
    --group NAME-rg --topic NAME-r --to-latest --to-earliest --dry-run
    --group NAME-rg --all-groups --topic NAME-r --to-latest --dry-run
    --topic NAME-r --to-latest --dry-run
    --group bad/grp --topic NAME-r --to-latest --dry-run
    --group NAME-rg --topic missing:0 --to-latest --dry-run
    --group NAME-rg --topic NAME-r:0 --topic missing --to-latest --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2020-01-01T00:00:00.5 --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2020-13-01T00:00:00.500 --dry-run
    --group NAME-rg --topic NAME-r --to-datetime T --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2020-01-01T00:00:00.000+02 --dry-run
    --group NAME-rg --topic NAME-r --to-datetime 2020-01-01T00:00:00.000+0200 --dry-run
    """.strip().splitlines()),
    Call("consumer-groups --bootstrap-server SERVER --describe --group NAME-rg"),
]  # fmt: skip


def reset_files(folder: Path) -> Path:
    for name in NAMES:
        texts = {
            "many": f"{name}-r,0,1\n{name}-r,1,2\n{name}-r,2,999\n",
            "groups": f"{name}-rg,{name}-r,0,1\n{name}-rh,{name}-r,1,0\n",
            "bad": "nonsense\n",
            "num": f"{name}-r,zero,1\n",
            "gone": "missing,0,1\n",
            "crlf": f"{name}-r,0,2\r\n{name}-r,1,1\r\n",
            "empty": "",
            "quoted": f'"{name}-r","0","1"\n',
        }
        for kind, text in texts.items():
            (folder / f"{name}-{kind}.csv").write_bytes(text.encode())
    return folder


def test_resets_on_apache_kafka(apache_server: ApacheKafka, tmp_path: Path) -> None:
    found = differences(RESETS, apache_server, reset_files(tmp_path))
    assert not found, "\n".join(found)


def test_resets_on_ottla(ottla_server: ApacheKafka, tmp_path: Path) -> None:
    found = differences(RESETS, ottla_server, reset_files(tmp_path))
    assert not found, "\n".join(found)
