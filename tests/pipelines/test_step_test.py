"""The harness for steps: what docs/pipeline-testing.md shows, and each construct whose rows depend on the watermark or a table."""

from __future__ import annotations

import importlib.util
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.model.user_error import UserError
from ottla.pipelines import Pipeline, changes_of, delta, join, table_of, topic
from ottla.pipelines.run import StepFailed
from ottla.testing import DeadLetter

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(600)
EVENTS = topic("events", value="json", schema="id long, user string, at timestamp")
USERS = topic("users", value="json", schema="country string")


def modules_of_the_page(folder, monkeypatch):
    """The page's files, imported."""
    monkeypatch.syspath_prepend(str(folder))
    page = (ROOT / "docs/pipeline-testing.md").read_text()
    for name, text in re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        (folder / f"{name}.py").write_text(text)
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        yield module


def test_the_page(ottla_step, tmp_path, monkeypatch):
    _, shop, sessions = modules_of_the_page(tmp_path, monkeypatch)
    shop.test_an_order_is_paid_in_full(ottla_step)
    sessions.test_a_user_is_idle_after_a_minute()


def event(number, second, user="ada"):
    return {"id": number, "user": user, "at": datetime(2026, 11, 19, 12, 0, second, tzinfo=UTC)}


def test_windows_close_with_the_watermark_and_late_records_are_left_out(ottla_step):
    made = Pipeline("windows")

    @made.step(reads={"events": EVENTS}, writes=delta("tables/counts"))
    def counts(events):
        windows = events.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "user")
        return windows.agg(F.count("*").alias("n")).select(F.col("window.start").alias("start"), "user", "n")

    step = ottla_step(made)
    step.send("events", event(1, 1), event(2, 9))
    assert step.rows() == [], "the window is open"
    step.advance_watermark("2026-11-19T12:00:20Z")
    assert step.rows() == [{"start": datetime(2026, 11, 19, 12, tzinfo=UTC), "user": "ada", "n": 2}]
    step.send("events", event(3, 5), event(4, 25))
    step.advance_watermark(datetime(2026, 11, 19, 12, 1, tzinfo=UTC))
    assert [row["n"] for row in step.rows()] == [1], "a late record counts nowhere"


def test_duplicates_within_the_watermark(ottla_step):
    made = Pipeline("unique")

    @made.step(reads={"events": EVENTS}, writes=topic("unique", value="json"))
    def unique(events):
        return events.withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["id"]).select("id")

    step = ottla_step(made, "unique")
    step.send("events", event(1, 1), event(1, 2), event(2, 3))
    step.send("events", event(1, 4))
    assert sorted(row["id"] for row in step.rows()) == [1, 2]
    step.advance_watermark("2026-11-19T12:00:30Z")
    step.send("events", event(1, 31))
    assert step.rows() == [{"id": 1}], "the id was forgotten"


def test_tables_of_topics_and_others(ottla_step):
    made = Pipeline("tables")

    @made.step(
        reads={"events": EVENTS, "users": table_of(USERS), "names": delta("tables/names")},
        writes={"placed": topic("placed", value="json"), "named": topic("named", value="json")},
    )
    def enriched(events, users, names):
        placed = events.join(users.selectExpr("_key as user", "country"), "user", "left").select("id", "country")
        return {"placed": placed, "named": events.join(names, "user").select("id", "name")}

    step = ottla_step(made, "enriched")
    step.table("names", [{"user": "ada", "name": "Ada"}], "user string, name string")
    step.send("users", {"country": "uk"}, key="ada")
    step.send("events", event(1, 1), event(2, 2, user="bob"))
    assert sorted(step.rows("placed"), key=lambda row: row["id"]) == [
        {"id": 1, "country": "uk"}, {"id": 2, "country": None}
    ]  # fmt: skip
    step.send("users", {"country": "fr"}, key="ada")
    step.send("events", event(3, 3))
    assert step.rows("placed") == [{"id": 3, "country": "fr"}], "a table is read again for each batch"
    assert sorted(row["id"] for row in step.rows("named")) == [1, 3]
    with pytest.raises(UserError, match="is a table: give its rows with table"):
        step.send("names", {"name": "Bob"})
    with pytest.raises(UserError, match=r"has no table 'users' as input; its tables are \['names'\]"):
        step.table("users", [], "name string")


def test_a_join_with_the_row_of_its_time(ottla_step):
    made = Pipeline("joined")

    @made.step(reads={"events": EVENTS, "users": changes_of(USERS)}, writes=topic("placed", value="json"))
    def placed(events, users):
        return join(events, users, on="user", how="left").select("id", "country")

    step = ottla_step(made)
    step.send("users", {"country": "uk"}, key="ada", at="2026-11-19T12:00:00")
    step.send("users", None, key="ada", at="2026-11-19T13:00:00")
    step.send("events", event(1, 1), at="2026-11-19T12:30:00")
    step.send("events", event(2, 1), at="2026-11-19T13:30:00")
    assert sorted(step.rows(), key=lambda row: row["id"]) == [{"id": 1, "country": "uk"}, {"id": 2, "country": None}]


def test_what_fails_a_step_fails_the_test(ottla_step):
    made = Pipeline("plain")

    @made.step(reads={"events": EVENTS}, writes=topic("out", value="json"))
    def out(events):
        return events.select("id")

    step = ottla_step(made)
    step.send("events", "{")
    with pytest.raises(StepFailed, match=r"step out: bad record: events-0 offset 0: not json"):
        step.rows()
    with pytest.raises(UserError, match="has no input 'orders'; it reads"):
        step.send("orders", {})
    with pytest.raises(UserError, match="has no dead_letter topic"):
        step.dead_letters("events")
    assert DeadLetter(value=b"{", reason="").value == b"{"
    with pytest.raises(UserError, match="name a step of the pipeline plain: out"):
        ottla_step(made, "in")
