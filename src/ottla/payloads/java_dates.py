"""Times in the patterns of Java's SimpleDateFormat: of Kafka Connect's transforms (UTC) and of Kafka's tools (local time)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_WRITE: dict[str, Callable[[datetime, int], str]] = {
    "y": lambda at, width: f"{at.year % 100:02d}" if width == 2 else f"{at.year:0{width}d}",
    "M": lambda at, width: at.strftime("%B" if width > 3 else "%b") if width > 2 else f"{at.month:0{width}d}",
    "d": lambda at, width: f"{at.day:0{width}d}",
    "D": lambda at, width: f"{at.timetuple().tm_yday:0{width}d}",
    "H": lambda at, width: f"{at.hour:0{width}d}",
    "h": lambda at, width: f"{at.hour % 12 or 12:0{width}d}",
    "m": lambda at, width: f"{at.minute:0{width}d}",
    "s": lambda at, width: f"{at.second:0{width}d}",
    "S": lambda at, width: f"{at.microsecond // 1000:0{width}d}",
    "a": lambda at, _: at.strftime("%p"),
    "E": lambda at, width: at.strftime("%A" if width > 3 else "%a"),
    "z": lambda at, _: at.strftime("%Z"),
    "Z": lambda at, _: at.strftime("%z"),
    "X": lambda at, width: _iso_zone(at.strftime("%z"), width),
}
_READ = {"y": "%Y", "M": "%m", "d": "%d", "D": "%j", "H": "%H", "h": "%I", "m": "%M", "s": "%S", "S": "%f", "a": "%p",
         "E": "%a", "z": "%Z", "Z": "%z", "X": "%z"}  # fmt: skip


class DatePattern:
    """ValueError, with Java's words, for a letter that has no meaning."""

    def __init__(self, pattern: str) -> None:
        self._parts: list[tuple[str, int] | str] = []
        for token in _TOKEN.finditer(pattern):
            letter = token[2]
            if letter is None:
                quoted = token[1]
                self._parts.append(token[0] if quoted is None else quoted.replace("''", "'") or "'")
            elif letter in _WRITE:
                self._parts.append((letter, len(token[0])))
            else:
                raise ValueError(f"Illegal pattern character '{letter}'")
        self._pattern = pattern
        self._strptime = "".join(map(_directive, self._parts))

    def write(self, timestamp_ms: int, zone: tzinfo | None = UTC) -> str:
        """`zone` None stands for the machine's own."""
        seconds, ms = divmod(timestamp_ms, 1000)
        at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000).astimezone(zone)
        return "".join(part if isinstance(part, str) else _WRITE[part[0]](at, part[1]) for part in self._parts)

    def read(self, text: str) -> int:
        """Milliseconds; ValueError for a text that does not match the pattern."""
        at = datetime.strptime(text, self._strptime)  # noqa: DTZ007 - UTC where the pattern has no zone
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return round((at - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)


def _directive(part: tuple[str, int] | str) -> str:
    if isinstance(part, str):
        return part.replace("%", "%%")
    letter, width = part
    if letter == "y" and width == 2:
        return "%y"
    if letter == "M" and width > 2:
        return "%B" if width > 3 else "%b"
    return "%A" if letter == "E" and width > 3 else _READ[letter]


def _iso_zone(offset: str, width: int) -> str:
    """`+0530` as one, two or three letters X write it; Z for UTC."""
    if offset == "+0000":
        return "Z"
    return offset[:3] if width == 1 else offset if width == 2 else f"{offset[:3]}:{offset[3:]}"
