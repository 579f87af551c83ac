"""Names, records, schemas, errors and queries that are HTML and scripts, on every page in Chromium: text stays text.

Every text that another party chooses carries MARKUP. A page fails if one element of it was parsed, if a script ran, or if
the content policy had to stop something.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets
from ottla.client.settings import client_settings
from ottla.pipelines.graph import svg
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import topic as topic_port
from ottla.testing import Broker
from tests.console.scene import Pipelines
from tests.console.site import ServedConsole
from tests.registry.instances import RegistryThread
from tests.support.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

MARKUP = (
    "hostile'\"></title></textarea></script></svg><script data-hostile>alert(1)</script>"
    "<img data-hostile src=x onerror=alert(2)><svg data-hostile onload=alert(3)>{{7*7}}<!--"
)
ATTRIBUTE = 'hostile" data-hostile autofocus onfocus="alert(4)" x=\''
ADDRESS = "javascript:alert('hostile')"
TEXTS = (MARKUP, ATTRIBUTE, ADDRESS)
TOPIC = "hostile.text"

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(event.violatedDirective + " " + event.blockedURI + " " + event.sample));
"""
FOREIGN = """() => [
  ...[...document.querySelectorAll("[data-hostile]")].map((each) => each.outerHTML.slice(0, 200)),
  ...[...document.querySelectorAll("[href], [action], [src]")]
    .map((each) => each.getAttribute("href") ?? each.getAttribute("action") ?? each.getAttribute("src"))
    .filter((address) => /^\\s*(javascript|data|vbscript):/i.test(address)),
  ...window.violations,
]"""


class HostileScene:
    """A cluster, a registry and pipelines whose every free text is one of TEXTS."""

    def __init__(self, folder: Path) -> None:
        with ExitStack() as stack:
            http = {"ottla.http.listener": f"127.0.0.1:{free_port()}"}
            rules = {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
            broker = stack.enter_context(Broker(properties={**http, **rules}))
            self.client = {"bootstrap.servers": broker.bootstrap_servers}
            registry = stack.enter_context(RegistryThread(broker.bootstrap_servers, topic="_schemas"))
            self._records()
            self._groups(stack)
            self._transaction(stack)
            pipelines = stack.enter_context(self._pipelines(folder))
            self.console = stack.enter_context(
                ServedConsole(
                    bootstrap_servers=broker.bootstrap_servers, registry_url=registry.url, pipelines_url=pipelines.url
                )
            )
            self._rules()
            self._schemas()
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def _records(self) -> None:
        admin = AdminClient(self.client)
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        producer = Producer({**self.client, "client.id": MARKUP})
        for text in TEXTS:
            producer.produce(TOPIC, key=text, value=text, headers={text: text})
            producer.produce(
                TOPIC, key=json.dumps({text: text}), value=json.dumps({text: [text]}), headers={text: None}
            )
        assert producer.flush(30) == 0

    def _groups(self, stack: ExitStack) -> None:
        with Cluster(client_settings(self.client["bootstrap.servers"], {})) as cluster:
            for text in TEXTS:
                commit_offsets(cluster, text, {(TOPIC, 0): 1})
        reader = Consumer(
            {**self.client, "group.id": f"living {MARKUP}", "client.id": MARKUP, "group.instance.id": MARKUP,
             "client.rack": MARKUP, "auto.offset.reset": "earliest"}
        )  # fmt: skip
        reader.subscribe([TOPIC])
        stack.callback(reader.close)
        assert reader.poll(60) is not None
        reader.commit(asynchronous=False)

    def _transaction(self, stack: ExitStack) -> None:
        producer = Producer({**self.client, "transactional.id": MARKUP, "transaction.timeout.ms": 600_000})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(TOPIC, key=b"open", value=b"\xff<b data-hostile>")
        producer.flush(30)
        stack.callback(producer.abort_transaction, 10)

    def _pipelines(self, folder: Path) -> Pipelines:
        pipelines = Pipelines(folder)
        file = folder / "hostile.py"
        file.write_text(
            "from ottla.pipelines import Pipeline, topic\n"
            f"p = Pipeline('hostile')\n@p.step(reads={{'rows': topic({TOPIC!r}, value='text')}}, writes=topic('x', value='text'))\n"
            "def step(rows):\n    return rows\n"
        )
        query = {"name": MARKUP, "active": True, "rows": 1, "rows_per_second": 1.0, "lag": 1, "batch": MARKUP,
                 "batch_ms": MARKUP, "restarts": MARKUP, "error": MARKUP}  # fmt: skip
        facts: dict[str, Any] = {"inputs": [f"topic:{MARKUP}"], "outputs": [f"delta:{MARKUP}"], "error": MARKUP}
        pipelines.tell("hostile", "running", words=[str(file)], queries=[query], **facts)
        pipelines.tell("hostile-connector", "failed", words=[MARKUP], **facts, **{"class": MARKUP, "kind": "connector"})
        return pipelines

    def _rules(self) -> None:
        rule = {"permission": "3", "operation": "3", "resource": "2", "pattern": "3"}
        for text in TEXTS:
            self._posted("/access/acls", principal=f"User:{text}", name=text, **rule)
            self._posted("/quotas", user=text, name="producer_byte_rate", value="1048576")
            self._posted("/quotas", **{"client-id": text}, name="producer_byte_rate", value="1048576")
        self._posted("/access/users", user=MARKUP, mechanism="2", password="long-enough")

    def _schemas(self) -> None:
        for text in TEXTS:
            schema = {
                "type": "record",
                "name": "R",
                "doc": text,
                "fields": [{"name": "f", "type": "string", "default": text}],
            }
            self._posted("/schemas", subject=f"{text}-value", schema=json.dumps(schema), type="AVRO")

    def _posted(self, path: str, /, **fields: str) -> None:
        response = self.console.post(path, **fields)
        assert response.status_code == 200, (path, fields, response.text)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileScene]:
    made = HostileScene(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


@pytest.fixture
def watched(open_page: Callable[..., Any], scene: HostileScene) -> Iterator[Any]:
    page = open_page(scene.console)
    page.add_init_script(WATCH)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    yield page
    assert dialogs == []


def addresses() -> list[tuple[str, str]]:
    """Every page with a text that it has to show, if it shows any."""
    plain = ("/", "/topics?internal=yes", "/groups", "/schemas", "/pipelines", "/brokers", "/brokers/1", "/settings")
    shown = ("/transactions", "/access", "/quotas", "/lineage", f"/topics/{TOPIC}", f"/topics/{TOPIC}/messages",
             f"/topics/{TOPIC}/consumers", "/pipelines/hostile", "/pipelines/hostile-connector")  # fmt: skip
    text = quote(MARKUP, safe="")
    named = [
        f"/{kind}/{quote(each + end, safe='')}"
        for kind, end in (("groups", ""), ("schemas", "-value"))
        for each in TEXTS
    ]
    named += [f"/groups/{quote('living ' + MARKUP, safe='')}", f"/transactions/{text}"]
    asked = [f"/?notice={text}", f"/topics/{TOPIC}/messages?partition={text}", f"/topics/{TOPIC}/messages?format={text}&mode={text}",
             f"/topics/{TOPIC}/messages?begin=time&at={text}", f"/topics/{TOPIC}/messages?key={text}&value={text}&count=5",
             f"/topics/{text}", f"/brokers/{text}", f"/pipelines/{text}", f"/nowhere/{text}",
             f"/login?next={text}", f"/new-topic?name={text}", f"/schemas/{text}?version={text}", f"/lineage?topic={text}"]  # fmt: skip
    return (
        [(path, "") for path in plain]
        + [(path, "hostile") for path in (*shown, *named)]
        + [(path, "") for path in asked]
    )


def test_no_text_of_others_becomes_markup(watched: Any, scene: HostileScene) -> None:
    scene.console.until("/lineage", "hostile&#39;")
    failures = []
    for path, text in addresses():
        watched.goto(path)
        failures += [f"{path}: {found}" for found in watched.evaluate(FOREIGN)]
        if text and text not in watched.content():
            failures.append(f"{path} does not show {text}")
    assert failures == []


def test_answers_to_forms_and_live_rows(watched: Any, scene: HostileScene) -> None:
    """What only comes after a click: query results, errors of queries, dry runs, schema checks, searches and tails."""
    watched.goto("/sql")
    for query in (
        f'select key, value, headers, json as "{MARKUP.replace(chr(34), chr(34) * 2)}" from "{TOPIC}"',
        f'select * from "{MARKUP.replace(chr(34), chr(34) * 2)}"',
        MARKUP,
    ):
        watched.locator("textarea[name=query]").fill(query)
        watched.locator("main form button").first.click()
        watched.get_by_text("hostile").first.wait_for(state="attached")
        assert watched.evaluate(FOREIGN) == []
    watched.goto(f"/topics/{TOPIC}/messages")
    watched.get_by_text("Search or filter").click()
    watched.get_by_label("Value contains").fill("hostile")
    watched.get_by_role("button", name="Search everything").click()
    watched.locator("#live-state", has_text="done").wait_for()
    assert "hostile" in watched.locator("#message-rows").inner_text()
    assert watched.evaluate(FOREIGN) == []
    watched.goto(f"/topics/{TOPIC}/messages")
    watched.get_by_role("button", name="Tail live").click()
    watched.locator("#live-state", has_text="reading").wait_for()
    producer = Producer(scene.client)
    producer.produce(TOPIC, key=MARKUP, value=MARKUP, headers={MARKUP: MARKUP})
    assert producer.flush(30) == 0
    watched.locator("#message-rows tr").first.wait_for(state="attached")
    assert watched.evaluate(FOREIGN) == []


def test_a_planted_element_is_seen(browser: Any, scene: HostileScene) -> None:
    """Without escaping, the checks of this file report elements, addresses and the stopped script."""
    page = browser.new_page(base_url=scene.console.url)
    page.add_init_script(WATCH)
    page.goto("/topics")
    page.evaluate("(html) => document.querySelector('main').insertAdjacentHTML('beforeend', html)", MARKUP)
    page.evaluate(
        "(html) => document.querySelector('main').insertAdjacentHTML('beforeend', html)", f'<a href="{ADDRESS}">a</a>'
    )
    page.wait_for_function("window.violations.length > 0")
    found = page.evaluate(FOREIGN)
    assert any("<img" in each for each in found)
    assert any(each.startswith("javascript:") for each in found)
    assert any(each.startswith("script-src") for each in found)
    page.close()


def test_the_drawing_of_a_pipeline_is_text(browser: Any) -> None:
    """`ottla pipeline graph` writes an SVG file that people open in a browser, without any policy."""
    pipeline = Pipeline(MARKUP)
    pipeline.step(reads={"rows": topic_port(MARKUP, value="text")}, writes=topic_port(ATTRIBUTE, value="text"))(
        _step := type("step", (), {"__name__": MARKUP, "__call__": lambda self, rows: rows})()
    )
    page = browser.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.set_content(svg(pipeline))
    assert page.locator("[data-hostile]").count() == 0
    assert "hostile" in page.content()
    assert dialogs == []
    page.close()
