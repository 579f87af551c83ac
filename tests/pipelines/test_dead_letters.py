"""One dead letter for each bad record and input of a pipeline, over restarts, new steps and formats; counted, not as a set."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ottla.model.user_error import UserError
from ottla.pipelines.build import RunSettings
from ottla.pipelines.checkpoints import Checkpoint, LocalFiles
from ottla.pipelines.dead_letters import letter_queries, take_over, with_stored_names
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import table_of, topic
from ottla.pipelines.run import PipelineRun, StepFailed
from tests.pipelines.conftest import Topics

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def topics(ottla_server):
    return Topics(ottla_server)


def numbers(name, schema="n long", value="json", **more):
    return topic(name, value=value, schema=schema, **{"dead_letter": f"{name}.bad", **more})


def copied(rows):
    return rows.select("n")


def pipeline(name, readers):
    """A step for each port that it reads."""
    made = Pipeline(name)
    for number, port in enumerate(readers):

        def step(rows):
            return copied(rows)

        step.__name__ = f"step{number}"
        made.step(reads={"rows": port}, writes=topic(f"{name}-{number}", value="json"))(step)
    return made


def test_steps_share_the_letters_of_an_input_and_formats_do_not(spark, topics, committed, tmp_path):
    name = topics.new("letters", 2)
    values = [b'{"n": 1}', b"{", b'{"n": "one"}', b"\xff", None]
    topics.send(name, [(b"k%d" % n, value) for n, value in enumerate(values)])
    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))
    same = [numbers(name), numbers(name)]

    def letters():
        return Counter(row["value"] for row in committed(f"{name}.bad"))

    PipelineRun(spark, pipeline(f"{name}-p", same), settings).once()
    assert letters() == {b"{": 1, b'{"n": "one"}': 1, b"\xff": 1}
    # A new step with the same format repeats no letter; a new format is a new input, for which all history counts.
    topics.send(name, [(b"k9", b"[")])
    more = [numbers(name), numbers(name), numbers(name), numbers(name, "n string")]
    PipelineRun(spark, pipeline(f"{name}-p", more), settings).once()
    assert letters() == {b"{": 2, b'{"n": "one"}': 1, b"\xff": 2, b"[": 2}


def test_a_new_first_reader_with_another_format_repeats_no_letter(spark, topics, committed, tmp_path):
    """Each format goes on at its own checkpoint, in whatever order the steps are declared."""
    name = topics.new("first", 1)
    topics.send(name, [(b"a", b"{"), (b"b", b'{"n": "one"}')])
    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))

    def run(*formats):
        PipelineRun(spark, pipeline(f"{name}-p", [numbers(name, schema) for schema in formats]), settings).once()
        return Counter(row["value"] for row in committed(f"{name}.bad"))

    assert run("n long") == {b"{": 1, b'{"n": "one"}': 1}
    # `n string` is new: all history counts for it. `n long` is behind it now, and has no new letters.
    assert run("n string", "n long") == {b"{": 2, b'{"n": "one"}': 1}
    assert run("n string") == {b"{": 2, b'{"n": "one"}': 1}


def test_a_step_reads_the_letters_of_its_own_run(spark, topics, committed, tmp_path):
    """`once` ran the reader of the letters beside the step that brings them."""
    name = topics.new("read", 1)
    topics.send(name, [(b"a", b"{"), (b"b", b'{"n": 1}')])
    made = Pipeline(f"{name}-p")

    @made.step(reads={"letters": topic(f"{name}.bad", value="text")}, writes=topic(f"{name}-repaired", value="text"))
    def repair(letters):
        return letters.select("value")

    made.step(reads={"rows": numbers(name)}, writes=topic(f"{name}-out", value="json"))(copied)
    PipelineRun(spark, made, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))).once()
    assert [row["value"] for row in committed(f"{name}-repaired")] == [b"{"]


def queries_of(folder, *formats):
    """The names that a run gives, and the folders that Spark makes for them."""
    ports = [numbers("orders", schema, value) for value, schema in formats]
    checkpoint = Checkpoint(LocalFiles(), str(folder))
    queries = with_stored_names(letter_queries(pipeline("p", ports).steps), checkpoint)
    for query in queries:
        (folder / query.name / "offsets").mkdir(parents=True, exist_ok=True)
    return [query.name for query in queries]


def test_a_format_keeps_the_checkpoint_of_its_letters(tmp_path):
    long, text, avro = ("json", "n long"), ("json", "n string"), ("avro", "{}")
    first, second = "orders~orders.bad", "orders~orders.bad~step0.rows"
    assert queries_of(tmp_path, long) == [first]
    assert queries_of(tmp_path, text, long) == [second, first]
    assert queries_of(tmp_path, text) == [second]
    # The schema of the only reader was changed: it goes on where the letters of a format without readers ended.
    assert queries_of(tmp_path, ("json", "n int")) == [first]
    assert queries_of(tmp_path, avro, text, ("json", "n int")) == ["orders~orders.bad~2", second, first]
    assert queries_of(tmp_path, ("avro", "[]")) == ["orders~orders.bad~2"]
    # A checkpoint of an earlier version has no note: the order of its steps named the queries.
    (tmp_path / "ottla.letters.json").unlink()
    assert queries_of(tmp_path, text, long) == [first, "orders~orders.bad~step1.rows"]
    assert queries_of(tmp_path, long, text) == ["orders~orders.bad~step1.rows", first]
    (tmp_path / "ottla.letters.json").write_text("{")
    with pytest.raises(UserError, match=r"ottla.letters.json is not JSON"):
        queries_of(tmp_path, long)


def test_a_table_has_no_older_value_for_a_key_that_cannot_be_decoded(spark, topics, committed, tmp_path):
    """The bad value was left out, so that the one before it became the newest."""
    facts, clicks = topics.new("facts", 1), topics.new("clicks", 1)
    topics.send(facts, [(b"a", b'{"n": 1}'), (b"b", b"{"), (b"b", b'{"n": 2}'), (b"a", b"{"), (b"c", b'{"n": 3}')])
    topics.send(clicks, [(key, b'{"m": 0}') for key in (b"a", b"b", b"c")])
    made = Pipeline(f"{facts}-p")

    @made.step(
        reads={"clicks": numbers(clicks, "m long"), "facts": table_of(numbers(facts))},
        writes=topic(f"{facts}-out", value="json", key="key"),
    )
    def joined(clicks, facts):
        return clicks.join(facts.select("n", "_key"), "_key", "left").selectExpr("_key as key", "n")

    PipelineRun(spark, made, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))).once()
    rows = committed(f"{facts}-out")
    assert {row["key"]: json.loads(row["value"])["n"] for row in rows} == {b"a": None, b"b": 2, b"c": 3}
    assert [row["value"] for row in committed(f"{facts}.bad")] == [b"{", b"{"]
    alone = Pipeline(f"{facts}-q")
    alone.step(
        reads={"clicks": numbers(clicks, "m long"), "facts": table_of(numbers(facts, dead_letter=None))},
        writes=topic(f"{facts}-none", value="json", key="key"),
    )(joined)
    strict = PipelineRun(spark, alone, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path)))
    with pytest.raises(StepFailed, match=rf"bad record: {facts}-0 offset 1"):
        strict.once()


def test_names_of_queries_and_checkpoints_of_the_version_before(tmp_path):
    orders, other = numbers("orders"), numbers("orders", "n string", starting="latest")
    late = numbers("orders", starting="latest")
    made = pipeline(
        "p", [late, table_of(orders), other, numbers("raw", value="bytes"), numbers("orders", dead_letter="x")]
    )
    queries = letter_queries(made.steps)
    assert [(query.name, query.topic.starting, query.whole, query.readers) for query in queries] == [
        ("orders~orders.bad", "earliest", True, ["step0.rows", "step1.rows"]),
        ("orders~orders.bad~step2.rows", "latest", False, ["step2.rows"]),
        ("orders~x", "earliest", False, ["step4.rows"]),
    ]
    for number, offset in enumerate((3, 7)):
        folder = tmp_path / f"step{number}.rows.dead-letters"
        folder.mkdir()
        (folder / "position").write_text(str(offset))

    def position(path):
        return int((Path(path) / "position").read_text())

    for _ in range(2):
        take_over(str(tmp_path), queries[0], position)
        assert position(tmp_path / "orders~orders.bad") == 7
