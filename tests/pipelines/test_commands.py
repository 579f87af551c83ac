"""`ottla pipeline` and `ottla sql` as a user types them; those that need no Spark."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.connect.exactly_once import Outgoing, Sender
from ottla.pipelines import supervisor
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import topic
from ottla.pipelines.run import backfilled, plain_reason
from ottla.tables.topics import TableError
from ottla.testing import Broker

GOOD = """
from ottla.pipelines import Pipeline, topic, delta
p = Pipeline("shop")
a, b = topic("a", value="text", dead_letter="a.bad"), topic("b", value="text")

@p.step(reads={"rows": b}, writes=delta("tables/c"))
def second(rows):
    return rows

@p.step(reads={"rows": a}, writes=b)
def first(rows):
    return rows
"""


def run(*words: str):
    return CliRunner().invoke(ottla, list(words))


def test_validate_and_graph(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(GOOD)
    assert run("pipeline", "validate", str(file)).output == "shop: 2 steps, in order: first, second\n"
    drawn = json.loads(run("pipeline", "graph", str(file), "-o", "json").output)
    assert {"from": "step:first", "to": "topic:b"} in drawn["edges"]
    assert drawn["inputs"] == ["topic:a"]
    assert drawn["outputs"] == ["delta:tables/c", "topic:a.bad", "topic:b"]
    assert run("pipeline", "graph", str(file)).output.startswith("<svg")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "defines no pipeline"),
        (GOOD.replace("def first(rows)", "def first(other)"), "they must be the same"),
        (GOOD.replace("def first", "def second"), "already a step of this name"),
        (GOOD.replace('delta("tables/c")', "a"), "in a circle"),
        (GOOD.replace("writes=b)", 'writes=b, output_mode="sometimes")'), "output_mode is one of"),
    ],
)
def test_wrong_files_are_one_clear_error(tmp_path, text, words):
    file = tmp_path / "bad.py"
    file.write_text(text)
    done = run("pipeline", "validate", str(file))
    assert done.exit_code == 1
    assert words in done.output
    assert done.output.startswith("ottla: ")
    assert len(done.output.splitlines()) == 1


def test_a_backfill_writes_beside_the_old_outputs():
    shop = Pipeline("shop")
    middle = topic("middle", value="text")
    shop.step(reads={"rows": topic("in", value="text")}, writes=middle)(lambda rows: rows)
    shop.steps[0] = shop.steps[0]
    new = backfilled(shop, "-v2")
    assert new.name == "shop-v2"
    assert [port.node for port in new.steps[0].writes.values()] == ["topic:middle-v2"]
    assert [port.node for port in new.steps[0].reads.values()] == ["topic:in"]


def test_started_pipelines_and_their_states(tmp_path):
    state = supervisor.state_directory(str(tmp_path))
    assert supervisor.current(state, "x")["state"] == "stopped"
    assert not supervisor.stop(state, "x")
    supervisor.write_json(str(tmp_path / "x.status.json"), {"name": "x", "state": "running"})
    supervisor.write_json(str(tmp_path / "x.json"), {"name": "x", "words": [], "pid": 2**22 - 7})
    assert supervisor.current(state, "x")["state"] == "dead"
    listed = run("pipeline", "list", "--state", str(tmp_path), "-o", "json")
    assert [(one["name"], one["state"]) for one in json.loads(listed.output)] == [("x", "dead")]
    with pytest.raises(TableError, match="letters, digits"):
        supervisor.current(state, "../x")


def test_reasons_are_said_plainly():
    ours = "Traceback ...\nottla.tables.topics.TableError: topic 'x' does not exist: create it first\n SQLSTATE: 38000"
    assert plain_reason(RuntimeError(ours)) == "topic 'x' does not exist: create it first"
    bad = "[USER_RAISED_EXCEPTION] bad record: in-0 offset 17: not json of the schema n long: { SQLSTATE: P0001"
    assert plain_reason(RuntimeError(bad)) == "bad record: in-0 offset 17: not json of the schema n long: {"
    user = 'Traceback\n  File "/x/shop.py", line 7, in price\n    return 1 / 0\nZeroDivisionError: division by zero\n'
    assert plain_reason(RuntimeError(user)) == "ZeroDivisionError: division by zero in price (shop.py, line 7)"


def test_sql_over_topics(tmp_path):
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        servers = broker.bootstrap_servers
        sender = Sender({"bootstrap.servers": servers})
        rows = [{"page": f"/{n % 3}", "ms": n} for n in range(30)]
        sender.send(Outgoing("web.hits", b"k", json.dumps(row).encode()) for row in rows)
        sender.send([Outgoing("web.hits", None, b"\xff\xfe"), Outgoing("web.hits", b"gone", None)])
        sender.flush()
        query = """select json->>'page' as page, count(*) as n, sum((json->>'ms')::int) as ms from "web.hits"
                   where json is not null group by all order by page"""
        done = run("sql", query, "-b", servers, "-o", "json")
        assert [json.loads(line) for line in done.output.splitlines()] == [
            {"page": f"/{p}", "n": 10, "ms": sum(n for n in range(30) if n % 3 == p)} for p in range(3)
        ]
        table = run(
            "sql",
            'with h as (select * from "web.hits") select count(*) as n, count(value) as texts from h',
            "-b",
            servers,
        )
        assert "32" in table.output
        assert "30" in table.output
        assert "true at web.hits-0@32" in table.output
        marked = run("sql", "select '[/a] [red]b' as \"[x]\"", "-b", servers)
        assert "[/a] [red]b" in marked.output, "a value is no markup"
        assert "[x]" in marked.output
        wrong = run("sql", "select * from nothing", "-b", servers)
        assert wrong.exit_code == 1
        assert wrong.output.startswith("ottla: there is no topic 'nothing'")
        assert run("sql", "selec 1", "-b", servers).exit_code == 1
