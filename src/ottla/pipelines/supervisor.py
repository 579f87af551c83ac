"""Pipelines and connectors that run by themselves: each with a status file, a log and a process id.

A state directory holds, for each pipeline, NAME.json (how it was started), NAME.status.json (its last status) and
NAME.log. NAME.options.json has the options that `ps` should not show. A pipeline is `dead` if its process ended without
writing a final status.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from ottla.model.user_error import UserError
from ottla.system.owned_folders import stranger_who_writes
from ottla.system.processes import is_zombie, own_command, started_at

_NAME = re.compile(r"^[A-Za-z0-9._-]{1,200}$")
STATES = ("starting", "running", "restarting", "stopped", "finished", "failed", "dead")
STARTING, WAITING, CATCHING_UP = "starting", "waiting", "catching up"
"""What a pipeline or a query does while it is under way, beside `running`."""
_UNDER_WAY = ("starting", "running", "restarting")
PROJECT_STATE = os.path.join(".ottla", "pipelines")
_PIPELINE = ("pipeline", "run")
_CLOCK_SLACK_S = 10.0


def state_directory(folder: str | None = None) -> str:
    """By default a folder of the project: pipelines of one name in two projects have nothing in common."""
    base = folder or os.environ.get("OTTLA_STATE") or _default_directory()
    os.makedirs(base, mode=0o700, exist_ok=True)
    stranger = stranger_who_writes(base)
    if stranger is not None:  # a definition there has the words that `restart` runs and the process that `stop` kills
        raise UserError(f"{base} cannot hold pipelines: {stranger}; use `--state` with a directory of your own")
    return base


def _default_directory() -> str:
    """Earlier versions kept the state in the home folder: it is used until it is moved or the project has its own."""
    project = os.path.abspath(PROJECT_STATE)
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    former = os.path.join(home, "ottla", "pipelines")
    if os.path.isdir(project) or not os.path.isdir(former) or not os.listdir(former):
        return project
    sys.stderr.write(
        f"ottla: the state of pipelines is in {former}, where earlier versions kept it; move the folder to "
        f"{PROJECT_STATE}, or set OTTLA_STATE\n"
    )
    return former


def write_json(path: str, content: dict[str, Any]) -> None:
    hidden = f"{path}.{os.getpid()}"
    # For its owner only: the words of a start may hold a password.
    with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(hidden, path)


def read_json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def paths(state: str, name: str) -> tuple[str, str, str]:
    """Of the definition, the status and the log."""
    if not _NAME.match(name):
        raise UserError(f"a pipeline's name has letters, digits, dots, dashes and underscores only: {name!r}")
    base = os.path.join(state, name)
    return f"{base}.json", f"{base}.status.json", f"{base}.log"


def stop_file(status: str) -> str:
    """Its presence asks one connector of several in a process to end."""
    return f"{status.removesuffix('.status.json')}.stop"


def forget_stop(status: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(stop_file(status))


def start(state: str, name: str, words: list[str], command: Sequence[str] = _PIPELINE, cwd: str | None = None) -> int:
    """Starts `ottla pipeline run WORDS` (or the command of a connector) on its own; the process id.

    UserError when it runs already.
    """
    definition, status, log = paths(state, name)
    if is_under_way(state, name):
        raise UserError(f"{name} is already running; stop it first, or look at it with `ottla pipeline status`")
    forget_stop(status)
    kind = "pipeline" if tuple(command) == _PIPELINE else "connector"
    last_status = read_json(status) or {}
    kept: dict[str, Any] = {fact: last_status[fact] for fact in ("class", "inputs", "outputs") if fact in last_status}
    write_json(status, {**kept, "name": name, "kind": kind, "state": "starting", "at": time.time()})
    whole = own_command(*command, *_hidden(words, definition.removesuffix(".json") + ".options.json"))
    whole += ["--quiet", "--status", status] if kind == "pipeline" else []
    # For its owner only: errors of a connector or a pipeline quote records and addresses.
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            whole, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, cwd=cwd
        )
    definition_ = {"name": name, "command": list(command), "words": words, "cwd": cwd, "pid": process.pid}
    write_json(definition, definition_ | {"started": time.time()})
    return process.pid


def _hidden(words: Sequence[str], path: str) -> list[str]:
    """The words of a start without those that may hold a password: they go by a file that only its owner can read."""
    shown: list[str] = []
    options: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        if word in ("--property", "--conf"):
            name, _, value = next(remaining).partition("=")
            options[f"{word.removeprefix('--')}.{name.strip()}"] = value.strip()
        elif word == "--remote":  # sc://HOST/;token=...
            options["remote"] = next(remaining)
        else:
            shown.append(word)
    if not options:
        return shown
    write_json(path, options)
    return [*shown, "--settings", path]


def stop(state: str, name: str, timeout_s: float = 60.0) -> bool:
    """SIGTERM and wait, then SIGKILL; False when it was not running."""
    definition, status, _ = paths(state, name)
    pid = _pid(definition)
    if pid is None:
        return False
    is_connector = (read_json(status) or {}).get("kind") == "connector"
    if is_connector:  # its process may run others, which go on
        with open(stop_file(status), "w", encoding="utf-8"):
            pass
    else:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while _alive(pid) and not (is_connector and (read_json(status) or {}).get("state") not in _UNDER_WAY):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            write_json(
                status, {"name": name, "state": "dead", "at": time.time(), "error": "it did not stop and was killed"}
            )
            break
        time.sleep(0.1)
    return True


def current(state: str, name: str) -> dict[str, Any]:
    definition, status, log = paths(state, name)
    facts = read_json(status) or {"name": name, "state": "stopped"}
    pid = _pid(definition)
    if facts.get("state") in _UNDER_WAY and pid is None:
        noted = (read_json(definition) or {}).get("pid")
        facts |= {
            "state": "dead",
            "phase": "",
            "error": facts.get("error") or f"process {noted} is gone; its last words are in {log}",
        }
    return facts | {"pid": pid, "log": log}


def is_under_way(state: str, name: str) -> bool:
    return current(state, name)["state"] in _UNDER_WAY


def every(state: str) -> list[dict[str, Any]]:
    names = sorted({file.removesuffix(".status.json") for file in os.listdir(state) if file.endswith(".status.json")})
    return [current(state, name) for name in names]


def restart(state: str, name: str) -> int:
    definition = read_json(paths(state, name)[0])
    if definition is None:
        raise UserError(f"pipeline {name} was never started here: use `ottla pipeline start FILE`")
    words = [str(word) for word in definition["words"]]
    return start(state, name, words, definition.get("command") or _PIPELINE, definition.get("cwd"))


def _pid(definition: str) -> int | None:
    """The process id, if that process runs. A later process with the same number, as after a reboot, does not count."""
    started = read_json(definition) or {}
    pid = started.get("pid")
    # Zero and negative numbers are groups of processes: -1 is every process of this user.
    if not isinstance(pid, int) or pid < 1 or not _alive(pid):
        return None
    born = started_at(pid)
    return None if born is not None and born > float(started.get("started", born)) + _CLOCK_SLACK_S else pid


def _alive(pid: int) -> bool:
    try:
        done, _ = os.waitpid(pid, os.WNOHANG)
        if done == pid:
            return False
    except ChildProcessError:
        pass  # not our child: started by another process
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return not is_zombie(pid)
