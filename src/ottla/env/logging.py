"""Structured logging: events are `noun.past_verb` with facts as keys, one line each.

    2026-11-15T11:34:00.080Z info  node.started cluster=7shrkgVQ... listeners=127.0.0.1:9092 [ottla.server.node]

Written by hand rather than with structlog, whose import costs a node 7 MB and 50 ms before its first line
(docs/decisions/0007). `configure` is called once by a composition root; JSON lines are an option. A line that cannot be
written is lost, and nothing else: no work of a node fails because nobody reads its log.
"""

from __future__ import annotations

import sys
import time
import traceback
from typing import TextIO

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@,+")


class _Sink:
    """Where events go; one per process, replaced by `configure`."""

    def __init__(self, stream: TextIO | None, level: int, *, json: bool) -> None:
        self.stream = stream
        self.level = level
        self.json = json

    def emit(self, level: str, name: str, event: str, facts: dict[str, object]) -> None:
        error = facts.pop("exc_info", None)
        now = time.time()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        if self.json:
            line = _as_json({"timestamp": moment, "level": level, "event": event, "logger": name, **facts})
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
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else repr(text)


def _as_json(facts: dict[str, object]) -> str:
    import json

    return json.dumps(facts, default=str)


_FIRST = _Sink(None, _LEVELS["info"], json=False)
_sink = _FIRST


def configure(stream: TextIO | None = None, *, level: str = "info", json: bool = False) -> None:
    """`stream` None: the standard error of the moment."""
    global _sink  # noqa: PLW0603 - logging is process-wide by nature
    _sink = _Sink(stream, _LEVELS[level], json=json)


def configure_if_nobody_did(level: str) -> None:
    """For who runs inside another's program, and has no say there."""
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
        self._log("error", event, facts)


def get_logger(name: str) -> Logger:
    return Logger(name)
