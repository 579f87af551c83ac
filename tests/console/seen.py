"""What a page comes to show: each of these waits, because a click is over before the page that it leads to is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_WAIT_MS = 40_000


def shows_count(found: Any, count: int) -> None:
    from playwright.sync_api import expect

    expect(found).to_have_count(count, timeout=_WAIT_MS)


def shows_texts(found: Any, texts: Sequence[str]) -> None:
    """So many elements with just these texts, in this order."""
    from playwright.sync_api import expect

    expect(found).to_have_text(list(texts), use_inner_text=True, timeout=_WAIT_MS)


def shows(found: Any, text: str) -> None:
    from playwright.sync_api import expect

    expect(found).to_contain_text(text, use_inner_text=True, timeout=_WAIT_MS)
