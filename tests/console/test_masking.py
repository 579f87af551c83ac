"""Masked fields: no page, filter, query, tail or file shows them, whatever the format; those who are exempt see them."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from ottla.cli.verbs.export import export_
from ottla.console.messages.decode import FORMATS, Decoder
from ottla.console.messages.masked import Masker
from ottla.console.registry_client import ConsoleRegistry
from ottla.security.access_rules import load_access_rules
from ottla.security.masking import HIDDEN, MaskRule, Masks, parse_field
from ottla.security.web import WebAccessError
from ottla.testing import Broker
from tests.console.secured_cluster import Person, users_of
from tests.console.site import PATIENT, ServedConsole
from tests.registry.instances import RegistryThread, call

pytestmark = pytest.mark.timeout(240)
CARD, EMAIL, TRACE, TOKEN = "4111222233334444", "ada@example.org", "trace-9f8e7d", "Bearer-0123456789"
SECRETS = (CARD, EMAIL, TRACE, TOKEN, CARD.encode().hex(" "), CARD.encode().hex(), EMAIL.encode().hex())
RULES = """
mask_hash_key_file = "key"

[[mask]]
topics = ["pay*"]
field = "value.card.number"
mode = "keep-last-4"
exempt = ["admin"]

[[mask]]
topics = ["pay*"]
field = "value.people[].email"
mode = "hash"
exempt = ["admin"]

[[mask]]
topics = ["pay*"]
field = "header.authorization"
exempt = ["role:admin", "user:carol"]

[[mask]]
topics = ["pay.keyed"]
field = "key.trace"
exempt = ["admin"]
"""
PROTO = """
syntax = "proto3";
message Card { string number = 1; }
message Person { string email = 1; }
message Payment { Card card = 1; repeated Person people = 2; int64 cents = 3; }
"""
AVRO: dict[str, Any] = {
    "type": "record", "name": "Payment", "fields": [
        {"name": "card", "type": {"type": "record", "name": "Card", "fields": [{"name": "number", "type": "string"}]}},
        {"name": "people", "type": {"type": "array", "items": {
            "type": "record", "name": "Person", "fields": [{"name": "email", "type": ["null", "string"]}]}}},
        {"name": "cents", "type": "long"},
    ],
}  # fmt: skip
PAYMENT = {"card": {"number": CARD}, "people": [{"email": EMAIL}, {"email": EMAIL}], "cents": 77}


def avro(schema_id: int) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, schema_id))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), PAYMENT)
    return out.getvalue()


def protobuf(schema_id: int) -> bytes:
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    person = field(2, field(1, EMAIL.encode()))
    # Schema id, the index of the third message (one index, 2, as zigzag varints), the message.
    return struct.pack(">bI", 0, schema_id) + b"\x02\x04" + field(1, field(1, CARD.encode())) + person + b"\x18\x4d"


@pytest.fixture(scope="module")
def registry(broker: Broker) -> Iterator[RegistryThread]:
    with RegistryThread(broker.bootstrap_servers, topic="_schemas_masking") as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masking")
    (folder / "key").write_text("a key of sixteen bytes or more\n")
    (folder / "access.toml").write_text(RULES)
    return folder


@pytest.fixture(scope="module")
def topics(broker: Broker, registry: RegistryThread) -> list[str]:
    """One topic for each way to write the same payment, and two that cannot be decoded."""
    avro_id = _register(registry, "pay.avro-value", json.dumps(AVRO), "AVRO")
    proto_id = _register(registry, "pay.protobuf-value", PROTO, "PROTOBUF")
    values = {
        "pay.json": [json.dumps(PAYMENT).encode()],
        "pay.avro": [avro(avro_id)],
        "pay.protobuf": [protobuf(proto_id)],
        "pay.keyed": [json.dumps(PAYMENT).encode()],
        "pay.broken": [
            f"card {CARD} of {EMAIL}".encode(), b" " + json.dumps(PAYMENT).encode(), b"\x00\x00\x00\xff\xff" + CARD.encode(),
            json.dumps(json.dumps(PAYMENT)).encode(), json.dumps({"card": json.dumps({"number": CARD})}).encode(),
            ("[" * 5000 + f'"{CARD}"' + "]" * 5000).encode(), avro(avro_id)[:-9],
        ],
    }  # fmt: skip
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for topic, written in values.items():
        for value in written:
            key = json.dumps({"trace": TRACE}) if topic == "pay.keyed" else "k"
            producer.produce(topic, value, key=key, headers={"Authorization": TOKEN, "plain": "seen"})
    assert producer.flush(60) == 0
    return list(values)


def _register(registry: RegistryThread, subject: str, schema: str, kind: str) -> int:
    status, answer = call(registry.url, "POST", f"/subjects/{subject}/versions", {"schema": schema, "schemaType": kind})
    assert status == 200, answer
    return int(answer["id"])


@pytest.fixture(scope="module")
def console(broker: Broker, registry: RegistryThread, folder: Path, topics: list[str]) -> Iterator[ServedConsole]:
    del topics
    users = users_of(folder, "carol")
    Path(users).write_text(Path(users).read_text() + Path(users).read_text().replace("carol:admin", "vic:viewer"))
    settings = {"users_file": users, "access_rules": str(folder / "access.toml"), "registry_url": registry.url}
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, client=PATIENT, **settings) as served:
        yield served


def clean(text: str, where: str) -> str:
    found = [secret for secret in SECRETS if secret in text]
    assert found == [], f"{where} shows {found}:\n{text[-3000:]}"
    return text


def events(person: Person, path: str) -> str:
    with person.http.stream("GET", path) as stream:
        return "".join(stream.iter_text())


def test_pages_show_the_mask_in_every_format(console: ServedConsole, topics: list[str]) -> None:
    vic = Person(console, "vic")
    for topic in topics:
        for form in FORMATS if topic in ("pay.avro", "pay.broken") else ("text", "hex"):
            where = f"/topics/{topic}/messages"
            page = vic.get(where, begin="oldest", value_format=form, key_format=form)
            assert page.status_code == 200
            clean(page.text, f"{where} as {form}")
        page = vic.get(f"/topics/{topic}/messages", begin="oldest").text
        if topic != "pay.broken":
            assert HIDDEN + "4444" in page
            assert "&#34;cents&#34;: " in page
            assert "77" in page
        assert "seen" in page  # a header that no rule is about
    carol = Person(console, "carol").get("/topics/pay.json/messages").text
    assert CARD in carol
    assert EMAIL in carol
    assert TOKEN in carol


def test_exports_have_the_mask(console: ServedConsole, topics: list[str]) -> None:
    vic = Person(console, "vic")
    for topic in topics:
        for kind in ("csv", "jsonl"):
            clean(vic.get(f"/topics/{topic}/export", format=kind).text, f"{topic} as {kind}")
        file = vic.get(f"/topics/{topic}/export", format="parquet").content
        clean(str(pq.read_table(io.BytesIO(file)).to_pylist()), f"{topic} as parquet")
    lines = vic.get("/topics/pay.avro/export", format="jsonl").text.splitlines()
    value = json.loads(json.loads(lines[0])["value"])
    assert value["card"] == {"number": HIDDEN + "4444"}
    assert value["people"][0] == value["people"][1]
    assert len(value["people"][0]["email"]) == 32


PROBES: tuple[dict[str, str], ...] = (
    {"value": CARD[:8]}, {"value": EMAIL}, {"key": TRACE}, {"header": "Authorization=Bearer"},
    {"path": f'$.card.number = "{CARD}"'}, {"path": f"$.card.number ~ {CARD[4:9]}"}, {"path": "$.people[0].email ~ ada"},
)  # fmt: skip


def test_no_filter_finds_out(console: ServedConsole) -> None:
    vic, carol = Person(console, "vic"), Person(console, "carol")
    for wanted in PROBES:
        for topic in ("pay.keyed", "pay.broken"):
            assert vic.get(f"/topics/{topic}/export", format="jsonl", **wanted).text == "", (topic, wanted)
        assert carol.get("/topics/pay.keyed/export", format="jsonl", **wanted).text.count("\n") == 1, wanted
    for person, found in ((vic, "0"), (carol, "1")):
        search = person.post("/topics/pay.keyed/search", value=CARD)
        said = events(person, str(search.url).partition("?")[0] + "/events")
        assert f'"live-matched": "{found}"' in said
        assert "done" in said


def test_a_tail_has_the_mask(console: ServedConsole, broker: Broker) -> None:
    vic = Person(console, "vic")
    said = ""
    with vic.http.stream("GET", "/topics/pay.json/tail") as stream:
        sent = False
        for text in stream.iter_text():
            said += text
            if not sent and '"reading"' in said:
                producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
                producer.produce("pay.json", json.dumps(PAYMENT), headers={"Authorization": TOKEN})
                producer.flush(30)
                sent = True
            if "4444" in said:
                break
    clean(said, "the tail")


def test_sql_sees_the_mask(console: ServedConsole, topics: list[str]) -> None:
    vic = Person(console, "vic")
    for topic in topics:
        page = vic.post("/sql", query=f'select *, hex(value_bytes), headers::varchar from "{topic}"').text
        assert "seen" in page
        clean(page, f"select from {topic}")
        for condition in (f"value like '%{CARD}%'", f"json->>'$.card.number' = '{CARD}'", f"key like '%{TRACE}%'"):
            page = vic.post("/sql", query=f'select count(*) + 41 as n from "{topic}" where {condition}').text
            assert ">41<" in page, page[-2000:]
    page = Person(console, "carol").post("/sql", query="select json->>'$.card.number' from \"pay.json\"").text
    assert CARD in page


def test_a_masked_topic_is_not_copied(console: ServedConsole, broker: Broker, folder: Path) -> None:
    users = folder / "users"
    users.write_text(
        users.read_text() + users.read_text().splitlines()[0].replace("carol:admin", "olga:operator") + "\n"
    )
    olga = Person(console, "olga")
    refused = olga.post("/topics/pay.json/replay", target="pay.keyed", limit="1")
    assert refused.status_code == 403
    assert "masked for you" in refused.text
    fields = {"name": "ottla.schema.quarantine.topic", "value": "pay.keyed"}
    refused = olga.post("/topics/pay.json/settings", **fields)
    assert refused.status_code == 403
    assert "masked for you" in refused.text


def test_the_command_line_exports_with_the_mask(
    broker: Broker, registry: RegistryThread, topics: list[str], folder: Path, tmp_path: Path
) -> None:
    for topic in topics:
        for kind in ("jsonl", "parquet"):
            file = tmp_path / f"{topic}.{kind}"
            words = [topic, str(file), "--mask", str(folder / "access.toml"), "-b", broker.bootstrap_servers]
            done = CliRunner().invoke(export_, [*words, "--registry", registry.url])
            assert done.exit_code == 0, done.output
            rows = file.read_text() if kind == "jsonl" else str(pq.read_table(file).to_pylist())
            clean(rows, str(file))
            assert "seen" in rows


# Rules


def rule(field: str, mode: str = "hide", **more: Any) -> Masks:
    part, path = parse_field(field)
    return Masks((MaskRule(topics=("t*",), part=part, path=path, mode=mode, **more),), b"0123456789abcdef")


@pytest.mark.parametrize(
    ("field", "mode", "value", "shown"),
    [
        ("value.a", "hide", {"a": 1, "b": 2}, {"a": "***", "b": 2}),
        ("value.a", "hide", {"a": {"deep": [1]}, "b": 2}, {"a": "***", "b": 2}),
        ("value.a", "keep-last-4", {"a": {"deep": ["12345678"]}}, {"a": {"deep": ["***5678"]}}),
        ("value.a", "keep-last-4", {"a": "1234567"}, {"a": "***"}),
        ("value.a.b", "hide", [{"a": [{"b": 1}, {"c": 2}]}], [{"a": [{"b": "***"}, {"c": 2}]}]),
        ("value.*.b", "hide", {"x": {"b": 1}, "y": {"b": 2}}, {"x": {"b": "***"}, "y": {"b": "***"}}),
        ("value.a[].b", "hide", {"a": [{"b": None}]}, {"a": [{"b": None}]}),
        ("value.cardNumber", "hide", {"card_number": 1, "CARDNUMBER": 2}, {"card_number": "***", "CARDNUMBER": "***"}),
        ("value.a.b", "hide", {"a": '{"b": 1}'}, {"a": "***"}),
        ("value.a.b", "hide", {"a": '\ufeff "{\\"b\\": 1}"'}, {"a": "***"}),
        ("value.a.b", "hide", {"a": b'{"b": 1}', "c": b"x"}, {"a": "***", "c": b"x"}),
        ("value.a.b", "hide", {"a": 4111, "b": 4111}, {"a": "***", "b": 4111}),
        ("value.a.b", "hide", ["4111", {"a": ["4111", None]}], ["***", {"a": ["***", None]}]),
        ("value.*.b", "hide", {"x": 1, "y": "t", "z": b' {"b": 1}'}, {"x": 1, "y": "t", "z": "***"}),
        ("value", "hide", {"a": 1}, "***"),
    ],
)
def test_what_a_rule_covers(field: str, mode: str, value: Any, shown: Any) -> None:
    mask = rule(field, mode).on("topic", None)
    assert mask is not None
    assert mask.tree("value", value) == shown


def test_a_whole_key_or_value_is_covered_whatever_it_is() -> None:
    for data in (b"text", b"\xff\xfe", b'{"a": 1}', b"[" * 100_000):
        mask = rule("value", "hide").on("t", None)
        assert mask is not None
        shown = Masker(mask, Decoder(ConsoleRegistry(""))).part("value", data)
        assert shown == HIDDEN.encode()
    hashed = rule("key", "hash").on("t", None)
    assert hashed is not None
    masker = Masker(hashed, Decoder(ConsoleRegistry("")))
    assert masker.part("key", b"user-1") == masker.part("key", b"user-1") != masker.part("key", b"user-2")
    assert masker.part("key", None) is None
    assert masker.part("value", b"user-1") == b"user-1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[mask]]\ntopics = ["a"]\nfield = "card"', "is not a field"),
        ('[[mask]]\ntopics = []\nfield = "value.a"', "topics is empty"),
        ('[[mask]]\ntopics = ["a"]\nfield = "value.a"\nmode = "blur"', "mode is one of"),
        ('[[mask]]\ntopics = ["a"]\nfield = "value.a"\nmode = "hash"', "needs mask_hash_key_file"),
        ('[[mask]]\ntopics = ["a"]\nfeild = "value.a"', "do you mean field"),
        ('[[mask]]\ntopics = ["a"]\nfield = "value.a"\nexempt = ["boss"]', "is not a role"),
        ('[mask]\ntopics = ["a"]', "two brackets"),
        ('[[grant]]\nrole = "admin"', "names no user"),
        ('[[grant]]\nusers = ["a"]\nrole = "king"', "a role is one of"),
        ('[[grant]]\nusers = "a"\nrole = "admin"', "list of names"),
        ('[oidc]\nissuer = "http://id.example"\nclient_id = "c"', "must begin with https"),
        ('[oidc]\nissuer = "https://id.example"\nclient_id = "c"', "without a \\[\\[grant"),
        ("x = [", "cannot be read"),
    ],
)
def test_a_file_that_protects_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "access.toml"
    if "grant" not in text and "oidc" in text and "must" in words:
        text += '\n[[grant]]\nusers = ["a"]\nrole = "admin"'
    file.write_text(text)
    with pytest.raises(WebAccessError, match=words) as told:
        load_access_rules(str(file))
    assert str(file) in str(told.value)
