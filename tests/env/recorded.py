"""The recorded facts of tests/env/golden, and a node's properties to build on."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/tmp/x",
}


@cache
def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())


def node(**changes: str | None) -> dict[str, str]:
    """NODE with some properties changed; None takes one out. Dots are written as underscores."""
    return with_changes({name.replace("_", "."): text for name, text in changes.items()})


def with_changes(changes: dict[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in {**NODE, **changes}.items() if text is not None}
