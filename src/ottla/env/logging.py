"""Structured logging: events are `noun.past_verb` with facts as keys, one line each.

    2026-11-15T11:34:00.080Z info  node.started cluster=7shrkgVQ... listeners=127.0.0.1:9092 [ottla.server.node]

Written by hand rather than with structlog, whose import costs a node 7 MB and 50 ms before its first line
(docs/decisions/0007). `configure` is called once by a composition root; JSON lines are an option. A line that cannot be
written is lost, and nothing else fails: a node keeps working when its log has no reader.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TextIO

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@,+")


BURST = 200
PER_SECOND = 10.0
"""Lines of one event: so many at once, then so many a second. What a peer makes happen must not fill a disk."""
SUMMARY_S = 10.0
MAX_TEXT = 2000
"""Characters of one fact: a name may be the choice of a peer."""


class _Flow:
    """The lines of one event."""

    __slots__ = ("at", "suppressed", "tokens")

    def __init__(self, now: float) -> None:
        self.at = now
        self.tokens = float(BURST)
        self.suppressed = 0

    def allows(self, now: float) -> bool:
        self.tokens = min(BURST, self.tokens + (now - self.at) * PER_SECOND)
        self.at = now
        if self.tokens < 1:
            self.suppressed += 1
            return False
        self.tokens -= 1
        return True


class _Sink:
    """Where events go; one per process, replaced by `configure`."""

    def __init__(self, stream: TextIO | None, level: int, *, json: bool) -> None:
        self.stream = stream
        self.level = level
        self.json = json
        self._flows: dict[str, _Flow] = {}
        self._told_at = time.monotonic()

    def emit(self, level: str, name: str, event: str, facts: dict[str, object]) -> None:
        """Write a line, unless there were too many of its event; those are counted, and the count is written."""
        now = time.monotonic()
        flow = self._flows.get(event)
        if flow is None:
            flow = self._flows[event] = _Flow(now)
        if flow.allows(now):
            self._write(level, name, event, facts)
        if now - self._told_at >= SUMMARY_S:
            self._told_at = now
            for other, seen in self._flows.items():
                if seen.suppressed:
                    count, seen.suppressed = seen.suppressed, 0
                    self._write("warning", __name__, "log.suppressed", {"events": other, "lines": count})

    def _write(self, level: str, name: str, event: str, facts: dict[str, object]) -> None:
        error = facts.pop("exc_info", None)
        now = time.time()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        if self.json:
            shortened = {key: _cut(value) for key, value in facts.items()}
            line = _as_json({"timestamp": moment, "level": level, "event": event, "logger": name, **shortened})
        else:
            words = [moment, f"{level:<7}", event, *(f"{key}={_shown(value)}" for key, value in facts.items())]
            line = f"{' '.join(words)} [{name}]"
        stream = self.stream or sys.stderr
        try:
            stream.write(line + "\n")
            if isinstance(error, BaseException):
                traceback.print_exception(error, file=stream)
            stream.flush()
        except (OSError, ValueError):  # a pipe that nobody reads any more, a full disk, a closed file
            return


def _shown(value: object) -> str:
    text = str(_cut(str(value)))
    return text if text and _PLAIN.issuperset(text) else repr(text)


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[:MAX_TEXT]}... ({len(value)} characters)"
    return value


def _as_json(facts: dict[str, object]) -> str:
    import json

    return json.dumps(facts, default=str)


_observers: list[Callable[[str, str, dict[str, object]], None]] = []
_FIRST = _Sink(None, _LEVELS["info"], json=False)
_sink = _FIRST


def configure(stream: TextIO | None = None, *, level: str = "info", json: bool = False) -> None:
    """`stream` None: the standard error of the moment."""
    global _sink  # noqa: PLW0603 - logging is process-wide by nature
    _sink = _Sink(stream, _LEVELS[level], json=json)


@contextlib.contextmanager
def observed(observer: Callable[[str, str, dict[str, object]], None]) -> Iterator[None]:
    """Within the block, `observer` gets the logger, event and facts of every error, also of lines that are suppressed."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def configure_if_nobody_did(level: str) -> None:
    """For code that runs inside another program, which may have configured logging."""
    if _sink is _FIRST:
        configure(level=level)


class Logger:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def _log(self, level: str, event: str, facts: dict[str, object]) -> None:
        if _LEVELS[level] >= _sink.level:
            _sink.emit(level, self.name, event, facts)

    def debug(self, event: str, **facts: object) -> None:
        self._log("debug", event, facts)

    def info(self, event: str, **facts: object) -> None:
        self._log("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self._log("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        """`exc_info=error` adds the traceback."""
        for observer in _observers:
            observer(self.name, event, facts)
        self._log("error", event, facts)


def get_logger(name: str) -> Logger:
    return Logger(name)
