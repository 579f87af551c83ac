"""No broker, wrong security: Kafka's words and exit code from every tool that asks a cluster.

Unknown flags, missing topics and bad numbers are in the other comparisons. The timeouts are short, the same for both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.compared import NAMES, Call, calls, differences
from tests.cli.tools import javas, ours
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(600)]

ASKS = {
    "acls": "--list",
    "broker-api-versions": "",
    "client-metrics": "--list",
    "configs": "--describe --entity-type topics --entity-name t",
    "consumer-groups": "--list",
    "delegation-tokens": "--describe",
    "delete-records": "--offset-json-file FOLDER/NAME.json",
    "features": "describe",
    "get-offsets": "--topic t",
    "groups": "--list",
    "leader-election": "--election-type preferred --all-topic-partitions",
    "log-dirs": "--describe",
    "metadata-quorum": "describe --status",
    "reassign-partitions": "--list",
    "share-groups": "--list",
    "streams-groups": "--list",
    "topics": "--list",
    "transactions": "list",
}
OWN_WORDS = {
    "broker-api-versions", "delegation-tokens", "leader-election", "log-dirs", "metadata-quorum", "transactions",
}  # fmt: skip
"""Without a broker these say in words of their own that nobody answers in time; only their exit codes are compared."""
SHORT = "default.api.timeout.ms=400\nrequest.timeout.ms=300\nreconnect.backoff.max.ms=50\n"
LOGIN = 'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";\n'


def line(tool: str, server: str, config: str) -> str:
    where = f"--bootstrap-server {server} --command-config FOLDER/{config}"
    return f"{tool} {where} {ASKS[tool]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "short.properties").write_text(SHORT)
    (tmp_path / "unknown.properties").write_text(SHORT + "security.protocol=NONE\n")
    (tmp_path / "tls.properties").write_text(SHORT + "security.protocol=SSL\n")
    (tmp_path / "login.properties").write_text(
        SHORT + LOGIN + "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    )
    for name in NAMES:
        (tmp_path / f"{name}.json").write_text(
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 1}]}'
        )
    return tmp_path


def same_codes(words: str, folder: Path) -> None:
    """Kafka's exit code and one clear line, whatever its words."""
    name, *arguments = words.replace("FOLDER", str(folder)).replace("NAME", NAMES[0]).split()
    theirs, mine = javas(name, arguments), ours(name, arguments)
    assert mine.code == theirs.code, (words, theirs, mine)
    assert "Traceback" not in mine.out + mine.err
    assert mine.out.strip() or mine.err.strip(), words


@pytest.mark.soak  # some of Java's tools wait 30 s whatever the timeouts say
def test_no_broker(apache_server: ApacheKafka, folder: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    asked = [Call(line(tool, nobody, "short.properties"), rows=True) for tool in ASKS if tool not in OWN_WORDS]
    found = differences(asked, apache_server, folder)
    assert not found, "\n".join(found)
    for tool in sorted(OWN_WORDS):
        same_codes(line(tool, nobody, "short.properties"), folder)


def test_a_protocol_that_is_none(apache_server: ApacheKafka, folder: Path) -> None:
    masks = (r"(?<=\(case insensitive\): ).*",)  # Java's order is another one each time
    asked = [Call(line(tool, "SERVER", "unknown.properties"), masks=masks) for tool in ASKS]
    found = differences(asked, apache_server, folder)
    assert not found, "\n".join(found)


@pytest.mark.soak  # as above
@pytest.mark.parametrize("config", ["tls.properties", "login.properties"])
def test_wrong_security(ottla_server: ApacheKafka, folder: Path, config: str) -> None:
    """A plain listener that is spoken to in TLS or SASL. The words are the TLS library's; the code is Kafka's."""
    for tool in ASKS:
        same_codes(line(tool, ottla_server.bootstrap_servers, config), folder)


ODD = calls("""
    topics --bootstrap-server SERVER --create --topic NAMEé
    topics --bootstrap-server SERVER --create --topic .
    topics --bootstrap-server SERVER --create --topic NAME-n --partitions 99999999999
    topics --bootstrap-server SERVER --create --topic NAME-n --partitions -1
    topics --bootstrap-server SERVER --create --topic NAME-n --replication-factor 99999
    topics --bootstrap-server SERVER --create --topic NAME-n --replication-factor 0
    topics --bootstrap-server SERVER --create --topic ""
    topics --bootstrap-server SERVER --describe --topic ""
    topics --bootstrap-server SERVER --delete --topic ""
    topics --bootstrap-server SERVER --list --list
    topics --bootstrap-server SERVER --bootstrap-server SERVER --list
    topics --bootstrap-server SERVER --list -- --bogus
    topics --bootstrap-server SERVER --list extra
    topics --bootstrap-server= --list
    topics --bootstrap-server SERVER --lis
    topics --bootstrap-server SERVER --create --topic
    configs --bootstrap-server SERVER --topic NAME --alter --add-config ""
    configs --bootstrap-server SERVER --topic NAME --alter --add-config =
    configs --bootstrap-server SERVER --topic NAME --alter --add-config a=b=c
    configs --bootstrap-server SERVER --topic NAME --alter --add-config-file FOLDER/missing
    configs --bootstrap-server SERVER --entity-type topics --entity-type topics --entity-name NAME --describe
    configs --bootstrap-server SERVER --broker 99999999999 --describe
    configs --bootstrap-server SERVER --user "" --describe
    configs --bootstrap-server SERVER --topic "" --describe
    configs --bootstrap-server SERVER --group "" --describe
    configs --bootstrap-server SERVER --client-metrics "" --describe
    configs --bootstrap-server SERVER --entity-type brokers --entity-name "" --describe
    get-offsets --bootstrap-server SERVER --topic ""
    get-offsets --bootstrap-server SERVER --topic NAME --time 99999999999999999999
    get-offsets --bootstrap-server SERVER --topic NAME --partitions x
    get-offsets --bootstrap-server SERVER --topic NAME --partitions -1
    get-offsets --bootstrap-server SERVER --topic-partitions :
    get-offsets --bootstrap-server SERVER --topic-partitions NAME:3-1
    get-offsets --bootstrap-server SERVER --topic-partitions NAME:99999999999
    consumer-groups --bootstrap-server SERVER --describe --group ""
    consumer-groups --bootstrap-server SERVER --describe --group grpé
    consumer-groups --bootstrap-server SERVER --delete --group ""
    consumer-groups --bootstrap-server SERVER --list --timeout x
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME --topic "" --to-earliest
    consumer-groups --bootstrap-server SERVER --reset-offsets --group NAME --from-file FOLDER/NAME-nameless.csv
    consumer-groups --bootstrap-server SERVER --delete-offsets --group NAME --topic ""
    groups --bootstrap-server SERVER --list --list
    acls --bootstrap-server SERVER --list --topic ""
    acls --bootstrap-server SERVER --add --topic NAME --allow-principal "" --operation Read
    leader-election --bootstrap-server SERVER --election-type
    leader-election --bootstrap-server SERVER --election-type preferred --topic "" --partition 0
    leader-election --bootstrap-server SERVER --election-type preferred --topic NAME --partition 99999999999
    log-dirs --bootstrap-server SERVER --describe --broker-list x
    log-dirs --bootstrap-server SERVER --describe --broker-list 99999999999
    delete-records --bootstrap-server SERVER --offset-json-file FOLDER/NAME-empty.csv
    delete-records --bootstrap-server SERVER --offset-json-file FOLDER/NAME-nameless.json
    reassign-partitions --bootstrap-server SERVER --verify --reassignment-json-file FOLDER/NAME-nameless.json
    reassign-partitions --bootstrap-server SERVER --list --timeout x
    transactions --bootstrap-server SERVER list --duration-filter 99999999999999999999
    transactions --bootstrap-server SERVER describe-producers --topic NAME --partition 99999999999
    console-consumer --bootstrap-server SERVER --topic NAME --partition 99999999999
    console-consumer --bootstrap-server SERVER --topic "" --timeout-ms 3000
    console-consumer --bootstrap-server SERVER --include "" --timeout-ms 3000
    console-share-consumer --bootstrap-server SERVER --topic "" --timeout-ms 3000
    consumer-perf-test --bootstrap-server SERVER --topic "" --num-records 1 --timeout 3000
    console-producer --bootstrap-server SERVER --topic NAME --batch-size 99999999999
    share-groups --bootstrap-server SERVER --describe --group ""
    streams-groups --bootstrap-server SERVER --describe --group ""
    client-metrics --bootstrap-server SERVER --describe --name ""
    client-metrics --bootstrap-server SERVER --alter --name NAME --interval 99999999999
    metadata-quorum --bootstrap-server "" describe --status
    features --bootstrap-server SERVER upgrade --feature ""
    cluster unregister --bootstrap-server SERVER --id 99999999999
    cluster unregister --bootstrap-server SERVER --id -1
""", rows=True, masks=(r"TopicId: \S+",))  # fmt: skip
"""Empty names, letters beyond ASCII, numbers that no integer holds, flags twice, words after `--`, values left out."""


def test_odd_words_on_apache_kafka(apache_server: ApacheKafka, folder: Path) -> None:
    found = differences(odd(folder), apache_server, folder)
    assert not found, "\n".join(found)


def test_odd_words_on_ottla(ottla_server: ApacheKafka, folder: Path) -> None:
    found = differences(odd(folder), ottla_server, folder)
    assert not found, "\n".join(found)


def odd(folder: Path) -> list[Call]:
    for name in NAMES:
        (folder / f"{name}-empty.csv").write_text("")
        (folder / f"{name}-nameless.csv").write_text(",0,1\n")
        row = '{"topic": "", "partition": 0, "offset": 0, "replicas": [1]}'
        (folder / f"{name}-nameless.json").write_text(f'{{"version": 1, "partitions": [{row}]}}')
    return [Call("topics --bootstrap-server SERVER --create --topic NAME --partitions 3"), *ODD]
