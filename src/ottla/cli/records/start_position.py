"""Where to start reading, as people write it: beginning, end, 1200, -10m, 2026-01-01, 2026-01-01T12:30:00Z."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import NamedTuple

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class When(NamedTuple):
    beginning: bool = False
    end: bool = False
    stored: bool = False
    offset: int | None = None
    timestamp_ms: int | None = None


def parse_when(text: str, now_ms: int | None = None) -> When:
    """ValueError with the forms that there are. A date without a zone is in the user's own."""
    word = text.strip().lower()
    if word in {"beginning", "earliest", "start"}:
        return When(beginning=True)
    if word in {"end", "latest"}:
        return When(end=True)
    if word == "stored":
        return When(stored=True)
    if word.isdigit():
        return When(offset=int(word))
    if match := _AGO.fullmatch(word):
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return When(timestamp_ms=now - int(float(match[1]) * _SECONDS[match[2]] * 1000))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is not a start position: use beginning, end, stored, an offset, -10m (also s, h, d, w), "
            "a date (2026-01-01) or a time (2026-01-01T12:30:00Z)"
        ) from None
    return When(timestamp_ms=int(moment.astimezone().timestamp() * 1000))
