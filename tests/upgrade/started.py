"""A recorded folder, unpacked, with the node of this code running on it at the time of the recording.

The clock stands where the recording ended: transactional ids and producer ids expire within 25 days at the most, and a
test of recorded files must not change its mind on the 26th.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ottla.runtime.clock import SystemClock
from ottla.testing import Broker
from tests.upgrade.archive import unpack
from tests.upgrade.observations import Json
from tests.upgrade.record import RECORDED
from tests.upgrade.scenes.steps import FOLDER

LATER_MS = 60_000


def versions(scene: str) -> list[str]:
    """Those that recorded the scene."""
    return sorted(one.parent.name for one in RECORDED.glob(f"*/{scene}.tar.xz"))


@dataclass(slots=True)
class Started:
    manifest: Json
    folder: Path
    broker: Broker
    observed: Json = field(default_factory=dict)
    """What the node answered before anything was written to it."""

    def address(self, listener: str = "PLAINTEXT") -> str:
        return f"127.0.0.1:{self.broker.node.ports[listener]}"


def manifest_of(archive: Path) -> Json:
    """Of the scene whose archive this is."""
    found: Json = json.loads(archive.with_name(archive.name.replace(".tar.xz", ".json")).read_text())
    return found


@contextmanager
def clock_of(manifest: Json) -> Iterator[None]:
    """The clock of every node in this process: a minute after the recording, and going on from there."""
    real = SystemClock.time_ms
    shift_ms = manifest["recorded_at_ms"] + LATER_MS - time.time_ns() // 1_000_000
    SystemClock.time_ms = lambda self: real(self) + shift_ms  # type: ignore[method-assign]
    try:
        yield
    finally:
        SystemClock.time_ms = real  # type: ignore[method-assign]


@contextmanager
def started(archive: Path, folder: Path) -> Iterator[Started]:
    """`archive` is unpacked into `folder` unless the folder is there: then the node starts on it again."""
    manifest = manifest_of(archive)
    if not folder.exists():
        unpack(archive, folder)
    properties = {name: value.replace(FOLDER, str(folder)) for name, value in manifest["properties"].items()}
    with clock_of(manifest), Broker(directory=folder, properties=properties) as broker:
        yield Started(manifest, folder, broker)
