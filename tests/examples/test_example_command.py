"""`ottla example` without Spark: the list, the code of an example, and what the examples have in common."""

from __future__ import annotations

import ast
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from ottla.cli.commands import ottla
from ottla.examples.catalogue import EXAMPLES, FILES, Panel
from ottla.examples.feeding import Feeder, create_topics
from ottla.examples.outputs import Outputs, served_views
from ottla.examples.progress import Progress, panel_table, query_table
from ottla.examples.running import ExampleFailed, Interruption, compare
from ottla.model.user_error import UserError
from ottla.testing import Broker

if TYPE_CHECKING:
    from ottla.pipelines.run import PipelineRun

names = pytest.mark.parametrize("name", list(EXAMPLES))
MOST_LINES = 150


def invoke(*words: str) -> Result:
    return CliRunner().invoke(ottla, ["example", *words])


def test_the_list_has_a_sentence_for_each() -> None:
    lines = invoke().output.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)
    assert {"films", "taxis", "logs", "thermostats", "census", "bigdata"} == set(EXAMPLES)
    assert all(line.endswith(".") and len(line) <= 80 for line in lines)


def test_an_unknown_example() -> None:
    done = invoke("opera")
    assert done.exit_code == 1
    assert "there is no example 'opera': use bigdata," in done.output


@names
def test_an_example_is_read_in_one_sitting(name: str) -> None:
    texts = [(EXAMPLES[name].folder / file).read_text() for file in FILES]
    assert sum(bool(line.strip()) for text in texts for line in text.splitlines()) <= MOST_LINES


@names
def test_show_and_copy(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES[name].folder / "pipeline.py").read_text()
    assert invoke(name, "--show").output == f"# {EXAMPLES[name].folder / 'pipeline.py'}\n{text}"
    done = invoke(name, "--copy", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == sorted(FILES)
    assert (tmp_path / name / "pipeline.py").read_text() == text
    again = invoke(name, "--copy", str(tmp_path))
    assert again.exit_code == 1
    assert "exists already" in again.output


@names
def test_a_pipeline_file_imports_no_other_file_of_its_example(name: str) -> None:
    """So that a copy of the file runs."""
    tree = ast.parse((EXAMPLES[name].folder / "pipeline.py").read_text())
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert [module for module in imported if module and module.startswith("ottla.examples")] == []


@names
def test_events_are_the_same_each_time(name: str) -> None:
    example = EXAMPLES[name]
    events = list(example.events(200))
    assert events == list(example.events(200))
    assert len(events) >= 200 * 0.9
    assert {event.topic for event in events} == set(example.topics)


def test_the_film_service_has_more_than_30_partitions() -> None:
    assert EXAMPLES["films"].topics["user.films.positions.json"] > 30


def test_the_feeder_writes_every_event() -> None:
    example = EXAMPLES["census"]
    with Broker() as broker:
        create_topics(broker.bootstrap_servers, example)
        feeder = Feeder(broker.bootstrap_servers, example.events(50))
        feeder.start()
        feeder.join()
        records = Counter(record.topic for topic in example.topics for record in broker.records(topic))
        assert records == Counter(event.topic for event in example.events(50))
        assert feeder.written == sum(records.values())
        with pytest.raises(UserError, match=r"ottla topic delete logging\.census\.lives\.json"):
            create_topics(broker.bootstrap_servers, example)
        outputs = Outputs(servers=broker.bootstrap_servers, folder=Path("nowhere"))
        assert outputs.sql('select count(*) from "logging.census.lives.json"') == [(feeder.written,)]
        assert outputs.sql("select 1 from changes", "changes") == [], "a table that is not there yet has no rows"


def test_feed_writes_the_events_alone() -> None:
    with Broker() as broker:
        done = invoke("census", "--feed", "--events", "20", "-b", broker.bootstrap_servers)
        count = sum(len(broker.records(topic)) for topic in EXAMPLES["census"].topics)
    assert done.output == f"{count} records are in logging.census.lives.json\n"
    assert count == len(list(EXAMPLES["census"].events(20)))


def test_the_views_of_an_example_are_only_read(tmp_path: Path) -> None:
    pipeline = EXAMPLES["films"].folder / "pipeline.py"
    with served_views(tmp_path / "state", {"films": pipeline}) as address:
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{address}/pipelines/films/start", method="POST"), timeout=30)
        assert refused.value.code == 405
        with urlopen(f"{address}/pipelines", timeout=30) as answer:
            assert answer.read() == b"[]"
        url = Outputs(servers="", folder=tmp_path, address=address).view_url(
            "films", "resume", viewer="a/b", film="c d"
        )
    assert (
        url
        == f"{address}/pipelines/films/views/resume/rows?key=%7B%22viewer%22%3A+%22a%2Fb%22%2C+%22film%22%3A+%22c+d%22%7D"
    )


def test_tables_go_into_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "rides").mkdir()
    done = invoke("taxis", "--keep", str(tmp_path))
    assert done.exit_code == 1
    assert f"{tmp_path} is not empty" in done.output


def test_a_wrong_result_fails() -> None:
    right = {"rides": {"ada": 1, "bob": 2}, "dead letters": 3}
    assert compare(right, right) == "equal to plain Python: 2 rides, 3 dead letters"
    with pytest.raises(ExampleFailed, match="rides: 1 differ, such as bob: 4 instead of 2"):
        compare(right, {**right, "rides": {"ada": 1, "bob": 4}})
    with pytest.raises(ExampleFailed, match="dead letters: 2 instead of 3"):
        compare(right, {**right, "dead letters": 2})
    with pytest.raises(ExampleFailed, match="rides"):
        compare(right, {"dead letters": 3})


def printed(*parts: object) -> list[str]:
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get().splitlines()


def test_numbers_stay_whole_at_80_columns() -> None:
    query = {
        "name": "thermostats/switches.of-the-rooms",
        "rows": 1_234_567,
        "lag": 7_654_321,
        "rows_per_second": 98_765.4,
    }
    letters = {**query, "name": "taxis/user.taxis.events.json~user.taxis.events.of-a-long-name.dead"}
    queries = [
        {**query, "active": True, "error": "", "batch": 1},
        {**letters, "active": False, "error": "", "batch": 1},
        {**query, "active": False, "error": "", "batch": -1},
    ]
    lines = printed(query_table(queries))
    assert all(len(line) <= 80 for line in lines)
    whole = [line for line in lines if "1,234,567" in line and "98,765" in line and "7,654,321" in line]
    assert len(whole) == 3
    assert whole[1].split()[:2] == ["dead", "letters"]
    assert whole[1].rstrip().endswith("done")
    assert whole[2].rstrip().endswith("waits")
    title = "a title that is much wider than the only column of its table"
    lines = printed(panel_table(Panel(title, (">rows",), [(1_234_567,)])))
    assert lines[0] == title, "a title stands on one line"
    assert any("1,234,567" in line for line in lines)


def test_each_step_is_a_line_where_no_terminal_is() -> None:
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture, Progress(console, "films") as progress, progress.stage("feed") as stage:
        stage.note = "12 records"
    (line,) = capture.get().splitlines()
    assert line.startswith("feed ")
    assert line.endswith(" s  12 records")


def test_a_terminal_shows_the_step_that_runs() -> None:
    console = Console(width=80, force_terminal=True)
    with console.capture() as capture, Progress(console, "films") as progress:
        with progress.stage("feed", lambda: (3, 12)):
            running = printed(progress.render())
        assert any("feed" in line for line in running)
        assert any("3 of 12" in line for line in running)
    assert "feed" in capture.get()


def test_a_signal_stops_the_queries_and_ends_after_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    with Interruption() as interruption:
        interruption.check()
        assert signal.getsignal(signal.SIGTERM) != handlers[signal.SIGTERM]
        on_signal = handlers[signal.SIGTERM]
    assert handlers == {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stopped = []
    interruption.work = cast("PipelineRun", SimpleNamespace(stop=lambda: stopped.append(1)))
    on_signal(signal.SIGTERM, None)
    assert stopped == [1]
    with pytest.raises(SystemExit) as ended:
        interruption.check()
    assert ended.value.code == 143
