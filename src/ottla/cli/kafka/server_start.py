"""kafka-server-start: one node from a server.properties file, in the foreground or with -daemon behind the shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_USAGE = "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"


def main(arguments: list[str]) -> int:
    words = list(arguments)
    daemon = bool(words) and words[0] == "-daemon"
    words = words[1:] if daemon else words
    if words[:1] in (["-c"], ["--config"]):  # how the course of seed 003 calls it
        words = words[1:]
    if not words:
        print(_USAGE)
        return 1
    file, remaining = words[0], words[1:]
    overrides = []
    while remaining:
        if remaining[0] == "--override" and len(remaining) > 1:
            overrides.append(remaining[1])
            remaining = remaining[2:]
        elif remaining[0].startswith("--override="):
            overrides.append(remaining[0].partition("=")[2])
            remaining = remaining[1:]
        else:
            print(f"Found non argument parameters: {','.join(remaining)}", file=sys.stderr)
            return 1
    if daemon:
        return _behind(file, overrides)
    from ottla.server.run import run_from_file

    return run_from_file(Path(file), tuple(overrides), as_java=True)


def _behind(file: str, overrides: list[str]) -> int:
    """In a session of its own, its output in LOG_DIR/kafkaServer.out as Kafka's script has it."""
    folder = Path(os.environ.get("LOG_DIR", "logs"))
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "ottla.cli.kafka", "server-start", file]
    for override in overrides:
        command += ["--override", override]
    with (folder / "kafkaServer.out").open("ab") as out:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)  # noqa: S603 - ourselves
    return 0
