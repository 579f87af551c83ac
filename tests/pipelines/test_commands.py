"""`ottla pipeline` and `ottla sql` as a user types them; those that need no Spark."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.connect.sender import Outgoing, Sender
from ottla.model.user_error import UserError
from ottla.pipelines import supervisor
from ottla.pipelines import switch as switching
from ottla.pipelines.backfills import backfilled
from ottla.pipelines.build import _starting
from ottla.pipelines.checkpoints import Checkpoint, LocalFiles
from ottla.pipelines.pipeline import Pipeline, written_nodes
from ottla.pipelines.ports import delta, table_of, topic, view
from ottla.pipelines.reasons import plain_reason
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
    assert run("pipeline", "validate", str(file), "--no-plans").output == "shop: 2 steps, in order: first, second\n"
    drawn = json.loads(run("pipeline", "graph", str(file), "-o", "json").output)
    assert {"from": "step:first", "to": "topic:b"} in drawn["edges"]
    assert drawn["inputs"] == ["topic:a"]
    assert drawn["outputs"] == ["delta:tables/c", "topic:a.bad", "topic:b"]
    assert run("pipeline", "graph", str(file)).output.startswith("<svg")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "defines no pipeline"),
        (GOOD.replace("def first(rows)", "def first(other)"), "use the same names"),
        (GOOD.replace("def first", "def second"), "already a step of this name"),
        (GOOD.replace('delta("tables/c")', "a"), "in a circle"),
        (GOOD.replace("writes=b)", 'writes=b, output_mode="sometimes")'), "output_mode is one of"),
        ("def (:", "line 1: SyntaxError"),
        ("x = 1\nimport no_such_module", "line 2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def half(n):\n    return n / 0\n\n\nhalf(1)", "line 2: ZeroDivisionError: division by zero"),
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


def test_a_backfill_writes_beside_the_old_outputs_and_reads_them():
    shop = Pipeline("shop")
    middle, totals = topic("middle", value="text"), view("totals", "tables/totals", keys=["page"])
    rows = topic("in", value="text", dead_letter="in.bad")
    shop.step(reads={"rows": rows}, writes={"a": middle, "b": delta("tables/all"), "c": totals})(_first)
    reads = {"one": middle, "two": table_of(middle), "three": delta("tables/all"), "four": totals, "five": totals.topic}
    shop.step(reads=reads | {"six": table_of(topic("other", value="text"))}, writes=topic("end", value="text"))(_second)
    new = backfilled(shop, "-v2")
    assert new.name == "shop-v2"
    first, second = new.steps
    assert [port.node for port in first.writes.values()] == ["topic:middle-v2", "delta:tables/all-v2", "view:totals-v2"]
    assert [(port.name, port.dead_letter) for port in first.reads.values()] == [("in", "in.bad-v2")]
    assert [port.node for port in second.reads.values()] == [
        "topic:middle-v2", "topic:middle-v2", "delta:tables/all-v2", "view:totals-v2", "topic:totals-v2", "topic:other",
    ]  # fmt: skip
    assert [step.name for level in new.levels() for step in level] == ["-first", "-second"]


def test_dead_letters_come_before_the_steps_that_read_them():
    shop = Pipeline("shop")
    bad, views = topic("in.bad", value="text"), view("totals", "tables/totals", keys=["page"])
    shop.step(reads={"letters": bad}, writes=topic("repaired", value="text"))(repair)
    shop.step(reads={"rows": delta("tables/totals")}, writes=topic("end", value="text"))(last)
    shop.step(reads={"rows": topic("in", value="json", schema="n int", dead_letter="in.bad")}, writes=views)(totals)
    assert [[step.name for step in level] for level in shop.levels()] == [["totals"], ["repair", "last"]]
    new = backfilled(shop, "-v2")
    assert [[port.node for port in step.reads.values()] for step in new.steps] == [
        ["topic:in.bad-v2"], ["delta:tables/totals-v2"], ["topic:in"],
    ]  # fmt: skip
    assert new.steps[2].reads["rows"].dead_letter == "in.bad-v2"
    assert written_nodes(new.steps[2]) == [
        "view:totals-v2",
        "topic:totals-v2",
        "delta:tables/totals-v2",
        "topic:in.bad-v2",
    ]
    # A retry writes the input that its letters come from, which is no circle of outputs.
    retry = Pipeline("retry")
    source = topic("in", value="json", schema="n int", dead_letter="in.bad")
    retry.step(reads={"rows": source}, writes=topic("out", value="text"))(totals)
    retry.step(reads={"letters": bad}, writes=topic("in", value="text"))(repair)
    assert [[step.name for step in level] for level in retry.levels()] == [["repair"], ["totals"]]
    # The letters of an input come with its first reader; a second format of the topic has letters of its own.
    text = topic("in", value="json", schema="n string", dead_letter="in.bad")
    for port in (source, text):
        three = Pipeline("three")
        three.step(reads={"letters": bad}, writes=topic("repaired", value="text"))(repair)
        three.step(reads={"rows": source}, writes=topic("out", value="text"))(totals)
        if port is source:
            reads = {"rows": port, "more": topic("repaired", value="text")}
            three.step(reads=reads, writes=topic("end", value="text"))(both)
        else:
            three.step(reads={"rows": port}, writes=topic("end", value="text"))(last)
        levels = [["totals"], ["repair"], ["both"]] if port is source else [["totals", "last"], ["repair"]]
        assert [[step.name for step in level] for level in three.levels()] == levels


def both(rows, more):
    return rows, more


def repair(letters):
    return letters


def totals(rows):
    return rows


def last(rows):
    return rows


@pytest.mark.parametrize("option", ["txnAppId", "txnVersion", "newVersion", "checkpointLocation", "topic"])
def test_options_that_the_pipeline_sets_are_refused(option):
    with pytest.raises(
        ValueError, match=f"the option {option} of the topic a is set by the pipeline itself: leave it out"
    ):
        topic("a", options={"kafka.linger.ms": "5", option: "1"})


def _first(rows):
    return rows


def _second(one, two, three, four, five, six):
    return one, two, three, four, five, six


class Version:
    """Says of itself, look after look, what a started pipeline would; the old one is a process that can be stopped."""

    def __init__(self, folder, monkeypatch, *looks: dict) -> None:
        self.folder, self.looks, self.started, self.stopped = str(folder), list(looks), 0, []
        monkeypatch.setattr(supervisor, "current", self.current)
        monkeypatch.setattr(supervisor, "stop", lambda _state, name: self.stopped.append(name) or True)
        monkeypatch.setattr(switching, "_LOOK_S", 0.0)

    def current(self, _state, name):
        if not self.started:
            return {"name": name, "state": "stopped", "log": "x.log"}
        look = self.looks[0] if len(self.looks) == 1 else self.looks.pop(0)
        return {"name": name, "log": "x.log", "lag": 7, **look}

    def start(self):
        self.started += 1

    def switch(self, told, patience_s=60.0):
        switching.switch(self.folder, "shop", "shop-v2", self.start, patience_s=patience_s, report=told.append)


def at(*queries, state="running"):
    return {"state": state, "queries": [dict(zip(("active", "batch", "lag"), one, strict=True)) for one in queries]}


def test_a_switch_waits_until_each_query_has_looked_and_has_nothing_left(tmp_path, monkeypatch):
    looks = [
        at(state="starting"), at(), at((True, -1, 0)), at((True, 3, 0), (True, -1, 0)), at((True, 3, 0), (True, 4, 5)),
        at((True, 3, 0), (False, 4, 0)), at((True, 3, 0), (True, 4, 0)),
    ]  # fmt: skip
    version = Version(tmp_path, monkeypatch, *(look for look in looks for _ in range(2)))
    told: list[str] = []
    version.switch(told)
    assert version.looks == [looks[-1]]
    assert (version.started, version.stopped) == (1, ["shop"])
    assert told[-1] == "shop-v2: has caught up; shop is stopped"
    version.switch(told)
    assert version.started == 1, "one that runs is not started again"


@pytest.mark.parametrize(
    ("look", "words"),
    [
        ({"state": "failed", "error": "step x: boom"}, "shop-v2 did not get there: step x: boom. shop is as it was"),
        ({"state": "stopped"}, "shop-v2 did not get there: it stopped"),
        (at((True, 3, 9)), "shop-v2 is 7 records behind after 0 s; both versions run"),
    ],
)
def test_a_switch_that_does_not_come_about_leaves_the_old_version(tmp_path, monkeypatch, look, words):
    version = Version(tmp_path, monkeypatch, look)
    with pytest.raises(UserError, match=words):
        version.switch([], patience_s=0.0)
    assert version.stopped == []


def test_a_switch_needs_a_backfill_and_another_version(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(GOOD)
    state = ["--state", str(tmp_path / "state")]
    done = run("pipeline", "switch", str(file), *state)
    assert done.exit_code == 1
    assert "shop-v2 has no checkpoint" in done.output
    assert "ottla pipeline backfill" in done.output
    folder = tmp_path / "state" / "checkpoints" / "shop-v2"
    (folder / "first").mkdir(parents=True)
    (folder / "ottla.json").write_text('{"version": 1}')
    done = run("pipeline", "switch", str(file), *state)
    assert "no backfill of shop-v2 has come to its end for first, second: run `ottla pipeline backfill`" in done.output
    Checkpoint(LocalFiles(), str(folder)).note_finished(["first"])
    assert "has come to its end for second: run" in run("pipeline", "switch", str(file), *state).output
    Checkpoint(LocalFiles(), str(folder)).note_finished(["first", "second"])
    done = run("pipeline", "switch", str(file), *state, "--from", "shop-v2")
    assert done.output == "ottla: shop-v2 cannot be switched to itself: --from names the version that runs now\n"


def test_offsets_of_a_backfill_are_each_topics_own():
    given = {"startingOffsets": '{"a": {"0": 5}, "b": {"0": 7}}'}
    assert _starting(given, "a") == {"startingOffsets": '{"a": {"0": 5}}'}
    assert _starting(given, "made-here") == {"startingOffsets": "earliest"}
    assert _starting({"startingOffsets": "earliest"}, "a") == {"startingOffsets": "earliest"}
    assert _starting({"startingTimestamp": "17"}, "a") == {"startingTimestamp": "17"}


def test_options_from_a_file(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr("ottla.cli.verbs.pipeline._run", lambda _file, _pipelines, options: seen.update(options))
    (tmp_path / "shop.py").write_text(GOOD)
    settings = tmp_path / "shop.yaml"
    settings.write_text(
        "master: local[3]\nbootstrap-servers: log:1\nmax-offsets-per-trigger: 7\nat-least-once: true\n"
        "property:\n  security.protocol: SSL\nconf.spark.driver.memory: 2g\n"
    )
    words = ["pipeline", "run", str(tmp_path / "shop.py"), "--settings", str(settings)]
    done = run(*words, "--bootstrap-servers", "mine:2")
    assert done.exit_code == 0, done.output
    assert (seen["master"], seen["bootstrap_servers"], seen["max_offsets_per_trigger"]) == ("local[3]", "mine:2", 7)
    assert (seen["properties"], seen["spark_settings"]) == (("security.protocol=SSL",), ("spark.driver.memory=2g",))
    assert seen["at_least_once"] is True
    settings.write_text("mster: local[3]\n")
    done = run(*words)
    assert done.exit_code == 2
    assert "'mster' is not a setting" in done.output


def test_started_pipelines_and_their_states(tmp_path):
    state = supervisor.state_directory(str(tmp_path))
    assert supervisor.current(state, "x")["state"] == "stopped"
    assert not supervisor.stop(state, "x")
    supervisor.write_json(str(tmp_path / "x.status.json"), {"name": "x", "state": "running"})
    supervisor.write_json(str(tmp_path / "x.json"), {"name": "x", "words": [], "pid": 2**22 - 7})
    assert supervisor.current(state, "x")["state"] == "dead"
    listed = run("pipeline", "list", "--state", str(tmp_path), "-o", "json")
    assert [(one["name"], one["state"]) for one in json.loads(listed.output)] == [("x", "dead")]
    with pytest.raises(UserError, match="letters, digits"):
        supervisor.current(state, "../x")


def test_the_state_is_in_the_project_and_former_state_is_still_there(tmp_path, monkeypatch, capsys):
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.delenv("OTTLA_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    former = home / "ottla" / "pipelines"
    former.mkdir(parents=True)
    (former / "x.status.json").write_text('{"name": "x", "state": "stopped"}')
    assert supervisor.state_directory() == str(former)
    assert "where earlier versions kept it; move the folder to .ottla/pipelines" in capsys.readouterr().err
    assert [one["name"] for one in supervisor.every(supervisor.state_directory())] == ["x"]
    (former / "x.status.json").unlink()
    assert supervisor.state_directory() == str(project / ".ottla" / "pipelines")
    (former / "x.status.json").write_text("{}")
    capsys.readouterr()
    assert supervisor.state_directory() == str(project / ".ottla" / "pipelines"), "the project has its own"
    assert supervisor.state_directory(str(tmp_path)) == str(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_process_that_was_given_the_number_since_is_left_alone(tmp_path):
    """After a reboot the number of a pipeline's process belongs to someone else."""
    state = supervisor.state_directory(str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            mine = {"name": "x", "words": [], "pid": stranger.pid, "started": time.time()}
            supervisor.write_json(str(tmp_path / "x.status.json"), {"name": "x", "state": "running"})
            supervisor.write_json(str(tmp_path / "x.json"), mine)
            assert supervisor.current(state, "x")["state"] == "running"
            supervisor.write_json(str(tmp_path / "x.json"), mine | {"started": time.time() - 3600})
            assert supervisor.current(state, "x")["state"] == "dead"
            assert not supervisor.stop(state, "x")
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_reasons_are_said_plainly():
    ours = "Traceback ...\nottla.tables.topics.UserError: topic 'x' does not exist: create it first\n SQLSTATE: 38000"
    assert plain_reason(RuntimeError(ours)) == "topic 'x' does not exist: create it first"
    bad = "[USER_RAISED_EXCEPTION] bad record: in-0 offset 17: not json of the schema n long: { SQLSTATE: P0001"
    assert plain_reason(RuntimeError(bad)) == "bad record: in-0 offset 17: not json of the schema n long: {"
    user = 'Traceback\n  File "/x/shop.py", line 7, in price\n    return 1 / 0\nZeroDivisionError: division by zero\n'
    assert plain_reason(RuntimeError(user)) == "ZeroDivisionError: division by zero in price (shop.py, line 7)"


RECORDED = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/pyspark/sql/utils.py", line 163, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
  File "/app/{file}", line 10, in write
    table()
{error}

=== Streaming Query ===
Identifier: [id = 369a35b0-ecf8-461c-9ab7-21e4f137ed4a, runId = 862afd04-f337-4f1d-a3f9-7a8993000017]
Current Committed Offsets: {{}}
"""
"""A failed batch of pyspark 4.3, as the query's exception shows it."""


@pytest.mark.parametrize(
    ("file", "error", "reason"),
    [
        ("shop.py", "Full: the sink is full", "Full: the sink is full in write (shop.py, line 10)"),
        (
            "shop.py",
            '_internal.TableNotFoundError: Local path "/x" does not exist\nError: Os { code: 2 }',
            'TableNotFoundError: Local path "/x" does not exist in write (shop.py, line 10)',
        ),
        ("shop.py", "AssertionError", "AssertionError in write (shop.py, line 10)"),
        ("site-packages/shop.py", "ValueError: 3 SQLSTATE: 38000", "ValueError: 3"),
        ("shop.py", "ottla.connect.exactly_once.Fenced: a newer run writes", "a newer run writes"),
    ],
)
def test_a_failed_batch_reports_its_exception(file, error, reason):
    """The class may have any name and a module; a traceback may have no frame of the user's own."""
    assert plain_reason(RuntimeError(RECORDED.format(file=file, error=error))) == reason


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
        sender.send([Outgoing("odd", b"\xff", '日本, "q"'.encode(), [("h", b"v"), ("n", None)])])
        sender.flush()
        done = run("sql", "select value, headers, key_bytes, null as none from odd", "-b", servers, "-o", "csv")
        head, row = csv.reader(io.StringIO(done.output))
        assert head == ["value", "headers", "key_bytes", "none"]
        assert (row[0], json.loads(row[1]), row[3]) == (
            '日本, "q"', [{"key": "h", "value": "v"}, {"key": "n", "value": None}], "",
        )  # fmt: skip
        marked = run("sql", "select '[/a] [red]b' as \"[x]\"", "-b", servers)
        assert "[/a] [red]b" in marked.output, "a value is no markup"
        assert "[x]" in marked.output
        wrong = run("sql", "select * from nothing", "-b", servers)
        assert wrong.exit_code == 1
        assert wrong.output.startswith("ottla: there is no topic 'nothing'")
        assert run("sql", "selec 1", "-b", servers).exit_code == 1
