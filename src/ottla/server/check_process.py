"""Records that are costly to check against their schema, checked in a process of their own.

fastavro, json and jsonschema-rs hold Python's lock while they work: in a thread, one large record stops the loop for
seconds. The process starts with the first such record, gets one record at a time, and is killed when a record takes too
long. It has no environment variables of ours, which may hold secrets.
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
from functools import lru_cache
from typing import IO, NamedTuple

from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Dependency, Validator
from ottla.system.processes import own_command

_START_S = 60.0
_MAX_MEMORY = 2 << 30
_READY = b"ready\n"


class SchemaText(NamedTuple):
    schema_type: str
    schema: str
    dependencies: tuple[Dependency, ...]


class CheckProcess:
    """Only one thread may call `check`; any thread may close the process."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def check(self, schema: SchemaText, payload: bytes, timeout_s: float) -> str | None:
        """What is wrong with the payload. Raises TimeoutError if the check does not finish in time."""
        child = self._child or self._start()
        try:
            _pipe(child.stdin).write(pickle.dumps((schema, payload)))
            _pipe(child.stdin).flush()
            problem: str | None = json.loads(_line(child, timeout_s))
        except (TimeoutError, OSError, ValueError) as error:
            self._end()
            if isinstance(error, TimeoutError):
                raise
            return "the process that checked the record has ended"
        return problem

    def close(self) -> None:
        """Does not wait for a check under way: its process ends under it."""
        self._closed = True
        self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise TimeoutError
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
        self._child = child = subprocess.Popen(  # noqa: S603 - our own module
            own_command(module="ottla.server.check_process"),
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


@lru_cache(maxsize=100)
def _validator(schema: SchemaText) -> Validator:
    return parse_schema(schema.schema_type, schema.schema, schema.dependencies).validator()


def main() -> None:
    """The child: a pickled question of its parent on stdin, a line of JSON on stdout, until stdin ends."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    out = sys.stdout.buffer
    out.write(_READY)
    out.flush()
    with contextlib.suppress(EOFError):
        while True:
            schema, payload = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our parent
            try:
                problem = _validator(schema)(payload)
            except Exception as error:  # noqa: BLE001 - a supervisor: whatever a foreign record does, it is its own error
                problem = f"it cannot be checked: {type(error).__name__}"
            out.write(json.dumps(problem).encode() + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
