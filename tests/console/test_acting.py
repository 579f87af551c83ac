"""The console acts on the cluster as the person who is logged in: the cluster's ACLs hold, its audit log has the name."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.cluster import Cluster
from ottla.client.configs import ConfigResourceType, describe_configs
from ottla.client.settings import client_settings
from ottla.console.cluster import acting
from ottla.console.cluster.access import AclRow, create_acl, delete_acl, list_acls, list_users
from ottla.console.errors import ConsoleError
from ottla.model.config_source import ConfigSource
from ottla.security.web import WebAccessError
from tests.console.secured_cluster import (
    ALLOW,
    ALTER_CONFIGS,
    CREATE,
    CREATE_TOKENS,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PEOPLE,
    READ,
    TOPIC,
    USER,
    WRITE,
    Person,
    SecuredCluster,
    acting_console,
    apache_cluster,
    ottla_cluster,
    users_of,
)
from tests.console.site import ServedConsole
from tests.console.test_partial_rights import FILLS, FORM, routes
from tests.security.test_audit import events
from tests.support.kafka_jars import Unavailable

pytestmark = pytest.mark.timeout(240)
SECRET = "nobody-but-alice"


@pytest.fixture(scope="module", params=["ottla", pytest.param("apache", marks=pytest.mark.interop)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("acting")
    try:
        opened = (
            apache_cluster(folder / "kafka")
            if request.param == "apache"
            else ottla_cluster(**{"ottla.audit.enable": "true", "ottla.http.listener": "127.0.0.1:0"})
        )
        with opened as running:
            prepare(running)
            yield running
    except Unavailable as reason:
        pytest.skip(str(reason))


def prepare(cluster: SecuredCluster) -> None:
    cluster.let_the_console_act()
    cluster.make("orders", "salaries")
    cluster.write("orders", json.dumps({"n": 1, "note": SECRET}))
    cluster.write("salaries", json.dumps({"n": 2, "note": SECRET}))
    cluster.allow("alice", TOPIC, "orders", READ, WRITE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
    cluster.allow("alice", GROUP, "alices", READ)
    cluster.allow("bob", TOPIC, "orders", DESCRIBE, DESCRIBE_CONFIGS)
    cluster.allow("carol", TOPIC, "made", CREATE, DESCRIBE)
    # The console's own principal has no right on any topic: what people see comes by their own.


@pytest.fixture(scope="module")
def console(cluster: SecuredCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    folder = tmp_path_factory.mktemp("console")
    users = users_of(tmp_path_factory.mktemp("users"), *PEOPLE, "dora", "console", "ANONYMOUS")
    with acting_console(cluster, folder, users_file=users) as served:
        yield served


def test_everybody_sees_what_the_cluster_shows_them(console: ServedConsole) -> None:
    alice, bob, carol = (Person(console, name) for name in ("alice", "bob", "carol"))
    for person in (alice, bob):
        page = person.get("/topics").text
        assert ">orders</a>" in page
        assert "salaries" not in page
    assert ">orders</a>" not in carol.get("/topics").text
    assert alice.get("/topics/salaries").status_code == 404
    assert SECRET in alice.get("/topics/orders/messages").text


def test_no_messages_without_read(console: ServedConsole) -> None:
    bob = Person(console, "bob")
    refused = bob.get("/topics/orders/messages")
    assert refused.status_code == 403
    assert SECRET not in refused.text
    assert "you may not read orders" in refused.text
    found = bob.post("/topics/orders/search", value=SECRET)
    search = str(found.url).partition("?")[0]
    with bob.http.stream("GET", search + "/events") as stream:
        said = "".join(stream.iter_text())
    assert "you may not read orders" in said
    assert SECRET not in said
    with bob.http.stream("GET", "/topics/orders/tail") as stream:
        said = "".join(stream.iter_text())
    assert "you may not read orders" in said
    answer = bob.post("/sql", query="select * from orders")
    assert SECRET not in answer.text
    assert "authoriz" in answer.text.lower()
    refused = bob.get("/topics/orders/export")
    assert refused.status_code == 403
    assert SECRET not in refused.text


def test_nothing_is_changed_without_the_right(console: ServedConsole) -> None:
    bob, alice = Person(console, "bob"), Person(console, "alice")
    refused = bob.post("/topics/orders/settings", name="retention.ms", value="123456789")
    assert refused.status_code == 403
    assert "123456789" not in alice.get("/topics/orders/settings").text
    assert alice.post("/topics/orders/settings", name="retention.ms", value="123456789").status_code == 200
    assert "123456789" in alice.get("/topics/orders/settings").text
    refused = bob.post("/topics/orders/produce", value="x", key="", value_encoding="text", key_encoding="text")
    assert refused.status_code == 403
    assert bob.post("/topics", name="bobs", partitions="1", replication_factor="1").status_code == 403
    assert bob.post("/topics/orders/delete", confirm="orders").status_code == 403


def test_reading_and_writing_as_oneself(console: ServedConsole) -> None:
    alice = Person(console, "alice")
    for n in range(3):
        written = alice.post(
            "/topics/orders/produce", value=f'{{"mine": {n}}}', key=f"k{n}", headers="trace: abc", partition="",
            value_encoding="text", key_encoding="text",
        )  # fmt: skip
        assert re.search(r"Written to partition \d at offset \d+\.", written.text), written.text
    page = alice.get("/topics/orders/messages", begin="oldest").text
    assert page.count("&#34;mine&#34;") >= 3
    assert "Header trace" in page
    assert "CreateTime" in page
    lines = alice.get("/topics/orders/export", format="jsonl", value="mine").text.splitlines()
    assert sorted(json.loads(json.loads(line)["value"])["mine"] for line in lines) == [0, 1, 2]
    assert "&#34;mine&#34;" not in alice.get("/topics/orders/messages", begin="time", at="2999-01-01").text
    found = alice.post("/topics/orders/search", path="$.mine == 2")
    with alice.http.stream("GET", str(found.url).partition("?")[0] + "/events") as stream:
        said = "".join(stream.iter_text())
    assert '"live-matched": "1"' in said
    assert "done" in said
    answer = alice.post("/sql", query="select count(*) as n from orders where json->>'mine' is not null")
    assert "<td>3</td>" in answer.text or ">3<" in answer.text
    someone = Person(console, "bob")
    assert someone.get(str(found.url)).status_code == 404  # a search is its owner's


def test_a_replay_writes_as_oneself(console: ServedConsole, cluster: SecuredCluster) -> None:
    cluster.make("copies")
    cluster.allow("alice", TOPIC, "copies", READ, WRITE)
    alice = Person(console, "alice")
    copied = alice.post("/topics/orders/replay", target="copies", limit="1000", begin="oldest", keep_time="yes")
    assert "messages of orders were copied here" in copied.text
    assert SECRET in alice.get("/topics/copies/messages", begin="oldest").text


def test_a_right_that_was_taken_away_is_gone_at_once(console: ServedConsole, cluster: SecuredCluster) -> None:
    cluster.make("lent")
    cluster.write("lent", "first")
    cluster.allow("alice", TOPIC, "lent", READ)
    alice = Person(console, "alice")
    assert "first" in alice.get("/topics/lent/messages").text
    with Cluster(client_settings(cluster.plain)) as admin:
        assert delete_acl(admin, AclRow(TOPIC, "lent", LITERAL, "User:alice", "*", READ, ALLOW)) == 1
    deadline = time.monotonic() + 60
    while alice.get("/topics/lent/messages").status_code == 200:
        assert time.monotonic() < deadline
    assert "first" not in alice.get("/topics/lent/messages").text


def test_whom_the_cluster_gives_no_token_for_gets_no_page(console: ServedConsole, cluster: SecuredCluster) -> None:
    with Cluster(client_settings(cluster.plain)) as admin:
        create_acl(admin, AclRow(USER, "User:eve", LITERAL, "User:console", "*", CREATE_TOKENS, DENY))
    eve = Person(console, "eve")
    answer = eve.get("/topics")
    assert answer.status_code == 403
    assert "no delegation token for User:eve" in answer.text
    assert "Log in" in eve.post("/logout").text


@pytest.mark.parametrize("name", ["console", "ANONYMOUS"])
def test_nobody_is_the_console_or_without_a_name(console: ServedConsole, name: str) -> None:
    """A principal gets a token for itself whatever the ACLs say, and ANONYMOUS is a super user here."""
    person = Person(console, name)
    for _ in range(2):
        answer = person.get("/topics")
        assert answer.status_code == 403
        assert f"the console does not act as User:{name}" in answer.text
    assert name not in console.site.acting_users._users


def test_no_route_does_more_than_the_cluster_allows(console: ServedConsole, cluster: SecuredCluster) -> None:
    """Every route as a person who is an administrator on the console and has no right on the cluster."""
    dora, walked = Person(console, "dora"), routes(console, {**FILLS, "topic": "salaries", "group": "alices"})
    form = {name: value.replace("salaries.all", "salaries") for name, value in FORM.items()}
    for method, path in walked:
        if path.startswith(("/login", "/logout", "/oidc", "/schemas", "/pipelines")):
            continue
        answer = dora.get(path, internal="yes") if method == "GET" else dora.post(path, **form)
        where, said = (method, path, answer.status_code), answer.text
        assert answer.status_code < 500 or (answer.status_code == 503 and "cluster does not answer" in said), where
        assert SECRET not in said, where
        if "salaries" not in path and method == "GET":
            assert "salaries" not in said, where
            assert "orders" not in said, where
        if method == "POST" and path != "/sql":
            assert answer.status_code in (400, 403, 404), (where, said[-800:])
    with Cluster(client_settings(cluster.plain)) as admin:
        found = describe_configs(admin, ConfigResourceType.TOPIC, ["salaries"])
        assert all(config.config_source != ConfigSource.DYNAMIC_TOPIC_CONFIG for config in found["salaries"])
        assert not any(acl.principal == "User:x" for acl in list_acls(admin))
        assert "x" not in list_users(admin)


def test_the_audit_log_names_the_person(console: ServedConsole, cluster: SecuredCluster) -> None:
    if not cluster.ottla:
        pytest.skip("the audit log is Ottla's")
    alice = Person(console, "alice")
    assert alice.post("/topics/orders/settings", name="retention.ms", value="987654321").status_code == 200
    deadline = time.monotonic() + 60
    while True:
        found = events(cluster.plain, 100_000, seconds=2)
        changes = [each for each in found if each.get("api") == "IncrementalAlterConfigs"]
        if any(each["allowed"] for each in changes) or time.monotonic() > deadline:
            break
    assert {each["principal"] for each in changes} <= {"User:alice", "User:bob", "User:dora"}
    assert any(each["principal"] == "User:alice" and each["allowed"] for each in changes)
    tokens = [each for each in found if each.get("api") == "CreateDelegationToken"]
    assert {each["principal"] for each in tokens} == {"User:console"}
    own = {
        each["api"] for each in found if each.get("principal") == "User:console" and each["allowed"] and "api" in each
    }
    assert own == {"CreateDelegationToken"}, own


def test_people_are_bounded(console: ServedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "MAX_ACTING", 2)
    people = [Person(console, name) for name in ("alice", "bob", "carol")]
    for person in people * 2:
        assert person.get("/topics").status_code == 200
    users = console.site.acting_users
    assert len(users._users) == 2
    monkeypatch.setattr(acting, "IDLE_S", -1.0)
    assert people[0].get("/topics").status_code == 200
    assert len(users._users) == 1
    assert users._making == {}


def test_a_token_is_replaced_before_it_ends(console: ServedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = Person(console, "alice")
    assert alice.get("/topics").status_code == 200
    before = console.site.acting_users._users["alice"]
    assert alice.get("/topics").status_code == 200
    assert console.site.acting_users._users["alice"] is before
    monkeypatch.setattr(acting, "_RENEW_AFTER_S", -1.0)
    assert alice.get("/topics").status_code == 200
    assert console.site.acting_users._users["alice"] is not before


def test_acting_needs_a_login_on_both_sides(tmp_path: Path) -> None:
    rules = tmp_path / "access.toml"
    rules.write_text("act_as_user = true\n")
    with pytest.raises(ConsoleError, match="people who log in"):
        ServedConsole(bootstrap_servers="127.0.0.1:1", access_rules=str(rules))
    users = tmp_path / "users"
    users.write_text("a:b\n")
    with pytest.raises(ConsoleError, match=r"security\.protocol=SASL_SSL"):
        ServedConsole(bootstrap_servers="127.0.0.1:1", access_rules=str(rules), users_file=str(users))
    rules.write_text("act_as_usr = true\n")
    with pytest.raises(WebAccessError, match="do you mean act_as_user"):
        ServedConsole(bootstrap_servers="127.0.0.1:1", access_rules=str(rules))
