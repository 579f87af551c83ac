"""No broker, wrong security: Kafka's words and exit code from every tool that asks a cluster.

Unknown flags, missing topics and bad numbers are in the other comparisons. The timeouts are short, the same for both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.compared import NAMES, Call, differences
from tests.cli.tools import javas, ours
from tests.support.apache_kafka import ApacheKafka, free_port

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(240)]

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
