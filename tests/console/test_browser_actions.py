"""Every action of the console, clicked in Chromium on a live Ottla: what changes, what asks for a name, what is refused.

What changes a cluster (`stage`) is clicked on Apache Kafka too.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets
from ottla.client.offsets import FoundOffset, list_offsets
from ottla.client.settings import client_settings
from ottla.console.messages.span import Walk
from ottla.pipelines import supervisor
from ottla.protocol.offset_timestamps import LATEST
from tests.console.scene import BEHIND, EMPTY, LINES, OPEN_TRANSACTION, PAYMENTS, PROFILES, VIEWS, wait_until
from tests.console.seen import shows, shows_count, shows_texts
from tests.console.site import ServedConsole, users_file

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def make_topic(console: ServedConsole, name: str, partitions: int = 1) -> str:
    assert console.post("/topics", name=name, partitions=str(partitions), replication_factor="1").status_code == 200
    return name


def write(console: ServedConsole, topic: str, values: list[str]) -> None:
    producer = Producer({**console.site.client, "linger.ms": 5})
    for n, value in enumerate(values):
        producer.produce(topic, key=str(n), value=value)
        producer.poll(0)
    assert producer.flush(60) == 0


def said(page: Any, text: str) -> None:
    page.get_by_role("status").get_by_text(text).wait_for()


def control(page: Any, label: str) -> Any:
    """A select or a textarea by its label: what stands in it counts as a part of the label's text otherwise."""
    fields = page.locator("label.field").filter(has=page.get_by_text(label, exact=True))
    return fields.locator("select, textarea").locator("visible=true")


# Topics and messages


def test_a_topic_is_configured_and_grown_and_emptied(stage: ServedConsole, stage_page: Any) -> None:
    page, topic = stage_page, make_topic(stage, "by-hand.configured")
    page.goto(f"/topics/{topic}/settings")
    page.get_by_label("Filter").fill("retention.ms")
    page.get_by_label("Change retention.ms", exact=True).click()
    row = page.locator("#settings tbody tr", has=page.get_by_label("Change retention.ms", exact=True))
    assert "delete" in row.locator("td").first.inner_text().lower(), "the setting has its documentation"
    row.get_by_label("New value").fill("3600000")
    row.get_by_role("button", name="Set").click()
    said(page, "retention.ms is now 3600000.")
    page.get_by_label("Change retention.ms", exact=True).click()
    page.get_by_role("button", name="Back to default").click()
    said(page, "retention.ms is back to its default.")
    page.get_by_role("link", name="Write and change").click()
    page.get_by_text("More partitions").click()
    page.get_by_role("button", name="Grow").click()
    said(page, f"{topic} has 2 partitions now.")
    write(stage, topic, ["x"] * 10)
    page.goto(f"/topics/{topic}/actions")
    page.get_by_text("Delete all records").click()
    emptying = page.locator("form[action$='/truncate']")
    emptying.get_by_label("to confirm").fill("another name")
    emptying.get_by_role("button").click()
    page.get_by_text("Nothing was changed").wait_for()
    page.go_back()
    page.get_by_text("Delete all records").click()
    emptying.get_by_label("to confirm").fill(topic)
    emptying.get_by_role("button").click()
    said(page, f"All records of {topic} are deleted.")
    page.get_by_role("link", name="Messages").click()
    page.get_by_text("No messages here").wait_for()


def test_messages_are_written_with_all_their_parts_and_replayed(stage: ServedConsole, stage_page: Any) -> None:
    page, source, target = stage_page, make_topic(stage, "by-hand.source"), make_topic(stage, "by-hand.target")
    page.goto(f"/topics/{source}/actions")
    page.get_by_label("Key", exact=True).fill("6b31")
    page.get_by_label("Key is").select_option("hex")
    page.get_by_label("Value", exact=True).fill('{"hello": "world"}')
    page.get_by_label("Headers").fill("trace: abc")
    page.get_by_role("button", name="Write it").click()
    said(page, "at offset 0")
    page.get_by_role("button", name="Show message 0").click()
    shows(page.locator(".message-detail:visible"), "abc")
    page.get_by_role("link", name="Write and change").click()
    page.get_by_label("no value (a tombstone)").check()
    page.get_by_role("button", name="Write it").click()
    said(page, "at offset 1")
    shows_count(page.get_by_text("tombstone", exact=True), 1)
    page.get_by_role("link", name="Write and change").click()
    page.get_by_text("Replay into another topic").click()
    page.get_by_label("Target topic").fill(target)
    page.get_by_role("button", name="Copy the messages").click()
    said(page, f"2 messages of {source} were copied here.")
    shows_count(page.locator("#message-rows tr:not(.message-detail)"), 2)
    shows(page.locator("#message-rows"), "k1")


def test_messages_are_shown_from_an_offset_and_a_time_and_sorted(living_page: Any) -> None:
    page = living_page
    page.goto(f"/topics/{LINES}/messages")
    control(page, "From").select_option("offset")
    page.get_by_label("Offset or time").fill("75")
    page.get_by_role("button", name="Show", exact=True).click()
    rows = page.locator("#message-rows tr:not(.message-detail)")
    shows_count(rows, 5)
    sizes = page.locator("#message-rows tr:not(.message-detail) td:nth-child(2)")
    page.get_by_role("button", name="Offset", exact=True).click()
    page.get_by_role("button", name="Offset", exact=True).click()
    shows_texts(sizes, ["79", "78", "77", "76", "75"])
    page.get_by_label("Filter").fill(":17 ")
    shows_count(page.locator("#message-rows tr:not(.message-detail):visible"), 1)
    shows_texts(page.locator("#messages-shown"), ["1"])
    page.goto(f"/topics/{LINES}/messages")
    control(page, "From").select_option("time")
    page.get_by_label("Offset or time").fill("-1h")
    page.get_by_role("button", name="Show", exact=True).click()
    shows_count(rows, 50)
    page.goto(f"/topics/{EMPTY}/messages")
    page.get_by_text("No messages here").wait_for()


def test_a_search_is_paused_resumed_and_cancelled(
    living: ServedConsole, living_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(living, "by-hand.hay")
    write(living, topic, [json.dumps({"n": n}) for n in range(3_000)])
    step = Walk.step

    def slowly(walk: Walk, _count: int, timeout_s: float) -> list[Any]:
        """And not to the end, however long the page takes to come and the clicks to be made."""
        time.sleep(0.05)
        return step(walk, 40, timeout_s) if walk.offsets_read < 2_000 else []

    monkeypatch.setattr(Walk, "step", slowly)
    page = living_page
    page.goto(f"/topics/{topic}/messages")
    page.get_by_text("Search or filter").click()
    page.get_by_label("Path in the value").fill("$.n == 2999")
    page.get_by_role("button", name="Search everything").click()
    page.get_by_role("button", name="Pause").click()
    page.locator("#live-state", has_text="paused").wait_for()
    read = page.locator("#live-seen").inner_text()
    page.wait_for_timeout(1_000)
    assert page.locator("#live-seen").inner_text() == read
    shows(page.locator("#live-offsets"), " of 3,000 offsets")
    page.reload()
    page.locator("#live-state", has_text="paused").wait_for()
    page.get_by_role("button", name="Resume").click()
    monkeypatch.setattr(Walk, "step", step)
    page.locator("#live-state", has_text="done").wait_for()
    shows_texts(page.locator("#live-matched"), ["1"])
    shows_texts(page.locator("#live-seen"), ["3,000"])
    monkeypatch.setattr(Walk, "step", slowly)
    page.get_by_role("button", name="Search everything").click()
    page.get_by_role("button", name="Cancel").click()
    page.locator("#live-state", has_text="cancelled").wait_for()
    assert page.get_by_role("button", name="Resume").is_disabled()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_messages_are_exported(living_page: Any, tmp_path: Path, kind: str) -> None:
    page = living_page
    page.goto(f"/topics/{LINES}/messages")
    page.get_by_text("Export", exact=True).click()
    control(page, "As").select_option(kind)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == f"{LINES}.{kind}"
    file = tmp_path / "export"
    download.value.save_as(file)
    if kind == "parquet":
        values = [value.decode() for value in pq.read_table(file)["value"].to_pylist()]
    elif kind == "csv":
        with file.open(newline="") as text:
            values = [row["value"] for row in csv.DictReader(text)]
    else:
        values = [json.loads(line)["value"] for line in file.read_text().splitlines()]
    assert len(values) == 80
    assert values[0].endswith("checkout took 0 ms")


# Groups


def test_offsets_are_set_anew_after_a_dry_run_and_a_group_is_deleted(stage: ServedConsole, stage_page: Any) -> None:
    page, topic, group = stage_page, make_topic(stage, "by-hand.read", 3), "by-hand.readers"
    write(stage, topic, ["x"] * 300)
    with Cluster(client_settings(stage.site.settings.bootstrap_servers, {})) as cluster:
        ends = list_offsets(cluster, {(topic, n): LATEST for n in range(3)})
        commit_offsets(
            cluster, group, {place: end.offset for place, end in ends.items() if isinstance(end, FoundOffset)}
        )
    wait_until(lambda: page.goto("/groups") and page.get_by_role("link", name=group).count())
    page.get_by_role("link", name=group).click()
    page.get_by_text("Reset offsets").click()
    control(page, "To").select_option("shift")
    page.get_by_label("Time, offset or shift").fill("-10")
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_text("Nothing has been changed yet.").wait_for()
    shows_texts(page.locator("#plan tbody td:last-child"), ["+10"] * 3)
    assert stage.site.sampler.history.lag_by_group[group].values[-1] == 0
    page.get_by_role("button", name="Set the offsets").click()
    said(page, f"3 offsets of {group} were set.")
    shows_texts(page.locator("#offsets tbody td:nth-child(5)"), ["10", "10", "10"])
    page.get_by_text("Delete the group").first.click()
    confirm = page.locator("form[action$='/delete']")
    confirm.get_by_label("to confirm").fill("dash")
    confirm.get_by_role("button").click()
    page.get_by_text("Nothing was changed").wait_for()
    page.go_back()
    page.get_by_text("Delete the group").first.click()
    confirm.get_by_label("to confirm").fill(group)
    confirm.get_by_role("button").click()
    said(page, f"Group {group} is deleted.")
    shows_count(page.get_by_role("link", name=group, exact=True), 0)


# Schemas


def test_a_schema_from_its_first_version_to_its_end(living_page: Any) -> None:
    page, subject = living_page, "by-hand-value"
    first = '{"type": "record", "name": "P", "fields": [{"name": "a", "type": "int"}]}'
    second = first.replace("]}", ', {"name": "b", "type": "int", "default": 0}]}')
    bad = first.replace("]}", ', {"name": "c", "type": "int"}]}')
    page.goto("/schemas")
    page.get_by_text("Register a schema").click()
    page.get_by_label("Subject", exact=True).fill(subject)
    control(page, "Schema").fill(first)
    page.get_by_role("button", name="Register", exact=True).click()
    said(page, "Registered with id")
    page.get_by_text("Try or register a new version").click()
    control(page, "Schema").fill(bad)
    page.get_by_role("button", name="Check it").click()
    page.get_by_text("No.", exact=True).wait_for()
    assert page.get_by_role("button", name="Register it").count() == 0
    control(page, "Schema").fill(second)
    page.get_by_role("button", name="Check again").click()
    page.get_by_text("Yes: it is compatible.").wait_for()
    page.get_by_role("button", name="Register it").click()
    said(page, "Registered with id")
    page.locator(".diff-add").filter(has_text='"default": 0').first.wait_for()
    page.get_by_text("Compatibility", exact=True).click()
    page.locator("form[action$='/level'] select").select_option("FULL")
    page.locator("form[action$='/level'] button").click()
    said(page, "New versions must be FULL.")
    page.get_by_text("Delete the subject").click()
    confirm = page.locator("form[action$='/delete']")
    confirm.get_by_label("to confirm").fill("no")
    confirm.get_by_role("button").click()
    page.get_by_text("Nothing was changed").wait_for()
    page.go_back()
    page.get_by_text("Delete the subject").click()
    confirm.get_by_label("to confirm").fill(subject)
    confirm.get_by_role("button").click()
    said(page, f"{subject} is deleted")
    shows_count(page.get_by_role("link", name=subject), 0)


# Pipelines, SQL, lineage, transactions


def test_a_pipeline_is_drawn_stopped_and_started(living: ServedConsole, living_page: Any) -> None:
    page, pipelines = living_page, living.pipelines
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"]) as process:
        words = [str(Path(pipelines.state).parent / "gone.py")]
        pipelines.tell("by-hand", "running", words=words, pid=process.pid, inputs=["topic:a"], outputs=["topic:b"])
        page.goto("/pipelines")
        assert "the database refused the password" in page.locator("#pipelines tbody").inner_text()
        page.get_by_role("button", name="Stop by-hand").click()
        said(page, "by-hand: stop asked for.")
        process.wait(20)  # raises while it still runs; its exit code went to the supervisor, which shares this process
    page.get_by_role("button", name="Start by-hand").click()
    said(page, "by-hand: start asked for.")
    row = page.locator("#pipelines tbody tr", has_text="by-hand")
    deadline = time.monotonic() + 60
    while "failed" not in row.inner_text() and "dead" not in row.inner_text():
        assert time.monotonic() < deadline, row.inner_text()
        page.wait_for_timeout(200)
        page.reload()
    assert "gone.py" in Path(supervisor.paths(pipelines.state, "by-hand")[2]).read_text()
    page.get_by_role("link", name="revenue").click()
    page.locator("svg.graph text", has_text="sum-by-minute").wait_for()
    shows_count(page.locator("#queries tbody tr"), 1)
    page.locator("svg.graph").get_by_role("link", name=PAYMENTS).click()
    page.get_by_role("heading", name=PAYMENTS).wait_for()


def test_sql_runs_and_says_what_is_wrong(living_page: Any) -> None:
    page = living_page
    page.goto("/sql")
    query = f"""select json->>'method' as method, count(*) as n from "{PAYMENTS}" group by 1 order by 1"""
    page.get_by_label("Query").fill(query)
    page.get_by_role("button", name="Run").click()
    shows_texts(page.locator("#answer tbody tr"), ["card\t100", "invoice\t100", "transfer\t100"])
    page.get_by_role("button", name="method").click()
    page.get_by_role("button", name="method").click()
    shows_texts(page.locator("#answer tbody td:first-child"), ["transfer", "invoice", "card"])
    page.get_by_label("Query").fill("selekt")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("alert").wait_for()


def test_lineage_is_drawn_and_leads_to_topics(living_page: Any) -> None:
    page = living_page
    page.goto("/lineage")
    graph = page.locator("svg.graph")
    for name in ("web-shop", f"group {BEHIND}", "pipeline revenue"):
        assert graph.get_by_text(name, exact=True).count() >= 1, name
    assert page.locator("#edges tbody tr", has_text="web-shop").filter(has_text=VIEWS).count() == 1
    graph.get_by_role("link", name=VIEWS).click()
    page.get_by_role("heading", name=VIEWS).wait_for()
    page.go_back()
    assert page.get_by_role("link", name="OpenLineage").get_attribute("href") == "/lineage.json"


def test_an_open_transaction_is_found(living_page: Any) -> None:
    page = living_page
    page.goto("/transactions")
    assert "Ongoing" in page.locator("#transactions tbody tr", has_text=OPEN_TRANSACTION).inner_text()
    page.get_by_role("link", name=OPEN_TRANSACTION).click()
    page.get_by_role("link", name=PROFILES).wait_for()
    assert "10 min" in page.locator("dl.facts").inner_text()


# Access, quotas, settings


def test_rules_and_users_come_and_go(stage_page: Any) -> None:
    page = stage_page
    page.goto("/access")
    page.get_by_text("New rule").click()
    page.get_by_label("Who").last.fill("User:clicker")
    page.get_by_label("Operation").last.select_option(label="Write")
    page.get_by_label("Name", exact=True).fill(VIEWS)
    page.get_by_role("button", name="Add").click()
    said(page, "User:clicker has a new rule.")
    page.get_by_role("button", name=f"Remove the rule of User:clicker on {VIEWS}").click()
    said(page, "1 rule removed.")
    page.get_by_text("New user or new password").click()
    page.get_by_label("User", exact=True).fill("clicker")
    page.get_by_label("Password").fill("long-enough")
    page.get_by_role("button", name="Save").click()
    said(page, "clicker can log in with SCRAM-SHA-256.")
    assert "long-enough" not in page.content()
    removing = page.locator("#users tbody tr", has_text="clicker")
    removing.get_by_label("Remove clicker").click()
    removing.get_by_label("Write clicker").fill("click")
    removing.get_by_role("button", name="Remove").click()
    page.get_by_text("Nothing was changed").wait_for()
    page.goto("/access")
    removing.get_by_label("Remove clicker").click()
    removing.get_by_label("Write clicker").fill("clicker")
    removing.get_by_role("button", name="Remove").click()
    said(page, "clicker cannot log in")
    shows_count(page.locator("#users tbody tr", has_text="clicker"), 0)


def test_quotas_come_and_go(stage_page: Any) -> None:
    page = stage_page
    page.goto("/quotas")
    page.get_by_label("Client id").fill("clicker")
    control(page, "Quota").select_option("consumer_byte_rate")
    page.get_by_label("Value").fill("2048")
    page.get_by_role("button", name="Set", exact=True).click()
    said(page, "consumer_byte_rate is now 2048.")
    page.get_by_role("button", name="Remove consumer_byte_rate of client-id clicker").click()
    said(page, "consumer_byte_rate was removed.")
    shows_count(page.locator("#quotas tbody tr", has_text="clicker"), 0)


@pytest.mark.parametrize("path", ["/settings", "/brokers/1"])
def test_settings_are_explained_and_changed(stage_page: Any, path: str) -> None:
    page, name = stage_page, "log.retention.ms"
    page.goto(path)
    page.get_by_label("Filter").last.fill("log.retention.ms")
    row = page.locator("#settings tbody tr", has=page.get_by_label(f"Change {name}", exact=True))
    assert len(row.locator("td").first.inner_text()) > len(name) + 20, "no documentation"
    row.get_by_label(f"Change {name}", exact=True).click()
    row.get_by_label("New value").fill("7200000")
    row.get_by_role("button", name="Set").click()
    said(page, f"{name} is now 7200000")
    row.get_by_label(f"Change {name}", exact=True).click()
    row.get_by_role("button", name="Back to default").click()
    said(page, f"{name} is back to its default.")


# Who may


def test_people_log_in_and_roles_hold(living: ServedConsole, open_page: Callable[..., Any], tmp_path: Path) -> None:
    users = users_file(tmp_path, "viewer", "admin")
    with ServedConsole(bootstrap_servers=living.site.settings.bootstrap_servers, users_file=users) as console:
        page = open_page(console)
        page.goto("/topics")
        for password, name in (("wrong", "viewer"), ("geheim-1", "viewer")):
            page.get_by_label("Name").fill(name)
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Log in").click()
            if password == "wrong":
                page.get_by_role("alert").wait_for()
        page.get_by_text("viewer (viewer)").wait_for()
        page.goto("/new-topic")
        page.get_by_label("Name").fill("viewers-own")
        page.get_by_role("button", name="Make the topic").click()
        page.get_by_role("heading", name="Not allowed").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("heading", name="Log in").wait_for()
        page.get_by_label("Name").fill("admin")
        page.get_by_label("Password").fill("geheim-1")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("admin (admin)").wait_for()  # going elsewhere at once would take the login back
        page.goto("/new-topic")
        page.get_by_label("Name").fill("admins-own")
        page.get_by_role("button", name="Make the topic").click()
        said(page, "Topic admins-own was made.")


def test_a_read_only_console_offers_no_change(living: ServedConsole, open_page: Callable[..., Any]) -> None:
    given = living.site.settings
    with ServedConsole(
        bootstrap_servers=given.bootstrap_servers, registry_url=given.registry_url, pipelines_url=given.pipelines_url,
        read_only=True,
    ) as console:  # fmt: skip
        page = open_page(console)
        for path in ("/topics", f"/topics/{VIEWS}/settings", f"/groups/{BEHIND}", "/schemas", "/access", "/quotas",
                     "/settings", "/pipelines", "/pipelines/revenue", f"/topics/{VIEWS}/actions"):  # fmt: skip
            page.goto(path)
            page.get_by_text("read only", exact=True).wait_for()
            forms = page.evaluate("[...document.querySelectorAll('form[method=post]')].map((form) => form.action)")
            assert forms == [], path
