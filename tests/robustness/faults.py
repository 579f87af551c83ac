"""Faults on real nodes, any number of them: `python -m tests.robustness.faults --seed 7 --minutes 20 --add-to FILE`.

A run takes at most 20 minutes. It has a cluster of three nodes under idempotent, keyed and transactional load with groups,
and faults of all kinds in an order that the seed decides. After each fault everything is compared. At the end two checkers
judge the recorded history: the simulator's (`history_checks`) and porcupine. Results add up in FILE. A run that finds an
anomaly keeps its folder, and its exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from ottla.client.errors import ClientError
from ottla.model.errors import KafkaError
from tests.robustness.edge_faults import Anomaly, Score, one_fault
from tests.robustness.fault_cluster import REST_S, RecordedSoak, fault_cluster
from tests.robustness.fault_kinds import KINDS
from tests.robustness.fault_tally import RunRecord, Tally, add_to
from tests.robustness.histories import History
from tests.robustness.history_checks import complaints_of
from tests.support.kafka_jars import Unavailable
from tests.support.porcupine import OK, opinions

MAX_MINUTES = 20.0
HISTORY = "history.jsonl"
END_S = 90.0
"""Of a run's time: for the end, in which everything is read again."""


def fault_seconds(minutes: float) -> float:
    """Of a run of so many minutes: the time for faults."""
    return max(0.0, min(minutes, MAX_MINUTES) * 60 - END_S)


def kinds_in_turn(seed: int, kinds: list[str]) -> Iterator[str]:
    """Without an end: all kinds, each turn in another order."""
    chance = random.Random(seed)
    for _ in itertools.count():
        yield from chance.sample(kinds, len(kinds))


@dataclass
class FaultRun:
    directory: Path
    seed: int
    seconds: float
    kinds: list[str]
    most: int = 1 << 30
    """Faults."""
    workers: int = 2
    rest_s: float = REST_S
    scores: dict[str, Score] = field(default_factory=dict)
    summary: str = ""
    anomaly: str = ""
    anomalous_kind: str = ""

    @property
    def history(self) -> Path:
        return self.directory / HISTORY

    def play(self) -> None:
        """Until the time is over, or the first anomaly. Raises NoMounts."""
        history = History(self.history)
        with fault_cluster(self.directory) as cluster:
            soak = RecordedSoak(cluster, self.directory, self.seed, history, workers=self.workers, rest_s=self.rest_s)
            try:
                soak.spread()
                self._faults(soak)
                self.summary = soak.finish()
            except (
                AssertionError,
                ClientError,
                KafkaError,
                KafkaException,
            ) as error:  # the last ones: no answer in time
                self.anomaly = str(error)[:4000] or repr(error)
                with contextlib.suppress(Exception):  # clients of a broken cluster must not hide what is broken
                    soak.survey()
            with contextlib.suppress(Exception):  # the same
                soak.close()
        history.close()

    def _faults(self, soak: RecordedSoak) -> None:
        deadline = time.monotonic() + self.seconds
        for number, kind in enumerate(itertools.islice(kinds_in_turn(self.seed, self.kinds), self.most), 1):
            if time.monotonic() > deadline:
                return
            try:
                one_fault(soak, number, kind, self.scores.setdefault(kind, Score()), KINDS)
            except (Anomaly, ClientError, KafkaError, KafkaException):
                self.anomalous_kind = kind
                raise

    def judge(self, seconds: float) -> RunRecord:
        """With both checkers."""
        record = RunRecord(
            seed=self.seed, faults=sum(score.tried for score in self.scores.values()), seconds=round(seconds),
            load=" ".join(f"{load:.1f}" for load in os.getloadavg()), summary=self.summary, anomaly=self.anomaly,
            complaints=complaints_of(self.history),
        )  # fmt: skip
        try:
            judged = opinions(self.history)
        except Unavailable as reason:
            print(f"no porcupine: {reason}", flush=True)
            return record
        except (AssertionError, subprocess.TimeoutExpired) as error:
            record.disagreed = [f"porcupine gave no answer: {error}"]
            return record
        record.porcupine = dict(Counter(opinion.result for opinion in judged))
        record.disagreed = [f"{opinion.part}: {opinion.result}" for opinion in judged if opinion.result != OK]
        return record


def run(faults: FaultRun) -> RunRecord:
    started = time.monotonic()
    faults.play()
    record = faults.judge(time.monotonic() - started)
    for line in (faults.summary, faults.anomaly, *record.complaints[:20], *record.disagreed):
        if line:
            print(line, flush=True)
    print(
        f"{record.faults} faults, seed {record.seed}, {record.seconds:.0f} s, {record.anomalies} anomalies", flush=True
    )
    return record


def _end(*_: object) -> None:
    """Nodes and mounts go with the run."""
    raise SystemExit("ended by a signal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=MAX_MINUTES, help=f"at most {MAX_MINUTES:g}")
    parser.add_argument("--faults", type=int, default=1 << 30, help="end after so many faults")
    parser.add_argument("--add-to", type=Path, help="the file in which results add up")
    parser.add_argument("--only", default="", help="a regular expression: only these kinds of fault")
    parser.add_argument("--workers", type=int, default=2, help="processes that copy in transactions")
    parser.add_argument("--rest", type=float, default=REST_S, help="seconds between the bursts of a sender")
    parser.add_argument("--dir", type=Path, help="keep the folder here instead of a temporary one")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    kinds = [kind for kind in KINDS if re.search(options.only, kind)]
    directory = options.dir or Path(tempfile.mkdtemp(prefix="ottla-faults-"))
    directory.mkdir(parents=True, exist_ok=True)
    seconds = fault_seconds(options.minutes)
    faults = FaultRun(directory, options.seed, seconds, kinds, options.faults, options.workers, options.rest)
    record = run(faults)
    if options.add_to is not None:
        tally = add_to(options.add_to, record, faults.scores, faults.anomalous_kind)
    else:
        tally = Tally()
        tally.add(record, faults.scores, faults.anomalous_kind)
    print(tally.report())
    if record.anomalies:
        raise SystemExit(f"ANOMALY: see {directory}")
    if options.dir is None:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
