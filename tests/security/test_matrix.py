"""Both servers are asked the same by the same principals under the same ACLs, and give the same codes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.generated import share_acknowledge_request, share_fetch_request
from ottla.protocol.generated.create_acls_request import AclCreation, CreateAclsRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.describe_acls_request import DescribeAclsRequest
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.share_acknowledge_request import ShareAcknowledgeRequest
from ottla.protocol.generated.share_fetch_request import ShareFetchRequest
from ottla.protocol.generated.streams_group_heartbeat_request import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.protocol.records_build import SimpleRecord, build_batch
from tests.interop.ottla_server import OttlaServer
from tests.security import logins
from tests.security.matrix import APPLICATION, GROUP, OTHER, TOPIC, facts, grants, probes
from tests.security.secured import PLAIN_MODULE, SCRAM_MODULE, jaas
from tests.security.session import Closed, Session
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORD = "matrix"


def secured(server: ApacheKafka) -> ApacheKafka:
    """With ACLs and a SASL listener whose users are the cases of the matrix; who comes by PLAINTEXT may do anything."""
    users = {f"user_{_user(number)}": PASSWORD for number in range(len(grants()))}
    server.sasl_port, server.other_port = free_port(), free_port()  # type: ignore[attr-defined]
    plain, sasl = f"PLAINTEXT://127.0.0.1:{server.port}", f"SASL_PLAINTEXT://127.0.0.1:{server.sasl_port}"  # type: ignore[attr-defined]
    sasl += f",OTHER://127.0.0.1:{server.other_port}"  # type: ignore[attr-defined]
    server.properties |= {
        "listeners": f"{plain},{sasl},CONTROLLER://127.0.0.1:{server.controller_port}",
        "advertised.listeners": f"{plain},{sasl}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:boss",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(PLAIN_MODULE, **users),
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "listener.name.other.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.other.plain.sasl.jaas.config": jaas(
            PLAIN_MODULE, user_case0="of-other", user_elsewhere=PASSWORD
        ),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
        "connection.failed.authentication.delay.ms": "5",
        "delegation.token.secret.key": "of-both",
        "log.retention.ms": "-1",  # the records are of 2023, and Kafka looks for old segments after 30 s
    }
    return server


def _user(number: int) -> str:
    return f"case{number}"


@pytest.fixture(scope="module")
def servers(requires_apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ApacheKafka]]:
    both = [
        secured(ApacheKafka(tmp_path_factory.mktemp("apache"))),
        secured(OttlaServer(tmp_path_factory.mktemp("ottla"))),
    ]
    try:
        for server in both:
            server.start()
            prepare(server)
        yield both
    finally:
        for server in both:
            server.kill()


def prepare(server: ApacheKafka) -> None:
    with Session(server.port) as admin:
        topics = [CreatableTopic(name, 1, 1) for name in (TOPIC, OTHER)]
        assert {t.error_code for t in admin.ask(CreateTopicsRequest(topics, 10_000), 5).topics} <= {0, 36}
        for key_type, key in ((0, GROUP), (1, "matrix-txn")):
            until(lambda k=key, t=key_type: coordinator_ready(admin, t, k))
        until(lambda: commit(admin) == 0)
        until(lambda: admin.ask(InitProducerIdRequest(None, 1000), 4).error_code == 0)  # the first block of ids
        creations = [
            AclCreation(acl.resource_type, acl.name, acl.pattern, f"User:{_user(number)}", *acl[4:])
            for number, acls in enumerate(grants().values())
            for acl in acls
        ]
        results = admin.ask(CreateAclsRequest(creations), 3).results
        assert {result.error_code for result in results} == {0}
        logins.make_scram_user(admin)
        wanted = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
        until(lambda: sum(len(r.acls) for r in admin.ask(wanted, 3).resources) == len(creations))


def coordinator_ready(admin: Session, key_type: int, key: str) -> bool:
    response = admin.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
    return bool(response.coordinators[0].error_code == 0)


def commit(admin: Session) -> int:
    topics = [OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 1)])]
    response = admin.ask(OffsetCommitRequest(GROUP, -1, "", topics=topics), 8)
    return int(response.topics[0].partitions[0].error_code)


def until(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def outcomes(server: ApacheKafka) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    with Session(server.port) as admin:
        topics = admin.ask(MetadataRequest(None), 12).topics
    topic_id = next(topic.topic_id for topic in topics if topic.name == TOPIC)
    batch, transactional = batches()
    asked = probes(topic_id, batch, transactional)
    for number, case in enumerate(grants()):
        session = Session(server.sasl_port).plain(_user(number), PASSWORD)  # type: ignore[attr-defined]
        for name, (request, version) in asked.items():
            try:
                found[case, name] = facts(session.ask(request, version))
            except Closed:
                found[case, name] = "closed"
                session.close()
                session = Session(server.sasl_port).plain(_user(number), PASSWORD)  # type: ignore[attr-defined]
        session.close()
    return found


def batches() -> tuple[bytes, bytes]:
    records = [SimpleRecord(1_700_000_000_000, b"k", b"v")]
    transactional = build_batch(records, producer_id=99_999, producer_epoch=0, base_sequence=0, transactional=True)
    return bytes(build_batch(records)), bytes(transactional)


def refused_by_both(case: tuple[str, str], apache: Any, ottla: Any) -> bool:
    """A follower that is no broker (docs/differences.md): Kafka refuses its partitions, Ottla the whole request."""
    return case[1] == "Fetch as a follower" and "error_code=6" in str(apache) and "error_code=31" in str(ottla)


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_every_case_has_the_same_outcome_at_both(servers: list[ApacheKafka]) -> None:
    apache, ottla = (outcomes(server) for server in servers)
    assert len(apache) >= 500
    differences = {
        case: (apache[case], ottla[case])
        for case in apache
        if apache[case] != ottla[case] and not refused_by_both(case, apache[case], ottla[case])
    }
    kinds = sorted({probe for _, probe in differences})
    shown = f"{kinds}\n" + "\n".join(
        f"{case}\n  kafka {pair[0]}\n  ottla {pair[1]}" for case, pair in list(differences.items())[:12]
    )
    assert not differences, f"{len(differences)} of {len(apache)} cases differ:\n{shown}"


def share_facts(session: Session, topic_id: Any) -> list[Any]:
    """A share session with the topic, and an acknowledgement in it: the codes of both."""
    member = "bWF0cml4LW1lbWJlci1pZA"
    topic = share_fetch_request.FetchTopic(topic_id, [share_fetch_request.FetchPartition(0, 1 << 20)])
    open_session = ShareFetchRequest(GROUP, member, 0, max_records=1, batch_size=1, topics=[topic])
    found = facts(session.ask(open_session, 1))
    batch = share_acknowledge_request.AcknowledgementBatch(0, 0, [1])
    partition = share_acknowledge_request.AcknowledgePartition(0, [batch])
    topics = [share_acknowledge_request.AcknowledgeTopic(topic_id, [partition])]
    found += facts(session.ask(ShareAcknowledgeRequest(GROUP, member, 1, topics=topics), 1))
    session.ask(ShareFetchRequest(GROUP, member, -1, max_records=1, batch_size=1), 1)
    return found


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_a_share_group_reads_and_acknowledges_only_topics_that_it_may_read(servers: list[ApacheKafka]) -> None:
    """Group READ lets the session be; each topic in it needs READ of its own, for the fetch and for the answer."""
    users = {case: _user(number) for number, case in enumerate(grants())}
    found: list[dict[str, Any]] = []
    for server in servers:
        with Session(server.port) as admin:
            topics = admin.ask(MetadataRequest(None), 12).topics
        topic_id = next(topic.topic_id for topic in topics if topic.name == TOPIC)
        seen = {}
        for case in ("nothing", "TOPIC READ", "GROUP READ", "GROUP ALL", "consumer", "everything"):
            with Session(server.sasl_port).plain(users[case], PASSWORD) as session:  # type: ignore[attr-defined]
                seen[case] = share_facts(session, topic_id)
        found.append(seen)
    apache, ours = found
    for case in ("nothing", "TOPIC READ", "GROUP READ", "GROUP ALL"):
        assert apache[case] == ours[case], case
    for case in ("GROUP READ", "GROUP ALL"):
        assert str(ours[case]).count("error_code=29") == 2, ours[case]
    for case in ("consumer", "everything"):
        # Of a group without members: nothing was given out (121), or by now it is known that there is no state (3).
        for seen in (apache[case], ours[case]):
            rows = [
                fact for fact in seen if fact[0] == "ShareAcknowledgeResponse" and fact[2:4] == ("PartitionData", "0")
            ]
            assert {fact[-1] for fact in rows} - {"LeaderIdAndEpoch"} < {"error_code=121", "error_code=3"}, seen


STRICTER = {  # than Apache Kafka
    "mandatory extension",  # RFC 5802: one that is not known ends the exchange; Kafka passes over it
    "final: an empty proof",  # refused by an answer; Kafka breaks on it and closes
    "final: a short proof",
}


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_wrong_logins_are_told_the_same_at_both(servers: list[ApacheKafka]) -> None:
    """Who is unknown cannot be told from who is wrong, and no step can be left out, repeated or borrowed."""
    for server in servers:
        until(lambda server=server: logins.scram_is_known(server.sasl_port))
    apache, ours = (logins.outcomes(server.sasl_port) for server in servers)  # type: ignore[attr-defined]
    assert {name: (apache[name], ours[name]) for name in apache if apache[name] != ours[name]}.keys() == STRICTER
    assert ours["right"] == (0, "")
    assert ours["wrong password"] == ours["unknown user"] == ours["final: a made-up nonce"]
    found = []
    for server in servers:
        with Session(server.port) as admin:
            found.append(logins.upsertions(admin))
    assert found[0] == found[1]
    assert all(code for code, _ in found[1]), "none is taken"


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_a_login_counts_on_its_listener_alone(servers: list[ApacheKafka]) -> None:
    """Users and mechanisms of one listener are nothing on another; a client is led back to the listener it came by."""
    for server in servers:
        ports: dict[str, int] = {"here": server.sasl_port, "there": server.other_port}  # type: ignore[attr-defined]
        told = {
            (place, name, password): logins.plain_code(port, name, password)
            for place, port in ports.items()
            for name, password in (("case0", PASSWORD), ("case0", "of-other"), ("elsewhere", PASSWORD))
        }
        let_in = {("here", "case0", PASSWORD), ("there", "case0", "of-other"), ("there", "elsewhere", PASSWORD)}
        assert {case for case, code in told.items() if code == 0} == let_in
        with Session(ports["there"]) as session:
            assert logins.handshake_facts(session, "SCRAM-SHA-256") == (33, ["PLAIN"])
        for port, name, password in ((ports["here"], "case0", PASSWORD), (ports["there"], "elsewhere", PASSWORD)):
            with Session(port).plain(name, password) as session:
                assert [broker.port for broker in session.ask(MetadataRequest([]), 9).brokers] == [port]
                assert session.handshake("PLAIN").error_code == 34
                # What is said of the inside is for whoever has the right to it, by whatever listener it comes.
                assert session.ask(MetadataRequest(None), 12).topics == []


def application(session: Session, epoch: int) -> Any:
    """A heartbeat of an application that reads the topic and needs a changelog."""
    changelog = TopicInfo(f"{APPLICATION}-log", topic_configs=[KeyValue("cleanup.policy", "compact")])
    subtopology = Subtopology("0", [TOPIC], state_changelog_topics=[changelog])
    request = StreamsGroupHeartbeatRequest(APPLICATION, "m", epoch, process_id="p", client_tags=[])
    if not epoch:
        request.topology, request.rebalance_timeout_ms = Topology(0, [subtopology]), 1000
        request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
    answer = session.ask(request, 0)
    return answer.error_code, [(status.status_code, status.status_detail) for status in answer.status]


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_internal_topics_need_a_right_to_create_them(servers: list[ApacheKafka]) -> None:
    """Who may not create topics is told so by a status; who may gets the topic, with its settings. The same at both."""
    found = []
    for server in servers:
        users = {case: _user(number) for number, case in enumerate(grants())}
        with (
            Session(server.sasl_port).plain(users["streams"], PASSWORD) as poor,  # type: ignore[attr-defined]
            Session(server.sasl_port).plain(users["streams that creates"], PASSWORD) as rich,  # type: ignore[attr-defined]
            Session(server.port) as admin,
        ):
            refused = [application(poor, 0), application(poor, 1)]
            assert "Unauthorized to CREATE on topics matrix-app-log." in str(refused)
            assert not has_changelog(admin)
            refused.append(application(rich, 1))
            until(lambda admin=admin: has_changelog(admin))
            found.append(refused)
    assert found[0] == found[1]


def has_changelog(admin: Session) -> bool:
    return f"{APPLICATION}-log" in [topic.name for topic in admin.ask(MetadataRequest(None), 12).topics]
