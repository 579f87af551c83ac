"""Roles on some topics only: every route of the console is walked, and none shows or changes what others have."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from starlette.routing import Route

from ottla.console import access
from ottla.console.cluster.group_detail import GroupDetail, MemberRow, visible_detail
from ottla.console.messages import search
from ottla.console.messages.browse import Place
from ottla.console.messages.decode import Decoder
from ottla.console.messages.filters import Filter
from ottla.console.registry_client import ConsoleRegistry
from ottla.security.grants import CONSUMER_GROUP, SUBJECT, TOPIC, Grant, Rights, granted
from ottla.testing import Broker
from tests.console.secured_cluster import Person, users_of
from tests.console.site import PATIENT, ServedConsole
from tests.registry.instances import RegistryThread, call
from tests.support.ports import free_ports

pytestmark = pytest.mark.timeout(240)
RULES = """
[[grant]]
users = ["carol"]
role = "admin"

[[grant]]
users = ["bob"]
role = "admin"
topics = ["orders.*"]
subjects = ["orders.*"]
consumer_groups = ["orders-*"]

[[grant]]
users = ["alice"]
role = "viewer"
topics = ["orders.*"]

[[grant]]
users = ["alice"]
role = "operator"
topics = ["orders.drafts"]
"""
MARK = "gross-pay-of-everybody"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One that tells who reads and writes what: lineage must leave out what is hidden."""
    with Broker(properties={"ottla.http.listener": f"127.0.0.1:{free_ports(1)[0]}"}) as running:
        yield running


@pytest.fixture(scope="module")
def registry(broker: Broker) -> Iterator[RegistryThread]:
    with RegistryThread(broker.bootstrap_servers, topic="_schemas_partial") as running:
        for subject, field in (("salaries.all-value", "grossPay"), ("orders.new-value", "cents")):
            schema = {"type": "record", "name": "R", "fields": [{"name": field, "type": "long"}]}
            status, _ = call(running.url, "POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})
            assert status == 200
        yield running


@pytest.fixture(scope="module")
def pipelines() -> Iterator[str]:
    """What `ottla pipeline serve` would tell of a pipeline that reads what is hidden."""

    class Told(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = [
                {
                    "name": "payroll",
                    "inputs": ["topic:salaries.all"],
                    "outputs": ["topic:orders.new"],
                    "state": "running",
                }
            ]
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Told)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def console(
    broker: Broker, registry: RegistryThread, pipelines: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedConsole]:
    client = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "web-shop"}
    producer = Producer({**client, "linger.ms": 0})
    for topic in ("salaries.all", "orders.new", "orders.drafts"):
        producer.produce(topic, MARK if topic == "salaries.all" else "an order")
    assert producer.flush(60) == 0
    for group in ("payroll", "orders-billing"):  # the second reads both
        reader = Consumer({**client, "group.id": group})
        reader.commit(
            offsets=[TopicPartition("salaries.all", 0, 1), TopicPartition("orders.new", 0, 1)], asynchronous=False
        )
        reader.close()
    folder: Path = tmp_path_factory.mktemp("partial")
    (folder / "access.toml").write_text(RULES)
    settings = {
        "users_file": users_of(folder), "access_rules": str(folder / "access.toml"), "registry_url": registry.url,
        "pipelines_url": pipelines,
    }  # fmt: skip
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, client=PATIENT, **settings) as served:
        yield served


FILLS = {
    "topic": "salaries.all",
    "group": "payroll",
    "subject": "salaries.all-value",
    "broker": "1",
    "action": "cancel",
}
FORM = {
    "name": "salaries.more", "topic": "salaries.all", "target": "salaries.all", "confirm": "salaries.all", "value": "x",
    "subject": "salaries.all-value", "schema": '"int"', "type": "AVRO", "query": 'select * from "salaries.all"',
    "count": "5", "partitions": "1", "replication_factor": "1", "to": "earliest", "execute": "yes", "register": "yes",
    "level": "NONE", "key_encoding": "text", "value_encoding": "text", "user": "x", "mechanism": "1", "password": "longer-than-8",
    "resource": "2", "pattern": "3", "principal": "User:x", "operation": "3", "permission": "3", "limit": "5",
}  # fmt: skip


def routes(console: ServedConsole, fills: Mapping[str, str] = FILLS) -> list[tuple[str, str]]:
    found = []
    for route in console.app.routes:
        if not isinstance(route, Route):
            continue
        path = route.path.replace(":path}", "}")
        for name in route.param_convertors:
            path = path.replace("{" + name + "}", quote(fills.get(name, "unknown"), safe=""))
        found += [(method, path) for method in sorted(route.methods or ()) if method != "HEAD"]
    return found


def everything(console: ServedConsole) -> str:
    """All that an administrator sees of what others have."""
    carol = Person(console, "carol")
    pages = ("/topics/salaries.all", "/topics/salaries.all/settings", "/groups/payroll", "/schemas/salaries.all-value")
    return "".join(str(carol.get(page).status_code) for page in pages)


@pytest.mark.parametrize("name", ["bob", "alice"])
def test_no_route_shows_or_changes_what_others_have(console: ServedConsole, name: str) -> None:
    person, before = Person(console, name), everything(console)
    walked = routes(console)
    assert len(walked) > 40
    for method, path in walked:
        if path.startswith(("/login", "/logout", "/oidc")):
            continue
        if method == "GET":
            answer = person.get(path, internal="yes", version="1", value_format="text")
        else:
            answer = person.post(path, **FORM)
        said = answer.text
        assert answer.status_code < 500, (method, path, said[-500:])
        assert MARK not in said, (method, path)
        assert "grossPay" not in said, (method, path)
        if not any(word in path for word in ("salaries", "payroll")) and method == "GET":
            for word in ("salaries", "payroll"):
                assert word not in said, (method, path, said[-3000:])
        if method == "POST" and path != "/sql":
            assert answer.status_code in (403, 404), (method, path, answer.status_code)
    assert everything(console) == before == "200200200200"
    page = person.post("/sql", query='select * from "salaries.all"').text
    assert "there is no topic &#39;salaries.all&#39;" in page
    page = person.post("/sql", query="select * from salaried").text
    assert "salaries" not in page


def test_lists_and_lineage_have_ones_own(console: ServedConsole) -> None:
    bob, alice = Person(console, "bob"), Person(console, "alice")
    assert ">orders.new</a>" in bob.get("/topics").text
    group = bob.get("/groups/orders-billing").text
    assert "orders.new" in group
    assert "salaries" not in group
    assert "orders-billing" in bob.get("/metrics").text
    assert "orders.new-value" in bob.get("/schemas").text
    lineage = json.dumps(bob.get("/lineage.json").json())
    assert "orders.new" in lineage
    assert "web-shop" in lineage
    assert "salaries" not in lineage
    assert "salaries" in json.dumps(Person(console, "carol").get("/lineage.json").json())
    assert alice.get("/groups/orders-billing").status_code == 404  # her grant names no groups
    assert "orders.new-value" not in alice.get("/schemas").text
    for page in ("/brokers", "/settings", "/access", "/quotas", "/transactions", "/pipelines"):
        assert bob.get(page).status_code == 403
        assert f'href="{page}"' not in bob.get("/topics").text
    assert "an order" in bob.get("/topics/orders.new/messages").text
    assert "an order" in bob.post("/sql", query='select value from "orders.new"').text


def test_the_role_is_that_of_the_topic(console: ServedConsole) -> None:
    alice, bob = Person(console, "alice"), Person(console, "bob")
    fields = {"key": "", "value": "hers", "key_encoding": "text", "value_encoding": "text"}
    assert alice.post("/topics/orders.new/produce", **fields).status_code == 403
    assert "Written to partition" in alice.post("/topics/orders.drafts/produce", **fields).text
    assert alice.post("/topics/orders.new/replay", target="orders.drafts", limit="1", begin="oldest").status_code == 200
    assert alice.post("/topics/orders.drafts/replay", target="orders.new", limit="1", begin="oldest").status_code == 403
    assert alice.post("/topics/orders.drafts/delete", confirm="orders.drafts").status_code == 403
    made = bob.post("/topics", name="orders.made", partitions="1", replication_factor="1")
    assert "Topic orders.made was made." in made.text
    assert bob.post("/topics", name="other", partitions="1", replication_factor="1").status_code == 403
    assert "is deleted" in bob.post("/topics/orders.made/delete", confirm="orders.made").text


def test_a_search_is_its_owners(console: ServedConsole) -> None:
    bob, alice = Person(console, "bob"), Person(console, "alice")
    found = str(bob.post("/topics/orders.new/search", value="order").url).partition("?")[0]
    assert bob.get(found).status_code == 200
    for path in (found, found + "/events"):
        assert alice.get(path).status_code == 404
    assert alice.post(found + "/cancel").status_code == 404


def test_a_paused_search_does_not_hold_its_place_for_ever(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_MAX_PAUSE_S", 0.0)
    wanted = search.Search("orders.new", Place(begin="oldest"), Filter(value="x"), Decoder(ConsoleRegistry("")))
    wanted.pause()
    wanted.run({"bootstrap.servers": broker.bootstrap_servers})
    assert (wanted.state, wanted.records_read) == ("cancelled", 0)


def test_whom_no_grant_names_is_not_let_in(console: ServedConsole) -> None:
    """eve is in the users file, as an administrator, and has no grant."""
    with httpx.Client(base_url=console.url, timeout=60) as eve:
        assert eve.post("/login", data={"name": "eve", "password": "geheim-1"}).status_code == 401
        assert eve.get("/topics", auth=("eve", "geheim-1")).status_code == 401
        assert eve.get("/topics", auth=("bob", "geheim-1")).status_code == 200
        assert "salaries" not in eve.get("/topics", auth=("bob", "geheim-1")).text


def test_what_a_version_names_is_a_number(console: ServedConsole) -> None:
    """It becomes a part of the registry's address, which is asked with the console's own login."""
    bob = Person(console, "bob")
    where = "/schemas/orders.new-value"
    assert bob.get(where, version="latest", against="1").status_code == 200
    for word in ("1/schema", "1?deleted=true", "../../salaries.all-value/versions/1", "1/../../../../subjects", "1 "):
        for name in ("version", "against"):
            answer = bob.get(where, **{name: word})
            assert answer.status_code == (200 if word == "1 " else 400), (name, word, answer.text[-500:])


def test_a_quarantine_topic_needs_the_role_there(console: ServedConsole) -> None:
    """Bad records go there in the name of the node: choosing the topic is a way to write to it."""
    alice, bob = Person(console, "alice"), Person(console, "bob")
    for person, topic, target in ((bob, "orders.new", "salaries.all"), (alice, "orders.drafts", "orders.new")):
        fields = {"name": "ottla.schema.quarantine.topic", "value": target}
        refused = person.post(f"/topics/{topic}/settings", **fields)
        assert refused.status_code == 403
        assert f"needs the role operator on the topic {target}" in refused.text
        assert target not in Person(console, "carol").get(f"/topics/{topic}/settings").text
    fields = {"name": "ottla.schema.quarantine.topic", "value": "orders.drafts"}
    assert "is now orders.drafts" in bob.post("/topics/orders.new/settings", **fields).text
    assert "back to its default" in bob.post("/topics/orders.new/settings", **fields, reset="yes").text


def test_a_stream_ends_when_its_person_is_taken_out(console: ServedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a session and by credentials in the request; the session itself lives on."""
    monkeypatch.setattr(access, "_ASK_AGAIN_S", 0.0)
    file = Path(console.site.settings.users_file)
    users = file.read_text()
    try:
        for shown in (None, ("bob", "geheim-1")):
            file.write_text(users)
            http = Person(console, "bob").http if shown is None else httpx.Client(base_url=console.url, timeout=60)
            with http.stream("GET", "/topics/orders.new/tail", auth=shown or httpx.USE_CLIENT_DEFAULT) as stream:
                for text in stream.iter_text():  # ends by itself, or the test runs out of time
                    if '"reading"' in text:
                        file.write_text("".join(line for line in users.splitlines(True) if not line.startswith("bob:")))
    finally:
        file.write_text(users)
    monkeypatch.setattr(type(console.site.access), "still_in", _nobody)
    assert "an order" not in Person(console, "bob").get("/topics/orders.new/export").text


async def _nobody(*_: object) -> bool:
    return False


def test_a_form_belongs_to_who_loaded_it(console: ServedConsole) -> None:
    """A browser sends basic credentials by itself, so that the token of somebody else's page must not fit."""

    def post(name: str, token: str) -> int:
        fields = {"csrf": token, "name": "x", "partitions": "0"}
        return httpx.post(console.url + "/topics", auth=(name, "geheim-1"), data=fields, timeout=60).status_code

    def token(name: str) -> str:
        page = httpx.get(console.url + "/", auth=(name, "geheim-1"), timeout=60).text
        return page.partition('name="csrf" value="')[2].partition('"')[0]

    assert post("carol", token("alice")) == 403
    assert post("carol", token("carol")) == 400  # no topic has 0 partitions


def test_members_show_ones_own_topics_only() -> None:
    owned = frozenset({("orders.new", 0), ("salaries.all", 1)})
    words = ("orders.new: 0", "salaries.all: 1", "task 0_1: 2")
    member = MemberRow(id="m", client_id="c", host="h", assignment=words, owned=owned)
    detail = GroupDetail(state="Stable", assignor="range", epoch=1, members=(member,))
    (shown,) = visible_detail(detail, {"orders.new"}).members
    assert shown.assignment == ("orders.new: 0", "task 0_1: 2")
    assert shown.owned == {("orders.new", 0)}


def test_rights_are_the_sum_of_grants() -> None:
    rights = Rights((
        Grant(role="viewer", users=("u",)),
        Grant(role="admin", users=("u",), resources={TOPIC: ("a.*", "b")}),
    ))  # fmt: skip
    assert not rights.limited
    assert rights.may("admin", TOPIC, "a.x")
    assert rights.may("admin", TOPIC, "b")
    assert not rights.may("admin", TOPIC, "bb")
    assert not rights.may("admin")
    assert not rights.may("admin", SUBJECT, "a.x")
    assert rights.may("viewer")
    assert rights.sees(CONSUMER_GROUP, "any")
    grants = [Grant(role="operator", groups=("team-*",), resources={TOPIC: ()})]
    found = granted(grants, "x", ["team-1"])
    assert found is not None
    assert found.rights.limited
    assert not found.rights.sees(TOPIC, "a")
    assert granted(grants, "x", ["other"]) is None
