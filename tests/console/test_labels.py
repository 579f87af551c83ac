"""No text of a drawing or a tile is wider than its box: on a phone, a tablet and a desk, with the widest letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.console.drawing import WIDTH
from ottla.model.label_width import fitted_label, label_width
from ottla.pipelines import Pipeline, topic
from ottla.pipelines.graph import svg
from tests.console.site import ServedConsole

WIDTHS = (390, 800, 1440)
TOPICS = ("W" * 60, "queuing.mail.outbox-of-all-countries", "mmmmmmmmmmmmmmmmmmmmmmmmmmmm", "illicit-little-list")
GROUPS = (
    "MWMWMWMWMWMWMWMWMWMWMWMWMWMWMW",
    "数据处理管道的消费者组" * 3,
    "billing-and-dunning.every-night",
    "é" * 40,
    "🚚" * 30,
)
OVERFLOWING_NODES = """() => [...document.querySelectorAll('svg g, a > g')].filter((node) => {
    const [box, text] = [node.querySelector('rect').getBoundingClientRect(), node.querySelector('text').getBoundingClientRect()];
    return text.left < box.left || text.right > box.right || text.top < box.top || text.bottom > box.bottom;
  }).map((node) => node.textContent)"""
OVERFLOWING_TILES = """() => [...document.querySelectorAll('.cards .card')].flatMap((tile) => {
    const [box, texts, wide] = [tile.getBoundingClientRect(), document.createTreeWalker(tile, NodeFilter.SHOW_TEXT), []];
    while (texts.nextNode()) {
      const range = document.createRange();
      range.selectNodeContents(texts.currentNode);
      for (const part of range.getClientRects())
        if (part.left < box.left || part.right > box.right) wide.push(texts.currentNode.textContent);
    }
    return wide;
  })"""
FILLED_TILES = """() => {
    const tiles = document.querySelectorAll('.cards .card');
    for (const tile of tiles) tile.querySelector('.number').innerHTML = '1,234,567,890,123';
    tiles[0].querySelector('.number').innerHTML = '<span class="tag bad">1,234 to look at</span>';
    tiles[4].querySelector('.label').textContent = 'topics, 12,345,678 partitions';
  }"""


@pytest.fixture(scope="module")
def labelled(console: ServedConsole) -> ServedConsole:
    client = console.site.client
    admin = AdminClient(client)
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
        made.result(60)
    for group in GROUPS:
        reader = Consumer({**client, "group.id": group, "enable.auto.commit": False})
        reader.commit(offsets=[TopicPartition(name, 0, 0) for name in TOPICS], asynchronous=False)
        reader.close()
    console.until("/lineage", GROUPS[2])
    return console


@pytest.mark.interop
@pytest.mark.timeout(180)
@pytest.mark.parametrize("width", WIDTHS)
def test_labels_of_the_lineage_and_tiles_fit(
    open_page: Callable[..., Any], labelled: ServedConsole, width: int
) -> None:
    page = open_page(labelled, viewport={"width": width, "height": 850})
    page.goto("/lineage")
    page.locator("svg.graph").wait_for()
    assert page.locator("svg.graph text").count() >= len(TOPICS) + len(GROUPS)
    assert page.evaluate(OVERFLOWING_NODES) == []
    page.goto("/")
    page.locator(".cards").wait_for()
    assert page.evaluate(OVERFLOWING_TILES) == []
    page.evaluate(FILLED_TILES)
    assert page.evaluate(OVERFLOWING_TILES) == []


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_labels_of_a_drawn_pipeline_fit(open_page: Callable[..., Any], console: ServedConsole) -> None:
    """The SVG of `ottla pipeline graph`, with the fonts of the browser."""
    page = open_page(console)
    pipeline = Pipeline("labels")
    for number, name in enumerate(TOPICS):
        step = pipeline.step(reads={"rows": topic(name)}, writes=topic(f"{name}.out"))
        step(_named("W" * 30 + str(number)))
    page.set_content(svg(pipeline))
    assert page.locator("svg text").count() >= 3 * len(TOPICS)
    assert page.evaluate(OVERFLOWING_NODES) == []


def _named(name: str) -> Any:
    def step(rows: Any) -> Any:
        return rows

    step.__name__ = name
    return step


@pytest.mark.parametrize("text", [*TOPICS, *GROUPS, "", "a"])
def test_a_label_keeps_its_end(text: str) -> None:
    label = fitted_label(text, WIDTH, 12)
    assert label_width(label, 12) <= WIDTH
    assert label == text or (label.startswith("…") and text.endswith(label[1:]) and len(label) > len("…"))
