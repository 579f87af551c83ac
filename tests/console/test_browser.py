"""The console as a person uses it, in Chromium: a topic's life, a tail, tables, keys, themes, a phone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.console.seen import shows_count, shows_texts
from tests.console.site import ServedConsole

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def topic(console: ServedConsole, new_name: Callable[[str], str]) -> str:
    name = new_name("browser.clicks")
    assert console.post("/topics", name=name, partitions="2", replication_factor="1").status_code == 200
    producer = Producer(console.site.client)
    for n in range(200):
        producer.produce(name, key=f"user-{n % 7}", value=json.dumps({"n": n, "page": f"/p/{n % 3}"}))
    assert producer.flush(30) == 0
    return name


def test_a_person_makes_fills_searches_and_deletes_a_topic(stage_page: Any) -> None:
    """On Ottla and on Apache Kafka."""
    page = stage_page
    page.goto("/topics")
    page.get_by_role("link", name="New topic").click()
    page.get_by_label("Name").fill("by-hand")
    page.get_by_label("Partitions").fill("2")
    page.get_by_role("button", name="Make the topic").click()
    page.get_by_text("Topic by-hand was made.").wait_for()
    page.get_by_role("link", name="Write and change").click()
    page.get_by_label("Value", exact=True).fill('{"hello": "world"}')
    page.get_by_role("button", name="Write it").click()
    page.get_by_text("at offset 0").wait_for()
    page.get_by_role("button", name="Show message 0").click()
    assert page.locator("pre").last.inner_text() == '{\n  "hello": "world"\n}'
    page.get_by_text("Search or filter").click()
    page.get_by_label("Value contains").fill("world")
    page.get_by_role("button", name="Search everything").click()
    page.locator("#live-state", has_text="done").wait_for()
    shows_texts(page.locator("#live-matched"), ["1"])
    shows_count(page.locator("#message-rows tr:not(.message-detail)"), 1)
    page.get_by_role("link", name="Write and change").click()
    page.get_by_text("Delete the topic").first.click()
    confirm = page.locator("form[action$='/delete']")
    confirm.get_by_label("to confirm").fill("by-hand")
    confirm.get_by_role("button").click()
    page.get_by_text("Topic by-hand is deleted.").wait_for()


def test_a_tail_shows_new_messages_without_reloading(page: Any, console: ServedConsole, topic: str) -> None:
    page.goto(f"/topics/{topic}/messages")
    page.get_by_role("button", name="Tail live").click()
    page.locator("#live-state", has_text="reading").wait_for()
    producer = Producer(console.site.client)
    for n in range(3):
        producer.produce(topic, f"live {n}")
    producer.flush(20)
    page.get_by_text("live 2").first.wait_for()
    page.get_by_role("button", name="Stop").click()
    page.locator("#live-state", has_text="stopped").wait_for()


def test_tables_sort_and_filter(page: Any, topic: str) -> None:
    page.goto("/topics?internal=yes")
    names = page.locator("#topics tbody tr td:first-child a")
    page.get_by_role("button", name="Topic", exact=True).click()
    rising = names.all_inner_texts()
    page.get_by_role("button", name="Topic", exact=True).click()
    assert names.all_inner_texts() == rising[::-1]
    page.get_by_label("Filter").fill(topic)
    shows_count(page.locator("#topics tbody tr:visible"), 1)
    shows_texts(page.locator("#topics-shown"), ["1"])


def test_the_keyboard_is_enough(page: Any) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_theme_is_remembered_and_a_phone_gets_a_menu(page: Any) -> None:
    page.goto("/")
    page.get_by_role("button", name="Light or dark").click()
    chosen = page.evaluate("document.documentElement.dataset.theme")
    page.goto("/topics")
    assert page.evaluate("document.documentElement.dataset.theme") == chosen
    page.set_viewport_size({"width": 390, "height": 800})
    assert not page.get_by_role("link", name="Brokers and quorum").is_visible()
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Brokers and quorum").click()
    page.get_by_role("heading", name="Brokers and quorum").wait_for()
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0, "the page scrolls sideways on a phone"
