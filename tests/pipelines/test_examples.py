"""The examples of `ottla example`: each step on plain DataFrames beside pandas, and all of them as a person runs them.

The commands themselves run with `make soak`: each starts a log and Spark.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.console.cluster.collect import collect
from ottla.console.cluster.history import History
from ottla.console.pages.overview import concerns
from ottla.examples.catalogue import EXAMPLES
from ottla.examples.feeding import Feeder, create_topics
from ottla.examples.outputs import Outputs
from ottla.examples.running import compare, load, tables_in
from ottla.pipelines.build import RunSettings
from ottla.pipelines.run import PipelineRun
from ottla.testing import Broker
from tests.robustness.server_process import environment
from tests.upgrade import observations as observe

pytestmark = pytest.mark.timeout(600)
COUNT = 600


class Inputs:
    """The events of an example: as the DataFrames of a step, and in pandas."""

    def __init__(self, spark: Any, name: str, folder: Path) -> None:
        self.spark = spark
        with tables_in(folder):
            self.steps = {step.name: step for pipeline in load(EXAMPLES[name]) for step in pipeline.steps}
        events = [event for event in EXAMPLES[name].events(COUNT) if not isinstance(event.value, bytes)]
        numbered = [(event, {"_offset": number, **event.value}) for number, event in enumerate(events)]
        self.rows = {topic: [row for event, row in numbered if event.topic == topic] for topic in EXAMPLES[name].topics}

    def frame(self, port: Any) -> Any:
        lines = self.spark.createDataFrame([(json.dumps(row),) for row in self.rows[port.name]], "value string")
        schema = f"_offset long, {port.value.schema}"
        return lines.select(F.from_json("value", schema).alias("row")).select("row.*")

    def result(self, step: str, **more: Any) -> Any:
        """What the step makes of its inputs; `more` has inputs that other steps make."""
        reads = {
            name: more.get(name) if name in more else self.frame(getattr(port, "topic", port))
            for name, port in self.steps[step].reads.items()
        }
        return self.steps[step].function(**reads)

    def pandas(self, topic: str) -> pd.DataFrame:
        return pd.DataFrame(self.rows[topic])


def rows_of(frame: Any) -> set[tuple[Any, ...]]:
    rows = [tuple(row) for row in frame.collect()]
    assert len(rows) == len(set(rows))
    return set(rows)


def test_films(spark, tmp_path):
    inputs = Inputs(spark, "films", tmp_path)
    positions = inputs.pandas("user.films.positions.json")
    catalogue = inputs.pandas("user.films.catalogue.json")[["film", "genre"]]
    watched = positions.merge(catalogue, on="film")
    branches = inputs.result("titles")
    assert branches["unknown"].count() == len(positions) - len(watched) > 0
    headers = branches["unknown"].select("_headers").first()[0]
    assert bytes(headers[0]["value"]) == b"unknown title"
    rows = branches["watched"].persist()
    newest = watched.sort_values("_offset").groupby(["viewer", "film"]).second.last()
    assert rows_of(inputs.result("resume", watched=rows)) == {(*key, second) for key, second in newest.items()}
    profiles = inputs.result("profiles", watched=rows)
    seconds = watched.groupby(["viewer", "genre"]).size() * 60
    assert rows_of(profiles.select("viewer", "genre", "seconds")) == {(*key, number) for key, number in seconds.items()}
    recommended = {row.viewer: row for row in inputs.result("recommend", profiles=profiles).collect()}
    likes = seconds.reset_index(name="seconds").sort_values(["seconds", "genre"]).groupby("viewer").genre.last()
    assert {viewer: row.because for viewer, row in recommended.items()} == likes.to_dict()
    begun = watched.groupby("viewer").film.agg(set)
    for viewer, row in recommended.items():
        films = catalogue[catalogue.genre == row.because].film
        assert row.film == min(set(films) - begun[viewer]), "the first film that the viewer has not begun"
    rows.unpersist()


def test_taxis(spark, tmp_path):
    inputs = Inputs(spark, "taxis", tmp_path)
    events = inputs.pandas("user.taxis.events.json")
    rides = inputs.result("dispatch").toPandas()
    assert len(rides) > 100
    assert (rides.rider.str.split(" ").str[0] == rides.driver.str.split(" ").str[0]).all(), "a driver of the city"
    by_rider = events[events.kind == "request"].set_index("who")
    free: dict[str, dict[str, tuple[float, float]]] = {}
    waiting: dict[str, list[str]] = {}
    expected = {}
    for event in events.itertuples():  # one map for all zones, and no state of the pipeline
        zone = f"{int(event.lat * 20)}/{int(event.lon * 20)}"
        drivers, riders = free.setdefault(zone, {}), waiting.setdefault(zone, [])
        drivers.pop(event.who, None)
        if event.kind == "free":
            drivers[event.who] = (event.lat, event.lon)
        elif event.kind == "request":
            riders.append(event.who)
        while drivers and riders:
            rider = riders.pop(0)
            place = by_rider.loc[rider]
            apart = pd.Series(
                {name: (lat - place.lat) ** 2 + (lon - place.lon) ** 2 for name, (lat, lon) in drivers.items()}
            )
            expected[rider] = apart.sort_index().idxmin()
            del drivers[expected[rider]]
    assert dict(zip(rides.rider, rides.driver, strict=True)) == expected
    assert rides.price.round(2).tolist() == ((3 + 1.2 * rides.km) * rides.factor).round(2).tolist()
    assert rides.factor.between(1, 3).all()
    assert rides.factor.max() > 1, "a ride is dearer when more ask than are free"
    events["zone"] = [f"{int(lat * 20)}/{int(lon * 20)}" for lat, lon in zip(events.lat, events.lon, strict=True)]
    events["start"] = pd.to_datetime(events["at"]).dt.floor("10min").dt.strftime("%H:%M")
    kinds = events.pivot_table(index=["zone", "start"], columns="kind", values="who", aggfunc="count", fill_value=0)
    factor = (kinds["request"] * 100 // kinds["free"].clip(lower=1) / 100).clip(1, 3)
    assert rows_of(inputs.result("prices").select("zone", "start", "factor")) == {
        (*key, value) for key, value in factor.items()
    }


def test_logs(spark, tmp_path):
    inputs = Inputs(spark, "logs", tmp_path)
    extra = [
        {
            "machine": "web-01",
            "kind": "log",
            "level": level,
            "text": "",
            "at": "2026-11-14T09:05:00+00:00",
            "_offset": 0,
        }
        for level in ("ERROR", "ERROR", "ERROR", "INFO")
    ]
    cpu = {"machine": "web-02", "kind": "metric", "metric": "cpu", "at": "2026-11-14T09:07:00+00:00", "_offset": 0}
    inputs.rows["logging.machines.all.json"] += [*extra, {**cpu, "value": 95.0}, {**cpu, "value": 91.0}]
    records = inputs.pandas("logging.machines.all.json")
    records["minute"] = pd.to_datetime(records["at"]).dt.strftime("%H:%M")
    assert inputs.result("lake").count() == len(records)
    minutes = records.groupby(["machine", "minute"])
    errors, lines = minutes["level"].apply(lambda levels: (levels == "ERROR").sum()), minutes["level"].count()
    cpu = records[records.metric == "cpu"].groupby(["machine", "minute"]).value.mean()
    failing = {(*key, "errors") for key in errors[(errors >= 3) & (errors * 5 >= lines)].index}
    busy = {(*key, "cpu") for key in cpu[cpu >= 90].index}
    alerts = inputs.result("alerts").where("not _deleted").select("machine", "minute", "reason")
    assert rows_of(alerts) == failing | busy
    assert ("web-01", "09:05", "errors") in failing
    assert ("web-02", "09:07", "cpu") in busy
    machines = records.groupby("machine")
    expected = {(name, len(part), (part["level"] == "ERROR").sum()) for name, part in machines}
    assert rows_of(inputs.result("dashboard").select("machine", "records", "errors")) == expected


def test_thermostats(spark, tmp_path):
    inputs = Inputs(spark, "thermostats", tmp_path)
    bounds = {"temperature": (19, 21, "heating"), "humidity": (50, 60, "dryer"), "air": (800, 1000, "fan")}
    expected, facts = [], set()
    for kind, (low, high, device) in bounds.items():
        for room, values in inputs.pandas(f"user.home.{kind}.json").groupby("room").value:
            facts.add((room, kind, len(values), values.min(), values.max()))
            below, above = ("on", "off") if kind == "temperature" else ("off", "on")
            states = pd.Series(
                [below if value <= low else above if value >= high else None for value in values]
            ).ffill()
            states = states.fillna("off")
            changes = states[states != states.shift(fill_value="off")]
            expected += [(room, device, action, values.iloc[number]) for number, action in changes.items()]
    commands = inputs.result("controller").persist()
    rows = commands.select("room", "device", "action", "value").collect()
    assert sorted(tuple(row) for row in rows) == sorted(expected)
    assert {action for _, _, action, _ in expected} == {"on", "off"}
    climate = inputs.result("climate").select("room", "kind", "readings", "lowest", "highest")
    assert rows_of(climate) == facts
    numbered = commands.withColumn("_offset", F.unix_timestamp("at"))
    newest = commands.toPandas().sort_values("at").groupby(["room", "device"]).action.agg(["last", "count"])
    assert rows_of(inputs.result("switches", commands=numbered)) == {
        (*key, last, n) for key, last, n in newest.itertuples()
    }
    commands.unpersist()


def test_census(spark, tmp_path):
    inputs = Inputs(spark, "census", tmp_path)
    lives = inputs.pandas("logging.census.lives.json")
    changes = inputs.result("changes").toPandas().sort_values("month")
    born = lives[lives.event == "birth"].set_index("person").day
    gone = lives[lives.event == "death"].set_index("person").day.reindex(born.index)
    for month in ("1900-01", "1931-07", "1969-12", "2025-12"):
        alive = (born.str[:7] <= month) & (gone.isna() | (gone.str[:7] > month))
        then = changes[changes.month <= month]
        assert then.births.sum() - then.deaths.sum() == alive.sum(), month
    towns = lives[lives.event == "birth"].set_index("person").town[gone.isna()].value_counts()
    assert rows_of(inputs.result("towns")) == set(towns.items())


def test_big_data(spark, tmp_path):
    inputs = Inputs(spark, "bigdata", tmp_path)
    clicks = inputs.pandas("user.shop.clicks.json")
    pages = clicks.groupby("page").ms.agg(["size", "sum", "max"])
    expected = set(pages.itertuples(name=None))
    assert rows_of(inputs.result("follow")) == rows_of(inputs.result("recompute")) == expected
    assert inputs.result("master").count() == len(clicks)


def test_an_example_on_the_log(spark, tmp_path):
    """One of them as queries, with its own comparison: what the other examples do in `make soak`."""
    example = EXAMPLES["census"]
    with tables_in(tmp_path / "tables"):
        (pipeline,) = load(example)
    with Broker() as broker:
        create_topics(broker.bootstrap_servers, example)
        feeder = Feeder(broker.bootstrap_servers, example.events(COUNT))
        feeder.start()
        feeder.join()
        settings = RunSettings(bootstrap_servers=broker.bootstrap_servers, checkpoints=str(tmp_path / "checkpoints"))
        PipelineRun(spark, pipeline, settings).once()
        outputs = Outputs(servers=broker.bootstrap_servers, folder=tmp_path / "tables")
        assert compare(example.expected(example.events(COUNT)), example.results(outputs))
        panels = example.panels(outputs)
    assert [panel.title.partition(" (")[0] for panel in panels] == [
        "population at the end of each decade",
        "population now",
    ]
    assert len(panels[0].rows) == 13
    assert panels[0].rows[-1][3] == sum(population for _, population in panels[1].rows)


def command(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    home = tmp_path / "empty"
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "example", *words],
        cwd=home, env=environment() | {"COLUMNS": "80", "TMPDIR": str(scratch)}, capture_output=True, text=True,
        timeout=1500, check=False,
    )  # fmt: skip
    left = [path.name for path in scratch.iterdir() if path.name.startswith(("ottla-example", "ottla-2", "tmp"))]
    assert (left, list(home.iterdir())) == ([], []), "something was left behind"
    return done


@pytest.mark.soak
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_one_command_in_an_empty_folder(tmp_path, name):
    done = command(tmp_path, name, "--events", "3000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "equal to plain Python" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "─" in line)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_sigterm_ends_log_spark_and_folder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "example", "census", "--events", "3000"],
        env=environment() | {"TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in process.stdout:
        if line.startswith("feed"):
            break
    process.terminate()
    assert process.wait(300) == 143
    assert "pipeline census" not in process.stdout.read()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("ottla-example", "ottla-2"))] == []


@pytest.mark.soak
@pytest.mark.timeout(9000)
def test_all_on_one_cluster_without_an_alarm(tmp_path):
    with Broker() as broker:
        for name in EXAMPLES:
            done = command(tmp_path, name, "--events", "2000", "-b", broker.bootstrap_servers)
            assert done.returncode == 0, done.stdout + done.stderr
        history = History()
        with observe.connected(broker.bootstrap_servers) as cluster:
            snapshot = collect(cluster)
        history.add(snapshot)
    assert [concern.text for concern in concerns(snapshot, history.lags(snapshot))] == []
    pipelines = {*EXAMPLES} - {"bigdata"} | {"speed", "batch"}
    assert {group.partition(".")[0] for group in snapshot.groups} == pipelines
