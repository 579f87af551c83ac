"""Every word of examples/pipelines/vocabulary.py, on late, double, broken and out-of-order events, beside pandas."""

from __future__ import annotations

import ast
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from confluent_kafka import Producer
from examples.pipelines.vocabulary_feed import BROKEN, START, made_up

from ottla.connect.sinks.delta import read_delta
from ottla.pipelines.build import RunSettings
from ottla.pipelines.graph import graph, svg
from ottla.pipelines.pipeline import load_pipelines
from ottla.pipelines.run import PipelineRun
from ottla.testing import Broker

FILE = Path(__file__).resolve().parents[2] / "examples" / "pipelines" / "vocabulary.py"
pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]


def send(servers: str, topic: str, rows: list, key: str | None = None) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 3})
    for row in rows:
        if isinstance(row, tuple):
            name, value = row
            producer.produce(topic, None if value is None else json.dumps(value), name)
        else:
            producer.produce(topic, row if isinstance(row, str) else json.dumps(row), row[key] if key else None)
    assert producer.flush(30) == 0


def values(committed, topic: str) -> list[dict]:
    return [json.loads(row["value"]) for row in committed(topic)]


def newest(committed, topic: str) -> dict[str, dict]:
    return {row["key"].decode(): json.loads(row["value"]) for row in committed(topic)}


# Thirty-two small queries: on the second server they run with `make soak` only.
@pytest.mark.parametrize(
    "server", ["ottla", pytest.param("apache", marks=[pytest.mark.interop, pytest.mark.soak])], indirect=True
)
def test_each_word_equals_pandas(spark, topics, committed, tmp_path, monkeypatch):
    monkeypatch.setenv("OTTLA_TABLES", str(tmp_path))
    (vocabulary,) = load_pipelines(str(FILE))
    assert svg(vocabulary).count("<rect") == len(graph(vocabulary)["nodes"])
    written = [one for one in graph(vocabulary)["nodes"] if one["kind"] == "topic"]
    for one in {node["label"] for node in written} - {"words", "merged"}:
        compact = {"cleanup_policy": "compact"} if one in {"users", "countries", "totals", "located"} else {}
        topics.make(one, 2, **compact)
    users = [
        ("ada", {"name": "ada", "country": "cz"}),
        ("bob", {"name": "bob", "country": "uk"}),
        ("eve", {"name": "eve", "country": "xx"}),
    ]
    send(topics.servers, "users", [*users, ("ada", {"name": "ada", "country": "at"}), ("bob", None)])
    send(
        topics.servers,
        "countries",
        [("at", {"country": "at", "capital": "Vienna"}), ("cz", {"country": "cz", "capital": "Prague"})],
    )
    first, more = made_up(400, 1, 0), made_up(300, 2, 10_000)
    broken = list(BROKEN)
    send(topics.servers, "events", [*first[:200], *broken, *first[200:]], None)
    send(topics.servers, "more-events", more, None)
    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "checkpoints"))
    PipelineRun(spark, vocabulary, settings).once()
    # Then a second run with late events: half a minute late counts, an hour late is too late for what was emitted.
    newest_at = max(datetime.fromisoformat(one["at"]) for one in first)
    late = {**first[0], "id": 90_001, "user": "max", "at": (newest_at - timedelta(seconds=30)).isoformat()}
    too_late = {**first[0], "id": 90_002, "user": "max", "at": (START - timedelta(hours=1)).isoformat()}
    closing = {**first[0], "id": 90_003, "user": "max", "at": (newest_at + timedelta(hours=1)).isoformat()}
    send(topics.servers, "events", [late, too_late, closing], None)
    run = PipelineRun(spark, vocabulary, settings)
    run.once()

    everything = pd.DataFrame([*first, late, too_late, closing])
    everything["at"] = pd.to_datetime(everything["at"], utc=True, format="ISO8601")
    in_time = everything[(everything.id != 90_002) & (everything.id != 90_003)]

    big = everything[everything.amount >= 50]
    assert Counter((row["id"], row["doubled"]) for row in values(committed, "large")) == Counter(
        zip(big.id, big.amount * 2, strict=True)
    )
    words = Counter(word for text in everything.words for word in text.split())
    assert Counter(row["word"] for row in values(committed, "words")) == words
    merged = committed("merged")
    assert Counter(json.loads(row["value"])["id"] for row in merged) == Counter(
        [*everything.id, *(one["id"] for one in more)]
    )
    assert all(len({row["partition"] for row in merged if row["key"] == kind}) == 1 for kind in (b"buy", b"look"))

    totals = everything.groupby("user").amount.agg(["count", "sum", "max"])
    expected = {user: (int(n), int(total), int(top)) for user, n, total, top in totals.itertuples()}
    table, note = read_delta(str(tmp_path / "totals"))
    assert {row["user"]: (row["n"], row["total"], row["largest"]) for row in table.to_pylist()} == expected
    assert {
        user: (row["n"], row["total"], row["largest"]) for user, row in newest(committed, "totals").items()
    } == expected
    assert sum(json.loads(note["ottla.offsets"])["events"].values()) == len(first) + len(broken) + 3

    minutes = in_time.groupby([in_time["at"].dt.floor("min"), "kind"]).size()
    tumbling = {(row["start"], row["kind"]): row["n"] for row in read_delta(str(tmp_path / "tumbling"))[0].to_pylist()}
    assert tumbling == {(at.to_pydatetime(), kind): n for (at, kind), n in minutes.items()}

    hops: Counter[str] = Counter()
    for at, amount in zip(in_time["at"], in_time["amount"], strict=True):
        for begin in (at.floor("min"), at.floor("min") - pd.Timedelta(minutes=1)):
            hops[f"{begin:%Y-%m-%d %H:%M}"] += amount
    database = sqlite3.connect(tmp_path / "vocabulary.db")
    found = dict(database.execute("select start, total from hopping").fetchall())
    assert {start: found.get(start) for start in hops} == dict(hops)

    gaps = in_time.sort_values(["user", "at"])
    number = (
        (gaps.groupby("user")["at"].diff() >= pd.Timedelta(seconds=30))
        .fillna(value=True)
        .groupby(gaps["user"])
        .cumsum()
    )
    sessions = gaps.groupby(["user", number]).agg(begin=("at", "min"), n=("at", "size"))
    expected_sessions = Counter((user, row.begin.to_pydatetime(), row.n) for (user, _), row in sessions.iterrows())
    got = read_delta(str(tmp_path / "sessions"))[0].to_pylist()
    assert Counter((row["user"], row["begin"], row["n"]) for row in got) == expected_sessions

    unique = sorted(row["id"] for row in values(committed, "unique"))
    assert unique == sorted(set(everything.id) - {90_002})

    right = pd.DataFrame(more)
    right["at"] = pd.to_datetime(right["at"], utc=True, format="ISO8601")
    both = (
        pd.DataFrame(first)
        .assign(at=lambda frame: pd.to_datetime(frame["at"], utc=True, format="ISO8601"))
        .merge(right, on=["user", "amount"])
    )
    near = both[(both.at_y >= both.at_x) & (both.at_y <= both.at_x + pd.Timedelta(minutes=1))]
    joined = Counter((row["a"], row["b"]) for row in values(committed, "pairs") if row["a"] < 90_000)
    assert joined == Counter(zip(near.id_x, near.id_y, strict=True))

    capital = {"ada": ("at", "Vienna"), "bob": (None, None), "eve": ("xx", None), "max": (None, None)}
    for row in values(committed, "enriched"):
        assert (row["country"], row["capital"]) == capital[row["user"]]
    assert len(values(committed, "enriched")) == len(everything)

    placed = [(row["id"], row.get("country")) for row in values(committed, "placed")]
    assert Counter(placed) == Counter((row.id, capital[row.user][0]) for row in everything.itertuples())
    located = {row["key"].decode(): row["value"] and json.loads(row["value"]) for row in committed("located")}
    assert {key: row and (row["country"], row.get("capital")) for key, row in located.items()} == {
        "ada": ("at", "Vienna"), "bob": None, "eve": ("xx", None),
    }  # fmt: skip

    highest = dict(database.execute("select user, highest from highest").fetchall())
    assert highest == everything.groupby("user").amount.max().to_dict()
    database.close()

    bad = committed("events.bad")
    assert sorted(row["value"].decode() for row in bad) == sorted(broken)
    headers = {one["key"]: one["value"] for one in bad[0]["headers"]}
    assert headers["__connect.errors.topic"] == b"events"
    assert b"not json of the schema" in headers["__connect.errors.exception.message"]


def test_it_runs_as_its_docstring_describes(tmp_path):
    commands = [
        line.split() for line in ast.get_docstring(ast.parse(FILE.read_text())).splitlines() if line[:4] == "    "
    ]
    assert [words[0] for words in commands] == ["python", "ottla"]
    (tmp_path / "examples").symlink_to(FILE.parents[1])
    with Broker() as broker:
        for program, *words in commands:
            here = [broker.bootstrap_servers if word == "localhost:9092" else word for word in words]
            start = [sys.executable] if program == "python" else [sys.executable, "-m", "ottla"]
            done = subprocess.run(
                [*start, *here], cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False,
                env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
        assert len(broker.records("events.bad")) == len(BROKEN)
        assert len(broker.records("words")) == 2 * len(made_up(400, 1, 0))
    totals = read_delta(str(tmp_path / "tables" / "totals"))[0].to_pylist()
    assert sum(row["n"] for row in totals) == len(made_up(400, 1, 0))
