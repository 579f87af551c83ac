"""Runs one tool: `python -m ottla.cli.kafka NAME ARGUMENTS`. What no tool catches ends here, never in a traceback."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import TYPE_CHECKING

from ottla.cli.kafka.options import CTRL_C, INTERRUPTED
from ottla.cli.kafka.table import TOOLS, tool_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

_GOES_ON = frozenset({
    "consumer-perf-test", "e2e-latency", "producer-perf-test", "replica-verification", "verifiable-consumer",
    "verifiable-producer",
})  # fmt: skip
"""What they print is wanted now, into a pipe too."""


def run(program: str, arguments: list[str]) -> int:
    name = tool_name(program)
    if name not in TOOLS:
        print(f"There is no tool {program!r}; tools are {', '.join(sorted(TOOLS))}", file=sys.stderr)
        return 1
    module = importlib.import_module(f"ottla.cli.kafka.{TOOLS[name]}")
    try:
        code: int = module.main(arguments)
        sys.stdout.flush()
    except CTRL_C:
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has seen enough; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as reason:  # the tool's supervisor: one line for every error
        print(str(reason) or type(reason).__name__, file=sys.stderr)
        if os.environ.get("OTTLA_DEBUG"):
            raise
        return 1
    return code


class _Pipe(io.FileIO):
    """Standard output that ends the tool, without an error, once its reader is gone (`| head`), as Java's tools do."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            os._exit(0)


def main() -> None:
    if len(sys.argv) > 1 and not tool_name(sys.argv[1]).startswith("console-"):  # those close their consumer first
        raw = _Pipe(sys.stdout.fileno(), "w", closefd=False)
        by_line = sys.stdout.isatty() or tool_name(sys.argv[1]) in _GOES_ON
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", line_buffering=by_line)
    code = run(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # nothing is left to tear down, and an interpreter's own end costs 20 ms


if __name__ == "__main__":
    main()
