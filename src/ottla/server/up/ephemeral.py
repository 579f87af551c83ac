"""`ottla up --ephemeral`: a log for the tests of a program in any language, which starts this process and reads one line.

The log lives as long as the standard input is open: a parent that ends, in whatever way, ends the log. The folder is
temporary and is removed at the end, after SIGTERM and SIGINT too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from ottla.server.node import Node
from ottla.server.up.cluster import up_cluster
from ottla.server.up.companions import Companions
from ottla.server.up.single import DEFAULT_HOST, free_ports, up

START_S = 120.0
_LOOK_S = 0.02


def up_ephemeral(nodes: int, *, registry: bool, console: bool, print_json: bool) -> int:
    """The exit code."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-"))
    companions = Companions(quiet=print_json)
    ports = free_ports(DEFAULT_HOST, 2)
    registry_port, console_port = ports[0] if registry else None, ports[1] if console else None
    urls = {name: f"http://{DEFAULT_HOST}:{port}" for name, port in _named(registry_port, console_port).items()}
    failures: list[str] = []

    def greet(servers: str) -> None:
        threading.Thread(
            target=_watch, args=(servers, urls, companions, failures), kwargs={"print_json": print_json}, daemon=True
        ).start()

    try:
        if nodes > 1:
            code = up_cluster(
                directory, None, 0, nodes, registry_port=registry_port, console_port=console_port,
                companions=companions, greet=lambda addresses: greet(",".join(addresses)),
            )  # fmt: skip
        else:

            def greet_node(node: Node) -> None:
                greet(node.bootstrap_servers)

            code = up(
                directory, None, 0, registry_port=registry_port, console_port=console_port, companions=companions,
                greet=greet_node,
            )  # fmt: skip
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for failure in failures:
        print(f"ottla: {failure}", file=sys.stderr)
    return 1 if failures else code


def _named(registry_port: int | None, console_port: int | None) -> dict[str, int]:
    return {name: port for name, port in (("registry", registry_port), ("console", console_port)) if port is not None}


def _watch(
    servers: str, urls: Mapping[str, str], companions: Companions, failures: list[str], *, print_json: bool
) -> None:
    """On a thread: print the addresses when all servers answer, then wait until the standard input closes."""
    try:
        _wait_for(urls, companions)
        facts: dict[str, str | int] = {"bootstrap_servers": servers, **urls, "pid": os.getpid()}
        words = " ".join(f"{name}={value}" for name, value in facts.items())
        print(json.dumps(facts) if print_json else f"ottla is up: {words}", flush=True)
        while os.read(0, 4096):
            pass
    except TimeoutError as failure:
        failures.append(str(failure))
    except OSError:  # the standard input or the standard output is closed
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _wait_for(urls: Mapping[str, str], companions: Companions) -> None:
    deadline = time.monotonic() + START_S
    for name, url in urls.items():
        while not _answers(url):
            if time.monotonic() > deadline or not companions.all_run:
                raise TimeoutError(f"the {name} at {url} does not answer")
            time.sleep(_LOOK_S)


def _answers(url: str) -> bool:
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or DEFAULT_HOST, address.port, timeout=5.0)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
