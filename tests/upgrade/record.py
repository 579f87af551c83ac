"""Record what this version writes: `python -m tests.upgrade.record NAME [SCENE...]` from the root of the repository.

NAME is the version's: `tests/upgrade/recorded/NAME` gets, for each scene, an archive of the folders that the version left
and a manifest of what must be readable in them. `tests/upgrade/test_*.py` then start the code of their day on every
version that is recorded. CONTRIBUTING.md says when to record.

Folders are recorded at one place on every machine, since some files hold paths; a file that names this machine fails
the recording.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.upgrade.archive import machine_names, pack
from tests.upgrade.observations import Json
from tests.upgrade.scenes import cluster, connect, encrypted, killed, node, pipeline

RECORDED = Path(__file__).with_name("recorded")
PLACE = Path("/tmp/ottla-recorded")
Scene = Callable[[Path, Path], Json]
SCENES: dict[str, Scene] = {
    "node": node.record,
    "killed": killed.record,
    "encrypted": encrypted.record,
    "connect": connect.record,
    "pipeline": pipeline.record,
    "cluster": cluster.record,
}


def record(scene: str, out: Path, place: Path, version: str) -> Path:
    """Archive and manifest of one scene into `out`; the manifest's path."""
    shutil.rmtree(place / scene, ignore_errors=True)
    folder, work = place / scene / "folder", place / scene / "scratch"
    folder.mkdir(parents=True)
    work.mkdir()
    found = SCENES[scene](folder, work)
    named = machine_names(folder)
    if named:
        raise SystemExit(f"{scene}: these files name this machine: {named}; a neutral host name helps (unshare --uts)")
    now_ms = time.time_ns() // 1_000_000
    manifest: Json = {"version": version, "recorded_at_ms": now_ms, **found}
    out.mkdir(parents=True, exist_ok=True)
    pack(folder, out / f"{scene}.tar.xz", now_ms // 1000)
    file = out / f"{scene}.json"
    file.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(place / scene)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="name of the version, a folder below tests/upgrade/recorded")
    parser.add_argument("scenes", nargs="*", choices=[*SCENES, []], default=[], help="default: all")
    parser.add_argument("--out", type=Path, default=RECORDED, help="folder of the versions")
    parser.add_argument("--place", type=Path, default=PLACE, help="where the servers write while they are recorded")
    given = parser.parse_args()
    for scene in given.scenes or SCENES:
        file = record(scene, given.out / given.version, given.place, given.version)
        print(file, file.stat().st_size, file.with_suffix(".tar.xz").stat().st_size)


if __name__ == "__main__":
    main()
