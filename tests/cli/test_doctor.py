"""`ottla doctor`: each seeded fault is named, with a fix; a healthy cluster has none."""

from __future__ import annotations

import datetime as dt
import http.server
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.cli.doctor.connection import _check_advertised
from ottla.cli.options.connecting import Target
from ottla.cli.options.profiles import Profile
from ottla.cli.verbs.doctor import examine
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from ottla.protocol.generated.describe_log_dirs_response import DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.protocol.generated.describe_quorum_response import (
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ottla.protocol.generated.describe_transactions_response import DescribeTransactionsResponse
from ottla.protocol.generated.describe_transactions_response import TransactionState as Described
from ottla.protocol.generated.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.protocol.generated.list_groups_response import ListedGroup, ListGroupsResponse
from ottla.protocol.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.generated.list_transactions_response import ListTransactionsResponse, TransactionState
from ottla.protocol.generated.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.generated.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.generated.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.protocol.generated.sasl_handshake_response import SaslHandshakeResponse
from ottla.testing import Broker
from tests.support.ports import free_port

from .fake_broker import FakeBroker

NOW = int(time.time() * 1000)
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'x required username="u" password="p";',
}


def names(address: str, lag: int = 100_000, **properties: str) -> list[str]:
    target = Target(Profile(address, properties={"default.api.timeout.ms": "20000", **properties}), "table")
    found = examine(target, lag, 3)
    assert all(one.fix for one in found if one.level != "ok")
    return [one.name for one in found if one.level != "ok"]


def quorum(leader: int = 1, at: int | None = None, *others: ReplicaState) -> Callable[[Any], DescribeQuorumResponse]:
    def answer(_: Any) -> DescribeQuorumResponse:
        row = ReplicaState(
            1, log_end_offset=5000, last_caught_up_timestamp=int(time.time() * 1000) if at is None else at
        )
        data = PartitionData(0, 0, None, leader, 1, 100, [row, *others])
        return DescribeQuorumResponse(topics=[TopicData("__cluster_metadata", [data])])

    return answer


def healthy(**answers: Any) -> dict[int, Any]:
    return {55: quorum(), **{int(key[1:]): value for key, value in answers.items()}}


def topics(*partitions: MetadataResponsePartition) -> Callable[[Any], MetadataResponse]:
    return lambda _: MetadataResponse(
        topics=[MetadataResponseTopic(0, "t", partitions=list(partitions))], controller_id=1
    )


def seeded(answers: dict[int, Any], lag: int = 100_000, **properties: str) -> list[str]:
    with FakeBroker(answers) as broker:
        coordinator = FindCoordinatorResponse(coordinators=[Coordinator("k", 1, "127.0.0.1", broker.port)])
        broker._answers[10] = lambda _: coordinator
        return names(broker.address, lag, **properties)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_server(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return context


def test_a_healthy_broker_has_no_faults() -> None:
    assert seeded(healthy()) == []


def test_addresses() -> None:
    assert names("localhost") == ["address"]
    assert names("nohost.invalid:9092") == ["dns"]
    assert names(f"127.0.0.1:{free_port()}") == ["refused"]


@pytest.fixture
def web_server() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_a_web_server_is_no_broker(web_server: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert names(f"127.0.0.1:{web_server}") == ["not-kafka"]


def test_tls(authority: trustme.CA, tmp_path: Any) -> None:
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trusted)
    ssl_properties = {"security.protocol": "SSL", "ssl.truststore.location": str(trusted), "ssl.truststore.type": "PEM"}
    good = authority.issue_cert("127.0.0.1", "localhost")
    with FakeBroker(healthy(), tls=tls_server(good)) as broker:
        assert names(broker.address) == ["tls-listener"]
        assert names(broker.address, **{"security.protocol": "SSL"}) == ["tls-untrusted"]
        missing = {**ssl_properties, "ssl.truststore.location": str(tmp_path / "none.pem")}
        assert names(broker.address, **missing) == ["tls-store"]
    with FakeBroker(healthy(), tls=tls_server(authority.issue_cert("other.example"))) as broker:
        assert names(broker.address, **ssl_properties) == ["tls-hostname"]
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    old = authority.issue_cert("127.0.0.1", not_before=yesterday - dt.timedelta(days=9), not_after=yesterday)
    with FakeBroker(healthy(), tls=tls_server(old)) as broker:
        assert names(broker.address, **ssl_properties) == ["tls-expired"]
    with FakeBroker(healthy()) as broker:
        assert names(broker.address, **ssl_properties) == ["plaintext-listener"]


def test_sasl() -> None:
    assert seeded(healthy(_3=None)) == ["sasl-required"]
    refused = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-512"])
    assert seeded(healthy(_17=lambda _: refused), **PLAIN) == ["sasl-mechanism"]
    wrong = SaslAuthenticateResponse(
        ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: Invalid username or password"
    )
    assert seeded(healthy(_36=lambda _: wrong), **PLAIN) == ["sasl-credentials"]
    assert seeded(healthy(), **{**PLAIN, "sasl.jaas.config": ""}) == ["sasl-settings"]


def test_advertised_listeners() -> None:
    def advertising(host: str, port: int) -> list[str]:
        answer = MetadataResponse(brokers=[MetadataResponseBroker(1, host, port)], controller_id=1)
        return seeded(healthy(_3=lambda _: answer), **{"default.api.timeout.ms": "1500"})  # each question waits so long

    assert advertising("nohost.invalid", 9092)[0] == "advertised-dns"
    assert advertising("127.0.0.1", free_port())[0] == "advertised-unreachable"
    metadata = MetadataResponse(brokers=[MetadataResponseBroker(1, "localhost", 9092)])
    assert [one.name for one in _check_advertised(metadata, (("192.0.2.7", 9092),), 1)] == ["advertised-loopback"]


def test_the_quorum_and_the_clock() -> None:
    assert seeded(healthy(_55=quorum(leader=-1))) == ["no-controller"]
    assert seeded(healthy(_55=quorum(at=NOW - 3_600_000))) == ["clock"]
    assert seeded(healthy(_55=quorum(at=NOW + 3_600_000))) == ["clock"]
    late = [ReplicaState(2, log_end_offset=10), ReplicaState(3, log_end_offset=5000)]
    assert seeded(healthy(_55=quorum(1, None, *late))) == ["voter-behind"]


def test_brokers_and_disks() -> None:
    fenced = DescribeClusterResponse(brokers=[DescribeClusterBroker(2, "b", 9092, None, True)])
    assert seeded(healthy(_60=lambda _: fenced)) == ["broker-fenced"]
    full = DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, "/data", [], 1000, 20)])
    assert seeded(healthy(_35=lambda _: full)) == ["disk-full"]
    broken = DescribeLogDirsResponse(results=[DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, "/data")])
    assert seeded(healthy(_35=lambda _: broken)) == ["log-dir-offline"]


def test_partitions() -> None:
    assert seeded(healthy(_3=topics(MetadataResponsePartition(0, 0, -1, 0, [1, 2], [])))) == ["offline-partitions"]
    assert seeded(healthy(_3=topics(MetadataResponsePartition(0, 0, 1, 0, [1, 2, 3], [1, 2])))) == ["under-replicated"]
    from ottla.protocol.generated.describe_configs_response import (
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
    )

    setting = DescribeConfigsResourceResult("min.insync.replicas", "2")
    configs = DescribeConfigsResponse(results=[DescribeConfigsResult(0, None, 2, "t", [setting])])
    short = topics(MetadataResponsePartition(0, 0, 1, 0, [1, 2, 3], [1]))
    assert seeded(healthy(_3=short, _32=lambda _: configs)) == ["under-replicated", "under-min-isr"]
    brittle = topics(MetadataResponsePartition(0, 0, 1, 0, [1, 2], [1, 2]))
    assert seeded(healthy(_3=brittle, _32=lambda _: configs)) == ["min-isr-brittle"]


def test_groups_and_transactions() -> None:
    committed = OffsetFetchResponseTopics("t", partitions=[OffsetFetchResponsePartitions(0, 10, -1, "", 0)])
    answers = healthy(
        _3=topics(MetadataResponsePartition(0, 0, 1, 0, [1], [1])),
        _16=lambda _: ListGroupsResponse(groups=[ListedGroup("g", "consumer", "Empty", "classic")]),
        _9=lambda _: OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [committed])]),
        _2=lambda _: ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(0, 0, -1, 900_010)])]
        ),
    )
    assert seeded(answers) == ["lagging-group"]
    assert seeded(answers, lag=1_000_000) == []
    state = Described(0, "tx", "Ongoing", 60_000, NOW - 3_600_000, 1, 0)
    answers = healthy(
        _66=lambda _: ListTransactionsResponse(transaction_states=[TransactionState("tx", 1, "Ongoing")]),
        _65=lambda _: DescribeTransactionsResponse(transaction_states=[state]),
    )
    assert seeded(answers) == ["hanging-transaction"]


def test_on_a_real_node() -> None:
    """The command as it is called: a running node is well, and the exit code says so."""
    with Broker() as broker:
        done = CliRunner().invoke(ottla, ["doctor", "-b", broker.bootstrap_servers])
        assert done.exit_code == 0, done.output
        assert "connection: " in done.output
        stray = broker.directory / f"data/gone-0.{'0a' * 16}-stray"
        stray.mkdir()
        done = CliRunner().invoke(ottla, ["doctor", "-b", broker.bootstrap_servers])
        assert done.exit_code == 0, "put aside, and no fault"
        assert "stray-partitions: " in done.output
        assert stray.name in done.output
        meta = broker.directory / "data/meta.properties"
        meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
        done = CliRunner().invoke(ottla, ["doctor", "-b", broker.bootstrap_servers])
        assert "disks: nothing wrong" in done.output, "the folder of another cluster's broker"
    done = CliRunner().invoke(ottla, ["doctor", "-b", f"127.0.0.1:{free_port()}"])
    assert done.exit_code == 1
    assert "fix: " in done.output
