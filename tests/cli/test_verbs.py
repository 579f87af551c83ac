"""The humane verbs on a real node, as a person calls them; profiles, filters, formats and places to start by themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from ottla.cli.commands import _COMMANDS, ottla
from ottla.cli.records.filter_expression import BadFilter, compile_filter
from ottla.cli.records.record_format import compile_format
from ottla.cli.records.start_position import parse_when
from ottla.cli.verbs.topic import advised_partitions, advised_replication
from ottla.testing import Broker

SOURCES = str(Path(__file__).parents[2] / "src")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)


def call(*words: str, code: int = 0, stdin: str = "") -> Result:
    done = CliRunner().invoke(ottla, list(words), input=stdin)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done


def test_topics_with_advice_and_the_name_rule() -> None:
    assert "3 partitions, 1 replica  (advised for 1 broker)" in call("topic", "create", "advised").output
    assert "is not <message type>.<dataset>" in call("topic", "create", "plain", "--check-name", code=1).output
    call("topic", "create", "user.shop.orders.json", "--check-name", "--partitions", "2")
    listed = json.loads(call("topic", "list", "-o", "json").stdout)
    assert {"topic": "user.shop.orders.json", "partitions": 2, "replicas": 1, "under-replicated": 0} in listed
    call("topic", "alter", "advised", "--partitions", "4", "--config", "retention.ms=1000")
    described = yaml.safe_load(call("topic", "describe", "advised", "-o", "yaml").stdout)
    assert (len(described["partitions"]), described["configs"]) == (4, {"retention.ms": "1000"})
    assert "already exists. (TOPIC_ALREADY_EXISTS)" in call("topic", "create", "advised", code=1).output
    call("topic", "delete", "advised", code=1, stdin="n\n")
    assert "deleted advised" in call("topic", "delete", "advised", "-y").output


def test_records_there_and_back(tmp_path: Path) -> None:
    call("topic", "create", "orders", "--partitions", "2")
    lines = "".join(f'k{n % 3}:{{"id": {n}, "amount": {n * 10}}}\n' for n in range(20))
    call("produce", "orders", "-K", ":", "--value-as", "json", "-H", "from=test", stdin=lines)
    assert "line 1 has no ':'" in call("produce", "orders", "-K", ":", stdin="no separator\n", code=1).output
    assert "not JSON" in call("produce", "orders", "--value-as", "json", "{", code=1).output
    read = [json.loads(line) for line in call("consume", "orders", "-e", "-o", "json").stdout.splitlines()]
    assert sorted(row["value"]["id"] for row in read) == list(range(20))
    assert {row["headers"]["from"] for row in read} == {"test"}
    big = call("consume", "orders", "-e", "-f", "%k %v\\n", "--filter", 'value.amount >= 150 and key == "k0"').stdout
    assert sorted(big.splitlines()) == ['k0 {"id": 15, "amount": 150}', 'k0 {"id": 18, "amount": 180}']
    assert len(call("consume", "orders", "-e", "-n", "3").stdout.splitlines()) == 3
    assert len(call("consume", "orders", "-e", "--from", "-10m").stdout.splitlines()) == 20
    assert call("consume", "orders", "-e", "--from", "2099-01-01").stdout == ""
    for name in ("orders.jsonl", "orders.parquet"):
        file = tmp_path / name
        call("export", "orders", str(file))
        copy = f"copy-{file.suffix[1:]}"
        call("topic", "create", copy, "--partitions", "2")
        call("import", str(file), copy, "--keep-partition", "--keep-time")
        again = [json.loads(line) for line in call("consume", copy, "-e", "-o", "json").stdout.splitlines()]
        for row in (*read, *again):
            row["topic"] = "any"
        assert sorted(map(json.dumps, again)) == sorted(map(json.dumps, read))
    (tmp_path / "bad.jsonl").write_text("{}\n")
    assert "the field value is missing" in call("import", str(tmp_path / "bad.jsonl"), "orders", code=1).output
    assert ".jsonl or .parquet" in call("export", "orders", str(tmp_path / "orders.txt"), code=1).output


def test_groups_and_settings() -> None:
    call("topic", "create", "read", "--partitions", "1")
    call("produce", "read", stdin="a\nb\nc\n")
    plan = call("group", "reset", "readers", "read", "--to", "1")
    assert "no offset was changed" in plan.stderr
    call("group", "reset", "readers", "read", "--to", "1", "--execute")
    described = json.loads(call("group", "describe", "readers", "-o", "json").stdout)
    assert (described["lag"], described["state"]) == (2, "Empty")
    assert "readers" in call("group", "list").stdout
    call("group", "delete", "readers")
    assert "not found" in call("group", "describe", "readers", code=1).output
    call("config", "set", "topic", "read", "retention.ms=5000")
    assert "5000" in call("config", "show", "topic", "read").stdout
    call("config", "unset", "topic", "read", "retention.ms")
    assert "retention.ms" not in call("config", "show", "topic", "read").stdout
    assert call("txn", "list").exit_code == 0
    figures = json.loads(call("bench", "-n", "500", "-s", "10", "-o", "json").stdout)
    assert [row["records"] for row in figures] == [500, 500]


def test_profiles(broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS")
    call("profile", "set", "prod", "-b", broker.bootstrap_servers, "-X", "client.id=me", "--name-rule")
    call("profile", "set", "other", "-b", "127.0.0.1:1")
    assert "using prod" in call("profile", "use", "prod").output
    call("topic", "list")
    assert "is not <message type>" in call("topic", "create", "any", code=1).output
    assert "there is no profile 'nope'" in call("profile", "use", "nope", code=1).output
    assert "there is no profile 'nope'" in call("topic", "list", "--profile", "nope", code=1).output
    assert "*  prod" in call("profile", "list").stdout
    file = tmp_path / "config" / "profiles.json"
    assert file.stat().st_mode & 0o077 == 0
    call("profile", "delete", "prod")
    file.write_text("{")
    assert "is not a valid file of profiles" in call("topic", "list", code=1).output


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('value.a.b == 7 and key == "k"', True),
        ("value.a.b > 7 or partition == 3", True),
        ("value.missing == 1 or offset < 10", True),
        ("not value.flag", True),
        ('"x" in value.tags and len(value.tags) == 2', True),
        ('matches(value.name, "^An")', True),
        ('value["name"] == "Anna" and headers.h == "1"', True),
        ("value.missing == 1", False),
        ("value.name > 3", False),
        ("timestamp - 5 > 1000000", False),
        ("value.tags[9] == 1", False),
    ],
)
def test_filters(text: str, matches: bool) -> None:
    value = {"a": {"b": 7}, "flag": False, "tags": ["x", "y"], "name": "Anna"}
    facts = {
        "key": "k",
        "value": value,
        "headers": {"h": "1"},
        "topic": "t",
        "partition": 3,
        "offset": 1,
        "timestamp": 5,
    }
    assert compile_filter(text)(facts) is matches


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')", "value.__class__.__mro__()", "open('f')", "lambda: 1", "[x for x in value]", "a == 1",
        "(", "value := 1", "f'{value}'", "9 ** 9 ** 9", "x" * 3000, "len(value, key=1)",
    ],
)  # fmt: skip
def test_filters_that_are_none(text: str) -> None:
    with pytest.raises(BadFilter):
        compile_filter(text)


def test_a_filter_reaches_no_object() -> None:
    """Fields are keys of the record's own data: an attribute of Python's is never looked up."""
    facts: dict[str, Any] = {"value": {}, "key": "k"}
    assert compile_filter("value.__class__ != 1")(facts) is False
    assert compile_filter("key.upper != 1")(facts) is False
    assert compile_filter('"a" * 1000000000 == 1')(facts) is False


def test_formats_and_places() -> None:
    message = SimpleNamespace(
        topic=lambda: "t", partition=lambda: 1, offset=lambda: 7, key=lambda: b"k", value=lambda: None,
        timestamp=lambda: (1, 99), headers=lambda: [("h", b"x"), ("n", None)],
    )  # fmt: skip
    assert compile_format(r"%t/%p@%o %k=%v %T %K %S %h 100%%\n")(message, "k", "") == "t/1@7 k= 99 1 -1 h=x,n= 100%\n"
    with pytest.raises(ValueError, match="%q is not a format"):
        compile_format("%q")
    assert parse_when("-10m", 1_000_000).timestamp_ms == 400_000
    assert parse_when("2026-01-01T00:00:00Z").timestamp_ms == 1767225600000
    assert parse_when("12").offset == 12
    assert parse_when("earliest").beginning
    with pytest.raises(ValueError, match="is not a start position"):
        parse_when("soon")


def test_advice_by_the_size_of_the_cluster() -> None:
    assert [advised_partitions(brokers) for brokers in (1, 3, 5, 6, 12, 13, 20)] == [3, 9, 15, 15, 24, 26, 40]
    assert [advised_replication(brokers) for brokers in (1, 2, 3, 20)] == [1, 2, 3, 3]


@pytest.mark.parametrize("verb", sorted(_COMMANDS))
def test_every_verb_has_help_that_fits(verb: str) -> None:
    """A screen is 80 wide; what is in the table can be imported."""
    done = CliRunner().invoke(ottla, [verb, "--help"], terminal_width=80)
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) <= 45


def test_help_and_listing_import_little() -> None:
    """What makes them start at once: no client library, no server, no web framework."""
    code = (
        "import sys; from ottla.cli import commands; from click.testing import CliRunner;"
        "CliRunner().invoke(commands.ottla, ['--help']);"
        "from ottla.cli.kafka import topics;"
        "print([m for m in ('confluent_kafka', 'asyncio', 'starlette', 'pyarrow', 'ottla.server.node') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": SOURCES}
    )
    assert done.stdout.strip() == "[]"


def test_errors_are_one_line() -> None:
    for words in (
        ("topic", "describe", "missing"), ("topic", "list", "-b", "nonsense"), ("consume", "missing", "-e"),
        ("topic", "list", "-X", "nonsense"), ("topic", "list", "-X", "security.protocol=NONE"),
        ("consume", "missing", "--filter", "("), ("consume", "missing", "-e", "--from", "soon"),
        ("topic", "list", "--command-config", "/nowhere"), ("acl", "allow", "alice", "topic", "t"),
        ("acl", "allow", "User:a", "topic", "t", "fly"),
    ):  # fmt: skip
        output = call(*words, code=1).output
        assert output.startswith("Error: "), output
        assert "Traceback" not in output
