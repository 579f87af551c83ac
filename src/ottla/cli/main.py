"""`ottla`: commands are imported when they are called, so that a node and small tools start at once.

`ottla server start FILE` does not even load click: it would cost a running node 5 MB and 40 ms for one argument.
OTTLA_LOG_FORMAT=json makes every line of the log a JSON object, in every process.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    arguments = sys.argv[1:]
    if os.environ.get("OTTLA_LOG_FORMAT") == "json":
        from ottla.env.logging import configure

        configure(json=True)
    if len(arguments) == 3 and arguments[:2] == ["server", "start"] and not arguments[2].startswith("-"):
        from pathlib import Path

        from ottla.server.run import run_from_file

        sys.exit(run_from_file(Path(arguments[2])))
    from ottla.cli.commands import ottla

    ottla(prog_name="ottla")


if __name__ == "__main__":
    main()
