"""Structured logging: events are `noun.past_verb` with facts as keys.

`get_logger` costs nothing at import: structlog is loaded when the first event is written. `configure` is called once
by the composition root.
"""

from __future__ import annotations

import sys
from typing import TextIO

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class _Sink:
    """Where events go; one per process, replaced by `configure`."""

    def __init__(self, stream: TextIO, level: int, *, json: bool) -> None:
        self.stream = stream
        self.level = level
        self.json = json
        self._render: object = None

    def emit(self, level: str, name: str, event: str, facts: dict[str, object]) -> None:
        import structlog

        if self._render is None:
            renderer = (
                structlog.processors.JSONRenderer(default=str)
                if self.json
                else structlog.dev.ConsoleRenderer(colors=self.stream.isatty(), pad_event_to=0)
            )
            self._render = structlog.wrap_logger(
                structlog.PrintLogger(self.stream),
                processors=[
                    structlog.processors.TimeStamper(fmt="iso", utc=True),
                    structlog.processors.format_exc_info,
                    renderer,
                ],
            )
        self._render.msg(event, level=level, logger=name, **facts)  # type: ignore[attr-defined]


_sink = _Sink(sys.stderr, _LEVELS["info"], json=False)


def configure(stream: TextIO | None = None, *, level: str = "info", json: bool = False) -> None:
    global _sink  # noqa: PLW0603 - logging is process-wide by nature
    _sink = _Sink(stream or sys.stderr, _LEVELS[level], json=json)


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
        self._log("error", event, facts)

    def exception(self, event: str, **facts: object) -> None:
        """An error with the traceback of the exception being handled."""
        self._log("error", event, {**facts, "exc_info": True})


def get_logger(name: str) -> Logger:
    return Logger(name)
