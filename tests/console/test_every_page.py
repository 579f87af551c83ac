"""Every page of the console in Chromium, on Ottla and on Apache Kafka: valid HTML, axe, keyboard, a phone, its tables.

PAGES is the list of all pages; a route that is not in it fails the first test here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from ottla.console.app import make_app
from ottla.console.settings import ConsoleSettings
from tests.console.scene import BEHIND, LIVE, OPEN_TRANSACTION, ORDERS, PAYMENTS, VIEWS
from tests.console.site import ServedConsole
from tests.support.browser import axe_source, html_complaints
from tests.support.kafka_jars import Unavailable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PAGES = {
    "/": "/",
    "/topics": "/topics?internal=yes",
    "/new-topic": "/new-topic",
    "/topics/{topic}": f"/topics/{VIEWS}",
    "/topics/{topic}/messages": f"/topics/{ORDERS}/messages",
    "/topics/{topic}/consumers": f"/topics/{PAYMENTS}/consumers",
    "/topics/{topic}/settings": f"/topics/{VIEWS}/settings",
    "/topics/{topic}/actions": f"/topics/{VIEWS}/actions",
    "/groups": "/groups",
    "/groups/{group:path}": f"/groups/{LIVE}",
    "/schemas": "/schemas",
    "/schemas/{subject:path}": f"/schemas/{ORDERS}-value",
    "/pipelines": "/pipelines",
    "/pipelines/{pipeline}": "/pipelines/revenue",
    "/sql": "/sql",
    "/brokers": "/brokers",
    "/brokers/{broker}": "/brokers/1",
    "/transactions": "/transactions",
    "/transactions/{transaction:path}": f"/transactions/{OPEN_TRANSACTION}",
    "/access": "/access",
    "/quotas": "/quotas",
    "/settings": "/settings",
    "/lineage": "/lineage",
}
NO_PAGES = {
    "/overview/live", "/topics/{topic}/export", "/topics/{topic}/tail", "/topics/{topic}/search/{search}/events",
    "/lineage.json", "/metrics", "/healthz", "/readyz", "/oidc/login", "/oidc/callback",
}  # fmt: skip
REACHED_BY_FORM = {"/topics/{topic}/search/{search}", "/login"}
ONLY_HERE = {"/schemas/{subject:path}", "/pipelines/{pipeline}"}
"""What the scene has on Ottla only, because nobody runs a registry or pipelines beside Apache Kafka here."""

UNREACHABLE = """() => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [data-action]')]
  .filter((each) => each.checkVisibility() && (each.tabIndex < 0 || !each.matches('a, button, input, select, textarea, summary')))
  .map((each) => each.outerHTML.slice(0, 120))"""
NAMELESS = """() => [...document.querySelectorAll('table')].filter((table) => {
    const heads = [...table.querySelectorAll('thead th')];
    const sortable = heads.length && heads.every((th) => th.querySelector('button.sort') || th.textContent === 'Change');
    return !(table.id && sortable && document.querySelector(`input[data-filters="${table.id}"]`));
  }).map((table) => table.outerHTML.slice(0, 200))"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_no_page_is_left_out() -> None:
    app = make_app(ConsoleSettings(bootstrap_servers="127.0.0.1:1"))
    routes = {getattr(route, "path", "") for route in app.routes if "GET" in (getattr(route, "methods", None) or ())}
    assert routes == set(PAGES) | NO_PAGES | REACHED_BY_FORM
    app.state.site.gateway.close()


def looked_at(page: Any, path: str, axe: str, themes: Sequence[str]) -> tuple[str, list[str]]:
    """The HTML as it was sent, and what is wrong with the page."""
    answer = page.goto(path)
    wrong = [] if answer.status in (200, 404) else [f"answers {answer.status}"]
    page.locator("h1").first.wait_for()
    for theme in themes:
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        # The page's own policy forbids inline scripts; evaluate goes around it.
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        wrong += [
            f"axe, {theme}: {each['id']} {[node['html'][:150] for node in each['nodes']][:2]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    wrong += [f"no key reaches {html}" for html in page.evaluate(UNREACHABLE)]
    wrong += [f"not sortable and filterable: {html}" for html in page.evaluate(NAMELESS)]
    page.set_viewport_size({"width": 390, "height": 800})
    if page.evaluate(WIDER) > 0:
        wrong.append("scrolls sideways on a phone")
    page.set_viewport_size({"width": 1280, "height": 850})
    return answer.text(), wrong


@pytest.mark.timeout(400)  # 20 s of work; 180 s were not enough for two of them at load 29
@pytest.mark.parametrize("server", ["ottla", "apache"])
def test_every_page_is_valid_accessible_and_fits(
    server: str, request: pytest.FixtureRequest, open_page: Callable[..., Any], tmp_path
) -> None:
    console: ServedConsole = request.getfixturevalue("living" if server == "ottla" else "apache_living")
    try:
        axe = axe_source()
    except Unavailable as reason:
        pytest.skip(str(reason))
    console.until("/groups", LIVE)
    page, html, wrong = open_page(console), {}, []
    themes = ("light", "dark") if server == "ottla" else ("dark",)  # the colours are the same, whoever answers
    paths = [path for route, path in PAGES.items() if server == "ottla" or route not in ONLY_HERE]
    for path in (*paths, "/nowhere"):
        html[path], complaints = looked_at(page, path, axe, themes)
        wrong += [f"{path}: {complaint}" for complaint in complaints]
    assert wrong == [], "\n".join(wrong)
    plan = {"topic": PAYMENTS, "to": "earliest", "at": "", "partition": ""}
    html["a dry run"] = console.post(f"/groups/{BEHIND}/reset", **plan).text
    html["an SQL answer"] = console.post("/sql", query=f'select * from "{PAYMENTS}" limit 3').text
    html["a search"] = console.post(f"/topics/{PAYMENTS}/search", value="card", begin="oldest").text
    html["a tail"] = console.get(f"/topics/{PAYMENTS}/messages", mode="tail").text
    if server == "ottla":
        body = {"schema": '{"type": "string"}', "type": "AVRO"}
        html["a check"] = console.post(f"/schemas/{ORDERS}-value/check", **body).text
    try:
        assert html_complaints(html, tmp_path) == []
    except Unavailable as reason:
        pytest.skip(f"everything but the HTML validator passed: {reason}")


def test_the_validator_and_the_checks_can_fail(living_page: Any, tmp_path) -> None:
    """Planted: a table without sorting, a click that no key reaches, a page that is too wide, bad HTML."""
    living_page.goto("/topics")
    living_page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend',"
        '\'<table><thead><tr><th>x</th></tr></thead></table><span data-action="menu">m</span><p id="wide">w</p>\')'
    )
    living_page.evaluate("document.getElementById('wide').style.width = '3000px'")
    assert len(living_page.evaluate(NAMELESS)) == 1
    assert len(living_page.evaluate(UNREACHABLE)) == 1
    assert living_page.evaluate(WIDER) > 0
    try:
        found = html_complaints(
            {"bad": "<!DOCTYPE html><html lang=en><title>t</title><p><div id=a></p><b id=a>"}, tmp_path
        )
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert any("Duplicate ID" in line for line in found)


def test_the_keyboard_walks_through_a_whole_page(living_page: Any) -> None:
    """Tab visits every visible control in the order of the page, and sorting and details work without a mouse."""
    page = living_page
    page.goto(f"/topics/{ORDERS}/messages?count=3")
    expected = page.evaluate(
        "() => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary')]"
        ".filter((each) => each.checkVisibility()).length"
    )
    seen = []
    for _ in range(expected + 5):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate("document.activeElement.outerHTML.slice(0, 100) + document.activeElement.textContent")
        )
        if page.evaluate("document.activeElement === document.body"):
            break
    assert len(seen) >= expected
    page.get_by_role("button", name="Offset").focus()
    page.keyboard.press("Enter")
    assert page.locator("#messages th[aria-sort=ascending]").count() == 1
    page.get_by_role("button", name=re.compile("Show message")).first.focus()
    page.keyboard.press("Space")
    assert page.locator(".message-detail:visible").count() == 1


def test_lineage_says_what_apache_kafka_cannot_tell(apache_living: ServedConsole, living: ServedConsole) -> None:
    assert "Apache Kafka never does" in apache_living.get("/lineage").text
    assert "As broker 1 saw it" in living.get("/lineage").text


def test_open_lineage_is_what_its_schema_says(living: ServedConsole) -> None:
    events: list[dict[str, Any]] = httpx.get(living.url + "/lineage.json", timeout=30).json()
    jobs = {event["job"]["name"]: event for event in events}
    assert VIEWS in {dataset["name"] for dataset in jobs["web-shop"]["outputs"]}
    assert PAYMENTS in {dataset["name"] for dataset in jobs[f"group {BEHIND}"]["inputs"]}
    assert {dataset["name"] for dataset in jobs["pipeline revenue"]["outputs"]} == {"shop.revenue"}
    for event in events:
        assert {"eventType", "eventTime", "run", "job", "inputs", "outputs", "producer", "schemaURL"} <= set(event)
        assert re.fullmatch(r"[0-9a-f-]{36}", event["run"]["runId"])
