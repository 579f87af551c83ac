"""The same damaged data directories under Apache Kafka and under Ottla: the same records, offsets and errors.

Where Ottla does otherwise on purpose (docs/differences.md, "On disk"), `OTHERWISE` says what it does instead. Runs by
`-m soak`: Apache Kafka starts nine times.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.interop.damage_compared import TOPIC, Sight, home_of, live, properties, sights
from tests.interop.damage_kinds import CHECKPOINTS, KINDS
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka

pytestmark = [
    pytest.mark.interop,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("requires_apache_kafka"),
]

COUNT = 40
"""Partitions, each in a log directory of its own."""
CLEAN, KILLED = "clean", "killed"
WHOLE, CUT, REFUSED = "whole", "cut", "refused"
"""What Ottla has: everything; everything before the damage; everything, and CORRUPT_MESSAGE where the damage is."""

_ODD_BESIDE = dict.fromkeys(
    (
        *(f"{name}: text" for name in CHECKPOINTS),
        *(f"{name}: cut" for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")),
        *(f"leader-epoch-checkpoint: {what}" for what in ("cut", "text", "of version 9")),
        *(f"partition.metadata: {what}" for what in ("missing", "emptied", "text", "of version 7")),
        "a folder that is none",
        "a folder with a name without number",
    ),
    WHOLE,
)
OTHERWISE: dict[str, dict[str, str]] = {
    CLEAN: {
        **_ODD_BESIDE,
        "active log: last batch torn": CUT,  # Kafka drops the segment's whole batches too, and appends behind the torn one
        "active log: last header torn": CUT,
        "active log: emptied": CUT,  # Kafka has no max timestamp then
        "active log: magic changed in the middle": REFUSED,  # Kafka sends it
        "older log: magic changed in the middle": REFUSED,
        "active log: length beyond the end in the middle": REFUSED,
        "older log: length beyond the end in the middle": REFUSED,
        "older log: last batch torn": REFUSED,
        "active index: garbage": WHOLE,  # Kafka believes that the segment is empty
        **{f"active timeindex: {what}": WHOLE for what in ("missing", "emptied", "cut", "garbage")},  # as for the max timestamp
        **{f"active txnindex: {what}": WHOLE for what in ("emptied", "cut", "garbage")},
    },
    KILLED: {
        **_ODD_BESIDE,
        "active log: magic changed in the middle": CUT,  # Kafka keeps it, and what is behind it cannot be read
        "older log: magic changed in the middle": CUT,
        "older log: emptied": CUT,  # Kafka keeps the hole
        "older segment missing": CUT,
        "older log missing, indexes there": CUT,
        ".kafka_cleanshutdown: text": WHOLE,  # not the max timestamp: the indexes are unfinished
        ".kafka_cleanshutdown: emptied": WHOLE,
        "older log: base offset lower in the middle": CUT,
        "active log: base offset lower in the middle": CUT,
    },
}  # fmt: skip
KAFKA_ENDS: dict[str, dict[str, str]] = {
    CLEAN: {"active log: zeros behind": WHOLE, "active log: noise behind": WHOLE},
    KILLED: {},
}
"""Apache Kafka does not start: only Ottla is looked at."""


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[int, str]]]:
    """The folder with a copy after a clean stop and one after a kill; partition -> the name of its log directory."""
    where = tmp_path_factory.mktemp("lived-in")
    kafka = ApacheKafka(where / "origin", properties=properties(where / "origin", COUNT))
    try:
        kafka.start()
        live(kafka, COUNT, run=0)
        homes = home_of(kafka.port, COUNT)
        kafka.stop()
        shutil.copytree(kafka.directory, where / CLEAN)
        kafka.start()
        live(kafka, COUNT, run=1)
    finally:
        kafka.kill()
    shutil.copytree(kafka.directory, where / KILLED)
    yield where, homes
    shutil.rmtree(where)


def seen_by(
    server: type[ApacheKafka], lived_in: tuple[Path, dict[int, str]], state: str, kinds: list[str]
) -> list[Sight]:
    """Partition n gets the n-th damage."""
    where, homes = lived_in
    directory = where / "run"
    shutil.copytree(where / state, directory)
    (directory / "server.log").unlink()
    for number, kind in enumerate(kinds):
        KINDS[kind](directory / homes[number] / f"{TOPIC}-{number}")
    running = server(directory, properties=properties(directory, COUNT))
    try:
        running.start(90)
        found = sights(running.port, list(range(len(kinds))))
    finally:
        running.stop()
    if server is OttlaServer:
        assert "Traceback" not in running.log_file.read_text(), running.log_tail(60)
    shutil.rmtree(directory)
    return list(found.values())


def differs(kind: str, wanted: str, ours: Sight, whole: Sight) -> str:
    """Why what Ottla has is not what it should have, or nothing."""
    said = f"{kind}: {ours.seen.summary()}, appended {ours.appended}, of {whole.seen.summary()}"
    match wanted:
        case "whole":
            right = (ours.seen, ours.producers) == (whole.seen, whole.producers)
        case "cut":
            right = not ours.seen.error and 0 < ours.seen.end < whole.seen.end
            right = right and whole.seen.batches.startswith(ours.seen.batches)
        case _:
            right = ours.seen.error == 2 and (ours.seen.start, ours.seen.end) == (whole.seen.start, whole.seen.end)
    if wanted != REFUSED:
        right = right and ours.appended == (0, ours.seen.end) and ours.after.end == ours.seen.end + 1
        right = right and ours.after.batches.startswith(ours.seen.batches)
    return "" if right else said


@pytest.mark.parametrize("state", [CLEAN, KILLED])
def test_both_make_the_same_of_it(state: str, lived_in: tuple[Path, dict[int, str]]) -> None:
    whole = seen_by(OttlaServer, lived_in, state, ["nothing"] * COUNT)
    assert all(not each.seen.error and len(each.seen.aborted) > 1 for each in whole)
    otherwise, ends = OTHERWISE[state], KAFKA_ENDS[state]
    wrong = []
    todo = iter(kind for kind in KINDS if kind not in ends and kind not in otherwise)
    while kinds := list(islice(todo, COUNT)):
        theirs, ours = (seen_by(server, lived_in, state, kinds) for server in (ApacheKafka, OttlaServer))
        for kind, left, right in zip(kinds, theirs, ours, strict=True):
            if left != right:
                wrong.append(f"{kind}: {left} / {right}"[:2000])
    todo = iter({**otherwise, **ends})
    while kinds := list(islice(todo, COUNT)):
        for kind, ours_, all_ in zip(kinds, seen_by(OttlaServer, lived_in, state, kinds), whole, strict=False):
            wrong.append(differs(kind, {**otherwise, **ends}[kind], ours_, all_))
    assert [each for each in wrong if each] == []
