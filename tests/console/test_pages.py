"""Every page and every action, over HTTP, against a live Ottla and against Apache Kafka."""

from __future__ import annotations

import io
import json
import re
import socket
import time

import httpx
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.cluster import Cluster
from ottla.client.configs import SET, ConfigResourceType, alter_configs
from ottla.client.settings import client_settings
from ottla.client.share_consumer import ACCEPT, ShareConsumer
from ottla.console.messages.decode import FORMATS
from tests.console.site import ServedConsole
from tests.support.caught_up import catch_up

PAGES = (
    "/", "/topics", "/new-topic", "/groups", "/schemas", "/pipelines", "/sql", "/brokers", "/transactions", "/access",
    "/quotas", "/settings", "/lineage",
)  # fmt: skip
SCRIPT = "<script>alert(1)</script>"


def write(console: ServedConsole, topic: str, *messages: tuple[bytes | None, bytes | None]) -> None:
    producer = Producer({**console.site.client, "linger.ms": 0})
    for key, value in messages:
        producer.produce(topic, key=key, value=value, headers={"h": SCRIPT})
    assert producer.flush(30) == 0


def make_topic(console: ServedConsole, name: str, partitions: int = 2) -> None:
    answer = console.post("/topics", name=name, partitions=str(partitions), replication_factor="1")
    assert answer.status_code == 200, answer.text
    assert f"Topic {name} was made." in answer.text


def commit(console: ServedConsole, group: str, topic: str, count: int) -> None:
    reader = Consumer(
        {**console.site.client, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    try:
        reader.subscribe([topic])
        taken, deadline = 0, time.monotonic() + 40
        while taken < count and time.monotonic() < deadline:
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                taken += 1
        assert taken == count
        reader.commit(asynchronous=False)
    finally:
        reader.close()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows(any_console: ServedConsole, path: str) -> None:
    answer = any_console.get(path)
    assert answer.status_code == 200, answer.text
    assert "<h1>" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.timeout(180)
def test_a_topic_from_its_making_to_its_end(any_console: ServedConsole, new_name) -> None:
    console, topic = any_console, new_name("life")
    make_topic(console, topic)
    empty = console.get(f"/topics/{topic}/messages").text
    assert "No messages here" in empty
    written = console.post(
        f"/topics/{topic}/produce", key="k1", value='{"n": 1}', headers="trace: abc", partition="0",
        key_encoding="text", value_encoding="text",
    )  # fmt: skip
    assert "Written to partition 0 at offset 0." in written.text
    assert "&#34;n&#34;: 1" in written.text
    assert "Header trace" in written.text
    tombstone = console.post(f"/topics/{topic}/produce", key="k1", value_null="yes", partition="0", value="")
    assert "tombstone" in tombstone.text
    changed = console.post(f"/topics/{topic}/settings", name="retention.ms", value="3600000")
    assert "retention.ms is now 3600000." in changed.text
    assert "set on the topic" in changed.text
    back = console.post(f"/topics/{topic}/settings", name="retention.ms", value="", reset="yes")
    assert "retention.ms is back to its default." in back.text
    grown = console.post(f"/topics/{topic}/grow", count="3")
    assert f"{topic} has 3 partitions now." in grown.text
    refused = console.post(f"/topics/{topic}/delete", confirm="something else")
    assert refused.status_code == 400
    assert "Nothing was changed" in refused.text
    emptied = console.post(f"/topics/{topic}/truncate", confirm=topic)
    assert f"All records of {topic} are deleted." in emptied.text
    gone = console.post(f"/topics/{topic}/delete", confirm=topic)
    assert f"Topic {topic} is deleted." in gone.text
    assert console.get(f"/topics/{topic}").status_code == 404


@pytest.mark.timeout(180)
def test_a_share_group_its_members_and_its_offsets_set_anew(any_console: ServedConsole, new_name) -> None:
    console, topic, group = any_console, new_name("shared"), new_name("sharers")
    with Cluster(client_settings(console.site.settings.bootstrap_servers, {})) as cluster:
        change = ("share.auto.offset.reset", SET, "earliest")
        alter_configs(cluster, ConfigResourceType.GROUP, group, [change])
        catch_up(console.site.settings.bootstrap_servers)  # a share group begins by the setting that it finds
        make_topic(console, topic, 1)
        write(console, topic, *[(None, b"%d" % n) for n in range(10)])
        member, taken, deadline = ShareConsumer(cluster, group, topic), [], time.monotonic() + 60
        while len(taken) < 10 and time.monotonic() < deadline:
            records = member.poll(10)
            for record in records:
                member.acknowledge(record, ACCEPT)
            taken += records
        assert len(taken) == 10
        member.poll(1)  # acknowledgements go with the next fetch
        console.until(f"/groups/{group}", f"{topic}: 0")
        member.close()
    page = console.until(f"/groups/{group}", '<td class="num" data-value="0">0</td>')
    assert "share" in page
    fields = {"topic": topic, "to": "offset", "at": "4", "partition": ""}
    plan = console.post(f"/groups/{group}/reset", **fields)
    assert "Nothing has been changed yet." in plan.text
    assert '<td class="num">-4</td>' in plan.text
    done = console.post(f"/groups/{group}/reset", **fields, execute="yes")
    assert f"1 offsets of {group} were set." in done.text
    assert '<td class="num" data-value="6">6</td>' in console.until(f"/groups/{group}", "&amp;at=4")


@pytest.mark.timeout(180)
def test_a_group_its_lag_and_its_offsets_set_anew(any_console: ServedConsole, new_name) -> None:
    console, topic, group = any_console, new_name("read"), new_name("readers")
    make_topic(console, topic, 1)
    write(console, topic, *[(None, b"%d" % n) for n in range(10)])
    commit(console, group, topic, 10)
    console.until("/groups", group)
    write(console, topic, *[(None, b"more")] * 5)
    page = console.until(f"/groups/{group}", '<td class="num" data-value="5">5</td>')
    assert "records behind" in page
    assert group in console.until(f"/topics/{topic}/consumers", group)
    fields = {"topic": topic, "to": "offset", "at": "3", "partition": ""}
    plan = console.post(f"/groups/{group}/reset", **fields)
    assert "Nothing has been changed yet." in plan.text
    assert "+7" in plan.text
    done = console.post(f"/groups/{group}/reset", **fields, execute="yes")
    assert f"1 offsets of {group} were set." in done.text
    console.until(f"/groups/{group}", '<td class="num" data-value="12">12</td>')
    beyond = console.post(f"/groups/{group}/reset", **{**fields, "at": "99"})
    assert '<td class="num">15</td>' in beyond.text, "an offset beyond the end becomes the end"
    write(console, topic, *[(None, b"now")] * 5)
    latest = console.post(f"/groups/{group}/reset", **{**fields, "to": "latest"})
    assert '<td class="num">20</td>' in latest.text, "a plan is made from what is there now"
    deleted = console.post(f"/groups/{group}/delete", confirm=group)
    assert f"Group {group} is deleted." in deleted.text


def events(console: ServedConsole, path: str, enough) -> list[tuple[str, dict]]:
    """Server-sent events until `enough` says so."""
    seen: list[tuple[str, dict]] = []
    deadline = time.monotonic() + 40
    with console.http.stream("GET", path) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                seen.append((kind, json.loads(line[6:])))
                if enough(seen):
                    return seen
            assert time.monotonic() < deadline, seen[-3:]
    return seen


def found_offsets(seen: list[tuple[str, dict]]) -> list[str]:
    return [found for kind, data in seen if kind == "rows" for found in re.findall(r"Show message (\d+)", data["html"])]


@pytest.mark.timeout(180)
def test_a_search_finds_every_needle_and_says_how_far_it_is(any_console: ServedConsole, new_name) -> None:
    console, topic = any_console, new_name("hay")
    make_topic(console, topic, 3)
    write(console, topic, *[(b"%d" % n, b'{"n": %d, "needle": %d}' % (n, n % 100 == 0)) for n in range(3000)])
    started = console.post(f"/topics/{topic}/search", path="$.needle == 1", begin="oldest")
    place = started.url.path
    seen = events(
        console, f"{place}/events", lambda all_of_it: all_of_it[-1][0] == "status" and all_of_it[-1][1]["over"]
    )
    last = seen[-1][1]
    assert last["texts"]["live-state"] == "done"
    assert last["texts"]["live-matched"] == "30"
    assert last["texts"]["live-seen"] == "3,000"
    assert last["percent"] == 100.0
    assert len(found_offsets(seen)) == 30
    nothing = console.post(f"/topics/{topic}/search", begin="oldest")
    assert nothing.status_code == 400
    assert "Say what to look for" in nothing.text


def test_no_record_and_no_query_costs_a_page(console: ServedConsole, new_name) -> None:
    """Half of a surrogate pair is JSON and no UTF-8; a date of DuckDB may be none of Python's."""
    topic = new_name("odd")
    make_topic(console, topic, 1)
    write(console, topic, (None, b'{"a": "\\ud800"}'), (b'{"\\udfff": 1}', b'{"b": "\xed\xa0\x80"}'), (None, b"seen"))
    for form in FORMATS:
        page = console.get(f"/topics/{topic}/messages", value_format=form, key_format=form)
        assert page.status_code == 200, form
        assert "seen" in page.text or form in ("hex", "base64", "json", "registry", "int")
    for query in ("select date '200000-01-01'", "select timestamp '290000-01-01'", "select * from test_all_types()"):
        page = console.post("/sql", query=query)
        assert page.status_code == 200
        assert "a value that cannot be shown" in page.text


@pytest.mark.timeout(180)
def test_a_search_can_be_paused_resumed_and_cancelled(console: ServedConsole, new_name) -> None:
    topic = new_name("long")
    make_topic(console, topic, 1)
    write(console, topic, *[(None, b"x" * 100)] * 20_000)
    place = console.post(f"/topics/{topic}/search", value="nowhere", begin="oldest").url.path
    search = console.site.searches.get(place.rpartition("/")[2])
    assert console.http.post(f"{place}/pause", data={"csrf": console.csrf()}).status_code == 204
    assert console.http.post(f"{place}/resume", data={"csrf": console.csrf()}).status_code == 204
    deadline = time.monotonic() + 30
    while not search.over and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (search.state, search.records_read) == ("done", 20_000)
    again = console.post(f"/topics/{topic}/search", value="nowhere", begin="oldest").url.path
    second = console.site.searches.get(again.rpartition("/")[2])
    console.http.post(f"{again}/cancel", data={"csrf": console.csrf()})
    while not second.over and time.monotonic() < deadline:
        time.sleep(0.05)
    assert second.state in ("cancelled", "done")
    assert console.get(f"{place}x").status_code == 404


@pytest.mark.timeout(180)
def test_a_tail_shows_what_is_written_now(any_console: ServedConsole, new_name) -> None:
    console, topic = any_console, new_name("tail")
    make_topic(console, topic, 1)
    write(console, topic, (None, b"before"))
    wrote = []

    def enough(seen: list[tuple[str, dict]]) -> bool:
        reading = any(kind == "status" and data["texts"]["live-state"] == "reading" for kind, data in seen)
        if reading and not wrote:
            wrote.append(True)
            write(console, topic, *[(None, b"after %d" % n) for n in range(5)])
        return len(found_offsets(seen)) >= 5

    seen = events(console, f"/topics/{topic}/tail", enough)
    assert sorted(found_offsets(seen), key=int) == ["1", "2", "3", "4", "5"]
    assert not any("before" in data.get("html", "") for _, data in seen)


@pytest.mark.timeout(180)
def test_exports_hold_everything(any_console: ServedConsole, new_name) -> None:
    console, topic = any_console, new_name("export")
    make_topic(console, topic, 2)
    write(console, topic, *[(b"k%d" % n, None if n == 7 else b"v%d" % n) for n in range(50)])
    lines = console.get(f"/topics/{topic}/export", format="jsonl").text.splitlines()
    rows = [json.loads(line) for line in lines]
    assert {(row["key"], row["value"]) for row in rows} == {(f"k{n}", None if n == 7 else f"v{n}") for n in range(50)}
    table = pq.read_table(io.BytesIO(console.get(f"/topics/{topic}/export", format="parquet").content))
    assert table.num_rows == 50
    assert set(table["key"].to_pylist()) == {b"k%d" % n for n in range(50)}
    text = console.get(f"/topics/{topic}/export", format="csv", value="v1", limit="5").text
    assert len(text.splitlines()) == 6
    assert console.get(f"/topics/{topic}/export", format="exe").status_code == 400


@pytest.mark.timeout(180)
def test_a_replay_copies_byte_for_byte(any_console: ServedConsole, new_name) -> None:
    console, source, target = any_console, new_name("from"), new_name("to")
    make_topic(console, source, 1)
    make_topic(console, target, 1)
    write(console, source, (b"\x00\xff", b"\xfe" * 10), (b"k", None))
    answer = console.post(f"/topics/{source}/replay", target=target, begin="oldest", limit="10", keep_time="yes")
    assert f"2 messages of {source} were copied here." in answer.text
    exported = pq.read_table(io.BytesIO(console.get(f"/topics/{target}/export", format="parquet").content)).to_pylist()
    assert [(row["key"], row["value"]) for row in exported] == [(b"\x00\xff", b"\xfe" * 10), (b"k", None)]
    assert exported[0]["headers"] == [{"key": "h", "value": SCRIPT.encode()}]
    nowhere = console.post(f"/topics/{source}/replay", target="not-there", begin="oldest")
    assert nowhere.status_code == 404
    assert console.post(f"/topics/{source}/replay", target=source, begin="oldest").status_code == 400


@pytest.mark.timeout(180)
def test_sql_over_topics(any_console: ServedConsole, new_name) -> None:
    console, topic = any_console, new_name("sql")
    make_topic(console, topic, 2)
    write(console, topic, *[(b"k", b'{"user": %d}' % (n % 3)) for n in range(9)])
    query = f"""select json->>'user' as who, count(*) as n from "{topic}" group by 1 order by 1"""
    answer = console.post("/sql", query=query).text
    cells = re.findall(r'<td class="wide">(\w+)</td>', answer)
    assert cells == ["0", "3", "1", "3", "2", "3"]
    assert "not understood" in console.post("/sql", query="selekt").text
    assert "there is no topic" in console.post("/sql", query="select * from nowhere_at_all").text
    stolen = console.post("/sql", query="select * from read_text('/etc/passwd')").text
    assert "Permission Error" in stolen
    assert "root:" not in stolen


# Bad input


def test_html_in_a_topic_is_text(console: ServedConsole, new_name) -> None:
    topic = new_name("html")
    make_topic(console, topic, 1)
    write(console, topic, (SCRIPT.encode(), f'{{"a": "{SCRIPT}"}}'.encode()), (b"\x00\x01\xff", b"\xff" * 64))
    page = console.get(f"/topics/{topic}/messages").text
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page
    assert "ff ff" in page


@pytest.mark.timeout(180)
def test_a_message_of_ten_megabytes_is_cut(console: ServedConsole, new_name) -> None:
    topic = new_name("big")
    make_topic(console, topic, 1)
    answer = console.post(f"/topics/{topic}/settings", name="max.message.bytes", value=str(12_000_000))
    assert answer.status_code == 200
    producer = Producer({**console.site.client, "message.max.bytes": 12_000_000})
    producer.produce(topic, b"y" * 10_000_000)
    assert producer.flush(30) == 0
    page = console.get(f"/topics/{topic}/messages")
    assert len(page.text) < 300_000
    assert "10,000,000 characters in all" in page.text


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({}, {}, 403),
        ({}, {"csrf": "0" * 64}, 403),
        ({"Origin": "http://evil.example"}, None, 403),
    ],
)
def test_a_form_of_another_site_changes_nothing(console: ServedConsole, headers, fields, status) -> None:
    sent = {"csrf": console.csrf()} if fields is None else fields
    answer = console.http.post("/topics", data={"name": "forged", **sent}, headers=headers)
    assert answer.status_code == status
    assert console.get("/topics/forged").status_code == 404


def test_a_foreign_host_name_is_refused(broker) -> None:
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, allowed_hosts=("127.0.0.1",)) as console:
        assert console.get("/").status_code == 200
        assert console.http.get("/", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/%00"]
)
def test_path_tricks_find_nothing(console: ServedConsole, path: str) -> None:
    with httpx.Client() as client:
        answer = client.get(console.url + path)
    assert answer.status_code in (400, 404)
    assert "make_app" not in answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/topics/none-such", "There is no topic none-such"),
        ("/groups/none-such", "There is no group none-such"),
        ("/brokers/99", "There is no broker 99"),
        ("/brokers/x", "not a whole number"),
    ],
)
def test_what_is_not_there_is_said_in_words(console: ServedConsole, path: str, says: str) -> None:
    answer = console.get(path)
    assert answer.status_code in (400, 404), answer.text
    assert says.lower() in answer.text.lower()


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"begin": "offset", "at": "x"}, "not an offset"),
        ({"begin": "time", "at": "soon"}, "not a time"),
        ({"begin": "sideways"}, "none of newest"),
        ({"value_format": "klingon"}, "unknown format"),
        ({"partition": "x"}, "not a whole number"),
    ],
)
def test_bad_questions_get_an_answer(console: ServedConsole, new_name, params, says) -> None:
    topic = new_name("asked")
    make_topic(console, topic, 1)
    answer = console.get(f"/topics/{topic}/messages", **params)
    assert answer.status_code == 400
    assert says in answer.text


def test_a_body_that_is_too_large_is_refused(console: ServedConsole) -> None:
    host, port = console.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(f"POST /topics HTTP/1.1\r\nHost: {host}\r\nContent-Length: {1 << 30}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_read_only_means_read_only(broker) -> None:
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, read_only=True) as console:
        assert "read only" in console.get("/").text
        token = re.search(r'value="([0-9a-f]{64})"', console.get("/sql").text)
        assert token is not None
        answer = console.http.post("/topics", data={"name": "no", "csrf": token[1]})
        assert answer.status_code == 403


def test_roles(broker, tmp_path) -> None:
    from ottla.security.web import hash_password

    users = tmp_path / "users"
    users.write_text("".join(f"{role}:{role}:{hash_password('geheim-1')}\n" for role in ("viewer", "admin")))
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, users_file=str(users)) as console:
        assert console.get("/topics").url.path == "/login"
        assert console.http.post("/login", data={"name": "viewer", "password": "wrong"}).status_code == 401
        assert console.http.post("/login", data={"name": "viewer", "password": "geheim-1"}).url.path == "/"
        assert "viewer (viewer)" in console.get("/topics").text
        assert console.post("/topics", name="viewers-topic").status_code == 403
        console.http.post("/logout")
        assert console.get("/topics").url.path == "/login"
        console.http.post("/login", data={"name": "admin", "password": "geheim-1"})
        assert console.post("/topics", name="admins-topic", partitions="1").status_code == 200
        users.write_text(f"viewer:viewer:{hash_password('geheim-1')}\n")
        assert console.get("/topics").url.path == "/login", "who is taken out of the file is out"


def test_programs_come_with_a_token_or_a_password(broker, tmp_path) -> None:
    from joserfc import jwk, jwt

    from ottla.security.web import hash_password

    key = jwk.RSAKey.generate_key(2048, {"kid": "k"}, private=True)
    (tmp_path / "jwks").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    (tmp_path / "users").write_text(f"ana:viewer:{hash_password('geheim-1')}\n")

    def bearer(**claims: object) -> dict[str, str]:
        facts = {"sub": "robot", "aud": "console", "exp": int(time.time()) + 60, **claims}
        return {"Authorization": "Bearer " + jwt.encode({"alg": "RS256", "kid": "k"}, facts, key)}

    with ServedConsole(
        bootstrap_servers=broker.bootstrap_servers,
        users_file=str(tmp_path / "users"),
        jwks_url=f"file://{tmp_path}/jwks",
        token_audience=("console",),
    ) as console:
        http = console.http
        assert http.get("/topics", auth=("ana", "geheim-1")).status_code == 200
        assert http.get("/topics", auth=("ana", "geheim-2")).status_code == 401
        assert http.get("/topics", headers=bearer()).status_code == 200
        assert http.get("/topics", headers=bearer(aud="other")).status_code == 401
        assert http.post("/topics", data={"name": "by-token"}, headers=bearer()).status_code == 403
        made = http.post("/topics", data={"name": "by-token", "partitions": "1"}, headers=bearer(role="operator"))
        assert made.status_code == 200
        assert http.post("/topics", data={"name": "x"}, auth=("ana", "geheim-1")).status_code == 403


@pytest.mark.timeout(180)
def test_a_cluster_that_is_down_is_said_in_words() -> None:
    with ServedConsole(
        bootstrap_servers="127.0.0.1:1", client={"default.api.timeout.ms": "800", "request.timeout.ms": "500"}
    ) as console:
        answer = console.get("/topics")
        assert answer.status_code == 503
        assert "does not answer" in answer.text
        assert console.get("/healthz").status_code == 200
        assert console.get("/readyz").status_code == 503


def test_a_registry_that_is_down_is_said_in_words(broker) -> None:
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, registry_url="http://127.0.0.1:1") as console:
        answer = console.get("/schemas")
        assert answer.status_code == 200
        assert "does not answer" in answer.text


def test_a_group_id_forges_no_metric(console: ServedConsole, broker, new_name) -> None:
    topic = new_name("forged")
    console.post("/topics", name=topic, partitions="1", replication="1")
    name = 'a\u2028b\rc\x0bd\x85"e\\'
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": name})
    reader.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    reader.close()
    long = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "long" * 7_000})
    long.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    long.close()
    text = console.until("/metrics", "longlong")
    for path in ("/metrics", "/groups", f"/topics/{topic}/consumers", "/overview/live"):
        assert "long" * 300 not in console.get(path).text, path
    assert [line for line in text.split("\n") if not re.match(r"# |ottla_|$", line)] == []
    rows = [line for line in text.split("\n") if topic in line and line.startswith("ottla_group_lag_records")]
    assert len(rows) == 2
    assert min(rows).startswith('ottla_group_lag_records{group="a\u2028b\rc\x0bd\x85\\"e\\\\",')
