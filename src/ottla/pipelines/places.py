"""Where a failure of a step comes from: the function and line of the user's file, and the records of the batch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from ottla.pipelines.positions import RESERVED_KEY

_OTTLA = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]pyspark[/\\]|[/\\]py4j[/\\]|[/\\]lib[/\\]python3")
_CALLED_FROM = re.compile(r"was called from\s+(\S+\.py):(\d+)")
"""Spark's words for the line that made an expression: the context of an error inside the JVM."""
_OFFSETS = re.compile(r"^Current (Committed|Available) Offsets: (\{.*\})$", re.MULTILINE)
_MOST_PARTITIONS = 5


def place_of(problem: BaseException, text: str) -> str:
    """` in FUNCTION (FILE, line N)`: the innermost line of the user that our code called, or the line that Spark names."""
    own = ""
    inside = False
    for path, line, function in _frames(problem.__traceback__):
        if path.startswith(_OTTLA):
            inside = True
        elif inside and is_users_file(path):
            own = f" in {function} ({os.path.basename(path)}, line {line})"
    if own:
        return own
    context = _CALLED_FROM.search(text)
    return f" ({os.path.basename(context[1])}, line {context[2]})" if context else ""


def is_users_file(path: str) -> bool:
    return not path.startswith((_OTTLA, "<")) and not _LIBRARY.search(path)


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    while trace is not None:
        code = trace.tb_frame.f_code
        yield os.path.abspath(code.co_filename), trace.tb_lineno, code.co_name
        trace = trace.tb_next


def records_of(text: str) -> str:
    """` (records T-0 12 to 17)`: the records of the batch that failed, from the offsets in the text of a query's error."""
    offsets = {kind: _by_partition(content) for kind, content in _OFFSETS.findall(text)}
    committed, available = offsets.get("Committed", {}), offsets.get("Available", {})
    parts = [
        f"{partition} {committed.get(partition, 0)} to {end - 1}"
        for partition, end in sorted(available.items())
        if end > committed.get(partition, 0)
    ]
    more = f" and {len(parts) - _MOST_PARTITIONS} more partitions" if len(parts) > _MOST_PARTITIONS else ""
    return f" (the batch has the records {', '.join(parts[:_MOST_PARTITIONS])}{more})" if parts else ""


def _by_partition(content: str) -> dict[str, int]:
    """Spark prints a map from each source's description to its offsets as JSON."""
    ends: dict[str, int] = {}
    decoder = json.JSONDecoder()
    for match in re.finditer(r": (?=\{)", content):
        try:
            offsets, _ = decoder.raw_decode(content, match.end())
        except ValueError:
            continue
        for topic, partitions in _topics(offsets):
            for number, offset in partitions.items():
                ends[f"{topic}-{number}"] = int(offset)
    return ends


def _topics(offsets: Any) -> Iterator[tuple[str, Mapping[str, int]]]:
    if isinstance(offsets, dict):
        for topic, partitions in offsets.items():
            is_topic = topic != RESERVED_KEY and isinstance(partitions, dict)
            if is_topic and all(isinstance(offset, int) for offset in partitions.values()):
                yield topic, partitions
