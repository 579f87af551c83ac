"""Pictures of the console: a cluster with a small company on it, every page in Chromium, as PNG.

`python -m tools.screenshots` rewrites the few that docs/console.md shows; with a folder it takes every page, light, dark
and on a phone, for a person to look at.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from tests.console.living import living_console
from tests.console.scene import BEHIND, OPEN_TRANSACTION, ORDERS, PAYMENTS, VIEWS
from tests.support.browser import CHROMIUM_FLAGS, chromium

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic-new": "/new-topic",
    "topic": f"/topics/{VIEWS}",
    "messages": f"/topics/{ORDERS}/messages",
    "consumers": f"/topics/{PAYMENTS}/consumers",
    "topic-settings": f"/topics/{VIEWS}/settings",
    "topic-actions": f"/topics/{VIEWS}/actions",
    "groups": "/groups",
    "group": f"/groups/{BEHIND}",
    "schemas": "/schemas",
    "schema": f"/schemas/{ORDERS}-value",
    "pipelines": "/pipelines",
    "sql": "/sql",
    "brokers": "/brokers",
    "broker": "/brokers/1",
    "transactions": "/transactions",
    "transaction": f"/transactions/{OPEN_TRANSACTION}",
    "access": "/access",
    "quotas": "/quotas",
    "settings": "/settings",
    "lineage": "/lineage",
    "error": "/nowhere",
}
FOR_DOCS = ("overview", "messages", "group", "schema", "lineage")
WIDE, PHONE, SMALL = {"width": 1180, "height": 780}, {"width": 390, "height": 800}, {"width": 1000, "height": 600}


def take(page: Any, name: str, folder: Path, *, whole: bool) -> None:
    page.goto(PAGES[name])
    page.wait_for_load_state("networkidle")
    page.screenshot(path=folder / f"console-{name}.png", full_page=whole)


def main(folder: str | None) -> None:
    with (
        tempfile.TemporaryDirectory() as work,
        living_console(Path(work)) as console,
        sync_playwright() as play,
    ):
        browser: Any = play.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        time.sleep(8)  # a few looks, so that the lines of the charts have something to show
        if folder is None:
            page = browser.new_page(base_url=console.url, viewport=SMALL)
            for name in FOR_DOCS:
                take(page, name, IMAGES, whole=False)
        else:
            for look, viewport, scheme in (("light", WIDE, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light")):
                page = browser.new_page(base_url=console.url, viewport=viewport, color_scheme=scheme)
                target = Path(folder) / look
                target.mkdir(parents=True, exist_ok=True)
                for name in PAGES:
                    take(page, name, target, whole=True)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
