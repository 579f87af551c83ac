"""The console's parts, most of which need no cluster: history and lag, filters, decoding, times, access, exports."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.requests import Request

from ottla.client.cluster import Cluster
from ottla.console.access import COOKIE, AccessControl
from ottla.console.cluster.history import POINTS, History, ReadLag, Ring, total_lag
from ottla.console.cluster.librdkafka import librdkafka_settings
from ottla.console.cluster.sampler import Sampler
from ottla.console.cluster.snapshot import ClusterSnapshot, GroupRow, PartitionRow, TopicRow
from ottla.console.errors import ConsoleError
from ottla.console.lineage import Edge, Lineage, _who, open_lineage
from ottla.console.messages.browse import parse_time_ms
from ottla.console.messages.decode import Decoder
from ottla.console.messages.export import as_csv, as_json_lines
from ottla.console.messages.filters import Filter, parse_path
from ottla.console.messages.record import SHOWN_HEADERS, BrowsedRecord, from_message, time_text
from ottla.console.messages.span import Stretch, TopicSpan
from ottla.console.messages.write import parse_bytes, parse_headers
from ottla.console.pages import access as access_page
from ottla.console.pages.overview import concerns
from ottla.console.registry_client import ConsoleRegistry
from ottla.console.render import render, size, span
from ottla.security.ruled_access import RuledAccess
from ottla.security.web import check_password, hash_password
from tests.console.apart import run_apart
from tests.console.site import ServedConsole


class FakeMessage:
    def __init__(self, key=None, value=None, headers=None) -> None:
        self._parts = key, value, headers

    def key(self):
        return self._parts[0]

    def value(self):
        return self._parts[1]

    def headers(self):
        return self._parts[2]


def snapshot(at_s: float, end: int, committed: int) -> ClusterSnapshot:
    row = PartitionRow(index=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), offline=(), start=0, end=end)
    return ClusterSnapshot(
        taken_ms=int(at_s * 1000),
        cluster_id="c",
        controller_id=1,
        brokers=(),
        topics={"t": TopicRow(name="t", id="i", internal=False, partitions=(row,))},
        groups={"g": GroupRow(id="g", kind="classic", state="Stable", protocol="", committed={("t", 0): committed})},
        took_s=0,
    )


def test_a_page_that_changed_something_is_not_told_what_was_before() -> None:
    """It waits for the look that was under way, which may have passed the place already, and takes a new one."""

    async def looked() -> int:
        committed, over = 3, asyncio.Event()

        class SlowGateway:
            async def ask(self, _question: object) -> ClusterSnapshot:
                found = snapshot(0.0, 10, committed)
                await over.wait()
                return found

        sampler = Sampler(SlowGateway(), 60)
        under_way = asyncio.ensure_future(sampler.current())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        committed = 7
        asking = asyncio.ensure_future(sampler.look())
        await asyncio.sleep(0)
        over.set()
        assert committed_of(await under_way) == 3, "that look began before"
        return committed_of(await asking)

    assert run_apart(looked()) == 7


def test_a_page_waits_for_a_rule_and_a_user_that_brokers_hear_of_later(
    living: ServedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Apache Kafka's do, a moment after its controller has answered: here the first two looks are of before."""
    looks: list[object] = []

    def late(look: Callable[[Cluster], Any], nothing: object) -> Callable[[Cluster], Any]:
        def looked(cluster: Cluster) -> Any:
            looks.append(look)
            return nothing if looks.count(look) <= 2 else look(cluster)

        return looked

    monkeypatch.setattr(access_page, "list_acls", late(access_page.list_acls, []))
    monkeypatch.setattr(access_page, "list_users", late(access_page.list_users, {}))
    rule = {"principal": "User:late", "permission": "3", "operation": "3", "resource": "2", "name": "t", "pattern": "3"}
    assert "Remove the rule of User:late on t" in living.post("/access/acls", **rule).text
    page = living.post("/access/users", user="late", mechanism="1", password="long-enough").text
    assert "Remove late" in page
    assert len(looks) >= 6


def test_a_topic_answers_when_all_its_leaders_do() -> None:
    row = PartitionRow(index=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), offline=(), end=3)
    topic = TopicRow(name="t", id="i", internal=False, partitions=(row, replace(row, index=1)))
    assert topic.answering
    assert not replace(topic, partitions=(row, replace(row, end=None))).answering
    assert replace(topic, partitions=(row, replace(row, end=None, leader=-1))).answering, "nobody can"


def test_a_concern_leads_to_the_page_of_a_group_of_any_name() -> None:
    seen, name = snapshot(100, 10, 3), "a/b?c#"
    seen.groups[name] = replace(seen.groups.pop("g"), id=name, state="Empty")
    (concern,) = concerns(seen, {name: ReadLag(7, 61.0)})
    assert concern.href == "/groups/a%2Fb%3Fc%23"


@pytest.mark.parametrize(
    ("lag", "alarms"),
    [
        (ReadLag(7, 59.0), 0),
        (ReadLag(7, 61.0), 1),
        (ReadLag(7, 1.0, at_least=True), 1),
        (ReadLag(7, None), 1),
        (ReadLag(0, 0.0), 0),
    ],
    ids=["a batch behind", "stopped", "behind since the first look", "unknown", "all read"],
)
def test_a_query_commits_without_members_and_is_no_alarm_while_it_moves(lag: ReadLag, alarms: int) -> None:
    seen = snapshot(100, 10, 3)
    seen.groups["g"] = replace(seen.groups["g"], state="Empty")
    assert len(concerns(seen, {"g": lag})) == alarms


def committed_of(seen: ClusterSnapshot) -> int:
    (group,) = seen.groups.values()
    return next(iter(group.committed.values()))


class TestLagInSeconds:
    def test_is_the_age_of_the_oldest_unread_record(self) -> None:
        history = History()
        for at, end in ((100.0, 0), (110.0, 100), (120.0, 200)):
            history.add(snapshot(at, end, 150))
        last = snapshot(120.0, 200, 150)
        lag = history.lags(last)["g"]
        # Offset 150 was written half way between the looks at 110 and 120.
        assert (lag.records, lag.seconds, lag.at_least) == (50, pytest.approx(5.0), False)

    def test_is_zero_when_everything_is_read(self) -> None:
        history = History()
        history.add(snapshot(100, 10, 10))
        last = snapshot(100, 10, 10)
        assert history.lags(last)["g"].seconds == 0

    def test_says_at_least_when_it_goes_back_before_the_first_look(self) -> None:
        history = History()
        history.add(snapshot(100, 50, 10))
        history.add(snapshot(130, 60, 10))
        last = snapshot(130, 60, 10)
        lag = history.lags(last)["g"]
        assert (lag.seconds, lag.at_least) == (30, True)

    def test_takes_the_longest_of_several(self) -> None:
        assert total_lag([ReadLag(5, 3.0), ReadLag(1, 9.0), ReadLag(0, 0.0)]) == ReadLag(6, 9.0)

    def test_forgets_groups_that_are_gone(self) -> None:
        history = History()
        history.add(snapshot(100, 50, 10))
        gone = snapshot(101, 50, 10)
        gone.groups.clear()
        history.add(gone)
        assert not history.lag_by_group
        assert not history._ends


def test_a_ring_is_bounded_and_reaches_far_back() -> None:
    ring = Ring()
    for second in range(20 * POINTS):
        ring.add(second, second * 3)
    assert len(ring.times) <= POINTS + 1
    assert ring.rate() == pytest.approx(3.0)
    assert list(ring.times) == sorted(ring.times)


@pytest.mark.parametrize(
    ("wanted", "message", "found"),
    [
        (Filter(key="user-1"), FakeMessage(key=b"user-12"), True),
        (Filter(key="user-1"), FakeMessage(key=None), False),
        (Filter(value="né"), FakeMessage(value="où est né".encode()), True),
        (Filter(header="trace"), FakeMessage(headers=[("trace", None)]), True),
        (Filter(header="trace=ab"), FakeMessage(headers=[("trace", b"xaby")]), True),
        (Filter(header="trace=ab"), FakeMessage(headers=[("other", b"ab")]), False),
        (Filter(path="$.a.b == 7"), FakeMessage(value=b'{"a":{"b":7}}'), True),
        (Filter(path="$.a.b == 7"), FakeMessage(value=b'{"a":{"b":8}}'), False),
        (Filter(path="$.a[1] > 3"), FakeMessage(value=b'{"a":[1,4]}'), True),
        (Filter(path="$.name ~ ob"), FakeMessage(value=b'{"name":"bob"}'), True),
        (Filter(path="$.ok = true"), FakeMessage(value=b'{"ok":1}'), False),
        (Filter(path="$.error"), FakeMessage(value=b'{"error":null}'), False),
        (Filter(path='$["odd key"] != 1'), FakeMessage(value=b'{"odd key":2}'), True),
        (Filter(path="$.a"), FakeMessage(value=b"not json"), False),
        (Filter(key="a", value="b"), FakeMessage(key=b"a", value=b"c"), False),
    ],
)
def test_filters(wanted: Filter, message: FakeMessage, found: bool) -> None:
    assert wanted.predicate(Decoder(ConsoleRegistry("")))(message) is found


@pytest.mark.parametrize(
    "bad", ["a.b", "$..a", "$.a > word", "$.a[x]", "$" + '["a"]' * 500 + " a", f"$[{'1' * 5000}]", '$["a', "$.a b"]
)
def test_a_path_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(ConsoleError):
        parse_path(bad)


def test_a_long_condition_is_read_in_one_go() -> None:
    steps, is_wanted = parse_path("$.a =" + " " * 30_000 + "x\ny")
    assert (steps, is_wanted("x\ny")) == (["a"], True)


@pytest.mark.parametrize(
    ("data", "how", "kind", "text"),
    [
        (None, "auto", "null", "null"),
        (b"hello", "auto", "text", "hello"),
        (b'{"a":1}', "auto", "json", '{\n  "a": 1\n}'),
        (b"{broken", "auto", "text", "{broken"),
        (b"\xff\xfe", "auto", "hex", "ff fe"),
        (b"\x00\x01", "auto", "hex", "00 01"),
        (struct.pack(">q", -5), "int", "int", "-5"),
        (b"abc", "int", "hex", "61 62 63"),
        (b"abc", "base64", "base64", "YWJj"),
        (b"nope", "json", "hex", "6e 6f 70 65"),
        (b"[" * 100_000, "auto", "text", None),
    ],
)
def test_decoding_never_fails(data: bytes | None, how: str, kind: str, text: str | None) -> None:
    decoded = Decoder(ConsoleRegistry(""), how).decode(data)
    assert decoded.kind == kind
    if text is not None:
        assert decoded.text == text


def test_a_large_value_is_cut_and_says_so() -> None:
    text = Decoder(ConsoleRegistry("")).decode(b"x" * 10_000_000).text
    assert len(text) < 70_000
    assert "10,000,000 characters in all" in text


NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-10m", NOW.timestamp() * 1000 - 600_000),
        ("-2d", NOW.timestamp() * 1000 - 2 * 86_400_000),
        ("2026-01-31 12:00", NOW.timestamp() * 1000),
        ("2026-01-31T13:00+01:00", NOW.timestamp() * 1000),
        ("1769860800000", 1769860800000),
    ],
)
def test_times_as_people_write_them(text: str, expected: float) -> None:
    assert parse_time_ms(text, NOW) == int(expected)


@pytest.mark.parametrize("text", ["", "soon", "10m", "-10 weeks", "31.01.2026"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConsoleError, match="is not a time"):
        parse_time_ms(text, NOW)


def test_times_out_of_this_world_are_shown_as_they_are() -> None:
    assert time_text(-1) == "-"
    assert time_text(2**62) == f"{2**62} ms"


def record(value: bytes | None, key: bytes | None = None) -> BrowsedRecord:
    return BrowsedRecord("t", 0, 1, 1000, "CreateTime", key, value, (("h", b"\xff"),))


def test_a_page_shows_the_first_headers_of_a_record() -> None:
    """A record of 1 MB has half a million headers, and a page of such records was more than 1 GB of HTML."""

    class Message:
        topic, key, value, error = (lambda _self, got=got: got for got in ("t", b"k", b"v", None))
        partition = offset = lambda _self: 0

        def timestamp(self) -> tuple[int, int]:
            return 1, 1000

        def headers(self) -> list[tuple[str, bytes]]:
            return [(f"name-{number}" + "n" * 5_000, b"x" * 5_000) for number in range(1_000)]

    shown = from_message(Message())
    assert (len(shown.headers), shown.more_headers) == (SHOWN_HEADERS, 1_000 - SHOWN_HEADERS)
    part = Decoder(ConsoleRegistry("")).decode(b"x")
    html = render("message_rows.html", rows=[(shown, part, part)])
    assert len(html) < 600_000
    assert "800 more" in html
    exported = from_message(Message(), None)
    assert (len(exported.headers), exported.more_headers) == (1_000, 0)


def test_csv_never_becomes_a_formula_and_bytes_survive() -> None:
    text = b"".join(as_csv(iter([[record(b"=cmd|calc"), record(b"\xff\x00"), record(None)]]))).decode()
    lines = text.splitlines()
    assert "'=cmd|calc" in lines[1]
    assert "/wA=,base64" in lines[2]
    assert ",,null," in lines[3]


@pytest.mark.parametrize(
    "begin",
    ["=", "+", "-", "@", "\t", "\r", "\n", " =", "\n=", "\x00=", "\ufeff=", "\u200b+", "\u3000=",
     "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66", "\u2212"],
)  # fmt: skip
def test_no_cell_begins_like_a_formula(begin: str) -> None:
    """White space, invisible characters and full-width signs in front do not help: spreadsheets read through them."""
    text = b"".join(as_csv(iter([[record(f"{begin}cmd|calc".encode(), begin.encode())]]))).decode()
    row = list(csv.reader(io.StringIO(text, newline="")))[1]
    assert row[6] == f"'{begin}cmd|calc"
    assert row[4].startswith("'")


@pytest.mark.parametrize("value", ["5", "a=b", "a-b", "\u00e4", "", "'x", "  x"])
def test_other_cells_stay_as_they_are(value: str) -> None:
    text = b"".join(as_csv(iter([[record(value.encode())]]))).decode()
    assert list(csv.reader(io.StringIO(text, newline="")))[1][6] == value


def test_json_lines_hold_every_field() -> None:
    row = json.loads(b"".join(as_json_lines(iter([[record(b"v", b"k")]]))))
    assert (row["key"], row["value"], row["headers"]) == ("k", "v", [["h", "/w==", "base64"]])


def test_the_last_offsets_are_shared_out() -> None:
    all_of_it = TopicSpan("t", {0: Stretch(0, 100), 1: Stretch(5, 5), 2: Stretch(90, 100)}, {})
    assert all_of_it.last(10).stretches == {0: Stretch(95, 100), 1: Stretch(5, 5), 2: Stretch(95, 100)}
    assert all_of_it.length == 110


def test_passwords_are_salted_and_checked() -> None:
    stored = hash_password("geheim")
    assert check_password("geheim", stored)
    assert not check_password("geheim2", stored)
    assert stored != hash_password("geheim")


def test_a_forged_session_is_no_session(tmp_path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ana:admin:{hash_password('geheim-1')}\n")
    access = AccessControl(RuledAccess.from_options(users_file=str(users)), read_only=False, hosts=())
    cookie = run_apart(access.login("ana", "geheim-1", ""))
    assert cookie is not None
    assert access.sessions.get(cookie) is not None
    assert access.sessions.get(cookie[:-1] + ("0" if cookie[-1] != "0" else "1")) is None
    sealed = access.seal({"name": "ana"})
    assert access.unseal(sealed) == {"name": "ana"}
    assert access.unseal(sealed[:-1] + ("0" if sealed[-1] != "0" else "1")) is None


def test_a_forms_token_seals_no_cookie() -> None:
    """Both are an HMAC, and a person chooses the cookie and the header that the form's token is bound to."""
    web = RuledAccess.from_options(users_file=None, jwks_url="https://127.0.0.1/keys")
    access = AccessControl(web, read_only=False, hosts=())
    chosen = "eyJ1bnRpbCI6IDk5OTk5OTk5OTk5OX0="
    scope = {"type": "http", "headers": [(b"cookie", f"{COOKIE}={chosen}".encode())], "method": "GET", "path": "/"}
    token = access.csrf(Request(scope))
    assert access.unseal(f"csrf:{chosen}\0.{token}") is None

    assert access.unseal("") is None
    assert run_apart(access.login("ana", "wrong", "")) is None
    assert run_apart(access.login("bob", "geheim-1", "")) is None


def test_client_settings_become_librdkafkas() -> None:
    made = librdkafka_settings(
        "h:1",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b c";',
            "ssl.truststore.location": "ca.pem",
        },
    )
    assert made["sasl.username"] == "a"
    assert made["sasl.password"] == "b c"
    assert made["ssl.ca.location"] == "ca.pem"


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (None, "-"), (3 * 2**40, "3.0 TiB")])
def test_sizes(value: int | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 s"), (0.5, "< 1 s"), (61, "1 min 1 s"), (90_000, "1 d 1 h"), (None, "-")]
)
def test_spans(value: float | None, text: str) -> None:
    assert span(value) == text


@pytest.mark.parametrize(
    ("text", "encoding", "data"), [("a\r\nb", "text", b"a\nb"), ("ff 00", "hex", b"\xff\x00"), ("YQ==", "base64", b"a")]
)
def test_typed_bytes(text: str, encoding: str, data: bytes) -> None:
    assert parse_bytes(text, encoding) == data


@pytest.mark.parametrize(("text", "encoding"), [("zz", "hex"), ("???", "base64")])
def test_bytes_that_are_none_are_refused(text: str, encoding: str) -> None:
    with pytest.raises(ConsoleError, match=f"not {encoding}"):
        parse_bytes(text, encoding)


def test_headers_are_lines() -> None:
    assert parse_headers("a: 1\n\nb:x:y") == [("a", b"1"), ("b", b"x:y")]
    with pytest.raises(ConsoleError, match="write name: value"):
        parse_headers("nonsense")


def test_lineage_of_many_clients_costs_each_flow_once_and_names_are_cut() -> None:
    class Flows(set[Edge]):
        looks = 0

        def __iter__(self) -> Iterator[Edge]:
            Flows.looks += 1
            return super().__iter__()

    lineage = Lineage(edges=Flows())
    for number in range(100):
        lineage.wrote(f"writer-{number}", "t")
        lineage.read(f"writer-{number}", "u")
    events = open_lineage(lineage, "c")
    assert [(event["inputs"][0]["name"], event["outputs"][0]["name"]) for event in events] == [("u", "t")] * 100
    assert Flows.looks == 1
    assert len(_who({"client_id": "c" * 32_000, "principal": "p" * 32_000})) < 600
