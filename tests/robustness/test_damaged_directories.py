"""A damaged file of every kind under a server that starts: what it hit suffers, everything else is there as before.

Either the server serves, with every partition equal but the one that was hit (or its log directory offline), or it ends
with one line that names the file. `-m soak` takes every kind of file with every kind of damage.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.interop import history
from tests.interop.ottla_server import OttlaServer, is_formatted
from tests.robustness.damage import METADATA, Case, Seen, copied, every_case, look

CASES = [
    Case("log, earlier segment", "cut", 0),
    Case("log, last segment", "bits flipped", 0),
    Case("txnindex", "noise appended", 0),
    Case("recovery-point-offset-checkpoint", "emptied", 0, killed=True),
    Case(".kafka_cleanshutdown", "a folder", 0),
    Case("quorum-state", "cut", 0),
]
SEED = int(os.environ.get("SEED", "0"))


def properties(where: Path) -> dict[str, str]:
    return {**history.PROPERTIES, "log.dirs": f"{where}/a,{where}/b", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[list[Path], Seen]]:
    """Two log directories with something of everything, after a kill and after a clean stop, and what was in them."""
    where = tmp_path_factory.mktemp("lived-in")
    server = OttlaServer(where, properties=properties(where)).start()
    try:
        history.live(server.bootstrap_servers, transactions=True)
        history.compact(server.bootstrap_servers)
        history.live(server.bootstrap_servers, transactions=True, run=1)
        seen = look(server.port)
        server.kill()
        killed = copied([where / "a", where / "b"], where / "killed")
        server.start()
        server.stop()
    except BaseException:
        server.kill()
        raise
    return {True: (killed, seen), False: ([where / "a", where / "b"], seen)}


def check(case: Case, lived_in: dict[bool, tuple[list[Path], Seen]], tmp_path: Path) -> None:
    dirs, before = lived_in[case.killed]
    victim = case.inflict(copied(dirs, tmp_path))
    server = OttlaServer(tmp_path, properties={**properties(tmp_path), "log.cleaner.backoff.ms": "600000"})
    if victim.name == "meta.properties" and not is_formatted(server):
        raise LookupError("OttlaServer would format it anew")
    try:
        server.start()
    except RuntimeError:
        last = server.log_tail(1)
        assert last.startswith("ottla: "), server.log_tail(30)
        assert str(tmp_path) in last
        assert "Traceback" not in server.log_file.read_text()
        return
    try:
        after = look(server.port, patience=3)
        offline = {name for name, error in after.directories.items() if error}
        hit = victim.parent.name if METADATA not in victim.parts else ""
        assert offline <= {victim.relative_to(tmp_path).parts[0]}
        for (topic, number), seen in before.partitions.items():
            there = any((tmp_path / name / f"{topic}-{number}").exists() for name in offline)
            if f"{topic}-{number}" != hit and not there and "log-start" not in victim.name:
                assert after.partitions[topic, number] == seen, f"{case}: {topic}-{number}"
            elif there:
                # Its directory may have failed only when the damaged file was read, after this one had been.
                found = after.partitions[topic, number]
                assert found.error or found == seen, f"{case}: {topic}-{number} was made anew"
    finally:
        server.stop()
    assert "Traceback" not in server.log_file.read_text(), server.log_tail(60)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_damaged_file(case: Case, lived_in: dict[bool, tuple[list[Path], Seen]], tmp_path: Path) -> None:
    check(case, lived_in, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("killed", [False, True])
def test_every_kind_of_file_and_damage(
    killed: bool, lived_in: dict[bool, tuple[list[Path], Seen]], tmp_path: Path
) -> None:
    for number, case in enumerate(every_case(range(SEED, SEED + 1), killed=killed)):
        if case.damage == "unreadable" and os.geteuid() == 0:
            continue  # root reads everything
        try:
            check(case, lived_in, tmp_path / str(number))
        except LookupError:
            continue  # a killed server leaves none of that kind
        shutil.rmtree(tmp_path / str(number))
