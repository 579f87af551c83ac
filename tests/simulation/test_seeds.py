"""The simulator itself: seeds keep all promises, a seed repeats event by event, planted bugs are found."""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Iterator

import pytest

from ottla.env import logging
from ottla.simulation import complaints
from ottla.simulation.__main__ import main
from ottla.simulation.cluster import run_seed
from ottla.simulation.network import FakeNetwork, Weather
from ottla.simulation.streams import SLOWEST_MS, StreamNetwork
from ottla.simulation.world import World
from tests.simulation import mutants
from tests.simulation.digests import WITHOUT_UVLOOP, digests
from tests.simulation.group_mutations import GROUP_MUTATIONS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.replica_mutations import REPLICA_MUTATIONS
from tests.simulation.trust_mutations import TRUST_MUTATIONS

CORE_SECONDS = 15.0
MOST_SEEDS = 60
SEEDS_FOR_A_BUG = 40
IN_EVERY_PROCESS = (7, 9, 20, 32, 1002)
BY_SCHEDULE = {"votes_twice", "keeps_its_epoch_when_it_votes"}
"""Rare since voters stand one after the other: `test_schedules.py` brings them about."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    logging.configure(io.StringIO(), level="error")
    yield
    logging._sink = kept


@pytest.mark.timeout(300)
def test_seeds_keep_all_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """As many as fit into the time, up to a bound; CI prints how many that were."""
    began, seed, events, acked = time.process_time(), 0, 0, 0
    while time.process_time() - began < CORE_SECONDS and seed < MOST_SEEDS:
        seed += 1
        outcome = run_seed(seed)
        events += outcome.events
        acked += outcome.acked
        assert outcome.violation is None, f"make sim SEED={seed}: {outcome.violation}"
    took = time.process_time() - began
    with capsys.disabled():
        print(
            f"\nsimulator: {seed} seeds, {events:,} events, {acked:,} acknowledged batches, {seed / took * 3600:,.0f} seeds an hour on one core"
        )


def test_a_late_vote_makes_a_leader_of_an_epoch_that_is_over() -> None:
    """Node 4 wins epoch 4 after epoch 5 has committed records that it does not have: that is no broken promise."""
    outcome = run_seed(50013)
    assert outcome.violation is None, outcome.violation
    assert outcome.committed > 174


def test_a_seed_repeats_itself() -> None:
    first, second = run_seed(7, trace=True), run_seed(7, trace=True)
    assert first.trace
    assert first.trace == second.trace
    assert (first.events, first.committed) == (second.events, second.committed)


@pytest.mark.timeout(300)
def test_seeds_repeat_themselves_in_every_process() -> None:
    """Neither the process, nor its hashes of strings, nor uvloop decide anything. Seed 1002 ends transactions on several
    leaders: the order of a set was the order of these requests.
    """
    lines = digests(sys.executable, *IN_EVERY_PROCESS, hash_seed=1)
    assert [line.split()[0] for line in lines] == [str(seed) for seed in IN_EVERY_PROCESS]
    assert lines == digests(sys.executable, WITHOUT_UVLOOP, *IN_EVERY_PROCESS, hash_seed=2)


def test_a_slow_packet_is_overtaken_by_its_repetition() -> None:
    """Else a connection that began in bad weather hangs for half a minute in a healed cluster (seed 2084)."""
    world = World(1)
    links = FakeNetwork(world)
    links.weather = Weather(delay_ms=(300.0, 300.0), slow=1.0)
    assert StreamNetwork(world, links).delay_ms((1, 2), random.Random(1)) == SLOWEST_MS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(set(MUTATIONS) - BY_SCHEDULE))
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd seeds have a quorum without partitions, even ones have partitions too."""
    MUTATIONS[name](monkeypatch)
    found = next((seed for seed in range(1, 2 * SEEDS_FOR_A_BUG, 2) if run_seed(seed).violation), None)
    assert found is not None, f"{name} was not noticed in {SEEDS_FOR_A_BUG} seeds"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(REPLICA_MUTATIONS))
def test_a_planted_bug_of_replication_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    REPLICA_MUTATIONS[name](monkeypatch)
    found = next((seed for seed in range(2, 2 * SEEDS_FOR_A_BUG + 1, 2) if run_seed(seed).violation), None)
    assert found is not None, f"{name} was not noticed in {SEEDS_FOR_A_BUG} seeds"


def test_a_planted_bug_in_what_touches_data_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of the table of `make mutants`; the other bugs take more seeds than a test may."""
    assert mutants.main(["--seeds", "20", "takes_the_log_of_a_deleted_namesake"]) == 0
    assert "1 of 1 mutants found" in capsys.readouterr().out


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "seed", "message"),
    [
        ("gives_a_partition_to_two_owners", 4, "has two owners"),
        ("accepts_heartbeats_of_old_generations", 4, "is not fenced in generation"),
        ("delivers_accepted_records_again", 8, "was accepted or rejected, and is delivered again"),
        ("commits_offsets_of_aborted_transactions", 10, "the output and this offset disagree"),
        ("never_expires_offsets", 10, "hours after its end the offsets"),
    ],
)
def test_a_planted_bug_of_groups_is_found(name: str, seed: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bug for each kind of work; `make mutants` has all. The coordinator logs two owners too: here the ledger must see
    them.
    """
    monkeypatch.setattr(
        complaints, "OPERATING_ERRORS", {**complaints.OPERATING_ERRORS, "partition.owned_twice": "planted"}
    )
    GROUP_MUTATIONS[name](monkeypatch)
    assert message in (run_seed(seed).violation or "all promises kept")


def test_an_undone_mend_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every log directory with descriptors of its own; `make mutants` has the other mends."""
    TRUST_MUTATIONS["gives_every_directory_its_own_descriptors"](monkeypatch)
    assert "keeps 9 segments open, and its limit is 8" in (run_seed(2).violation or "all promises kept")


def test_a_failing_seed_prints_its_trace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    MUTATIONS["commits_what_one_replica_has"](monkeypatch)
    assert main(["--seed", "1"]) == 1
    shown = capsys.readouterr().out
    assert "which only 1 of 2 have on disk" in shown
    assert " -> " in shown
    assert main(["--first", "1", "--count", "1"]) == 1
    assert "see it again: make sim SEED=1" in capsys.readouterr().out
