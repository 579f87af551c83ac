"""Run one node until a signal: one clear line for every problem that prevents its start, and exit code 1."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from ottla.env.config.load import load
from ottla.env.config.problems import ConfigError
from ottla.env.config.properties import MalformedEscape, parse_properties
from ottla.env.config.providers import resolve
from ottla.runtime import descriptors
from ottla.server.errors import StartupError
from ottla.server.loop_failures import on_loop_failure
from ottla.server.node import Node


def run_from_file(file: Path, overrides: Sequence[str] = (), *, as_java: bool = False, strict: bool = False) -> int:
    """`ottla server start`; returns the exit code. `as_java`: after a signal, 128 plus the signal's number, as a JVM
    exits. `strict`: a property that Kafka does not have prevents the start.
    """
    signals: list[int] = []

    def command() -> int:
        config = load(read_properties(file, overrides), strict=strict)
        code = run(Node(config), on_signal=signals.append)
        return 128 + signals[0] if as_java and signals and code == 0 else code

    return exit_code(file, command)


def exit_code(file: Path, command: Callable[[], int], prefix: str = "ottla: ") -> int:
    """Returns the result of `command`, or 1 after one line for each problem of `file` or the machine."""
    try:
        return command()
    except ConfigError as error:
        for problem in error.problems:
            print(f"{prefix}{file}: {problem}", file=sys.stderr)
    except StartupError as error:
        print(f"{prefix}{error}", file=sys.stderr)
    return 1


def read_properties(file: Path, overrides: Sequence[str] = ()) -> dict[str, str]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise StartupError(f"cannot read {file}: {reason}") from error
    try:
        properties = parse_properties(text)
    except MalformedEscape as error:
        raise StartupError(f"{file}: {error}") from error
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator:
            raise StartupError(f"--override {override!r} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    return resolve(properties, os.environ, _text_of)


def _text_of(path: str) -> str | None:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def run(
    node: Node,
    on_started: Callable[[Node], None] | None = None,
    on_stopping: Callable[[], None] | None = None,
    on_signal: Callable[[int], None] = lambda _number: None,
) -> int:
    """Start, serve until SIGTERM or SIGINT, stop cleanly; a second signal ends at once. `on_stopping` is called in a
    thread while the node still serves.
    """
    descriptors.raise_limit()
    return run_loop(_serve(node, on_started, on_stopping, on_signal))


async def _serve(
    node: Node,
    on_started: Callable[[Node], None] | None,
    on_stopping: Callable[[], None] | None,
    on_signal: Callable[[int], None],
) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(on_loop_failure)
    stopping = asyncio.Event()

    def stop(number: int) -> None:
        on_signal(number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    if not await _started(node, stopping):
        return 0
    # Objects that exist now live as long as the node: the collector need not walk them again and again.
    gc.collect()
    gc.freeze()
    try:
        if on_started is not None:
            on_started(node)
        failed = asyncio.ensure_future(node.failed())
        stopped = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if failed.done():
            raise StartupError(failed.result())
        failed.cancel()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        if on_stopping is not None:
            await asyncio.to_thread(on_stopping)
        await node.stop()
    return 0


async def _started(node: Node, stopping: asyncio.Event) -> bool:
    """Start, unless a signal comes first: a node that waits for its quorum must end too."""
    starting = asyncio.ensure_future(node.start())
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.wait({starting})
    return False


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of uvloop if it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
