"""A process of our own that answers one question after the other, and that may die.

Libraries for schemas and records hold Python's lock while they work: in a thread, one costly call stops the loop of its
process. The process starts with the first question and is killed when an answer takes too long. The process has a limit
of memory, and none of our environment variables, which may hold secrets.
A question is pickled; an answer is a line of JSON, because the parent must not unpickle what foreign bytes may have made.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import select
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

from ottla.system.processes import own_command

_START_S = 60.0
_MAX_MEMORY = 2 << 30
_READY = b"ready\n"


class ProcessEnded(Exception):
    """The process ended before its answer was complete."""


class QuestionProcess:
    """Only one thread may call `ask`; any thread may close the process."""

    def __init__(self, module: str) -> None:
        """`module` calls `answer_questions` when it runs as a program."""
        self._module = module
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ask(self, question: object, timeout_s: float) -> Any:
        """The answer. Raises TimeoutError if the answer does not come in time, ProcessEnded if the process ended."""
        child = self._child or self._start()
        try:
            _pipe(child.stdin).write(pickle.dumps(question))
            _pipe(child.stdin).flush()
            return json.loads(_line(child, timeout_s))
        except TimeoutError:
            self._end()
            raise
        except (OSError, ValueError) as error:
            self._end()
            raise ProcessEnded from error

    def close(self) -> None:
        """Does not wait for an answer: the process ends at once."""
        self._closed = True
        self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise TimeoutError
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
        self._child = child = subprocess.Popen(  # noqa: S603 - our own module
            own_command(module=self._module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        with contextlib.suppress(TimeoutError):
            _line(child, _START_S)
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    _pipe(pipe).close()
            child.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("a process without pipes")
    return pipe


def _line(child: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """The next line of the child, which writes one whole line for each question."""
    out = _pipe(child.stdout)
    poll = select.poll()
    poll.register(out, select.POLLIN)
    if not poll.poll(timeout_s * 1000):
        raise TimeoutError
    return out.readline()


def answer_questions(answer: Callable[[Any], Any], max_memory: int = _MAX_MEMORY) -> None:
    """The child: answers the questions of its parent until the standard input ends."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
    out = sys.stdout.buffer
    out.write(_READY)
    out.flush()
    with contextlib.suppress(EOFError):
        while True:
            reply = answer(pickle.load(sys.stdin.buffer))  # noqa: S301 - of our parent
            out.write(json.dumps(reply).encode() + b"\n")
            out.flush()
