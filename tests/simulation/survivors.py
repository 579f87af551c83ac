"""Planted bugs that random seeds do not find, each with the reason and a schedule that finds the bug.

A schedule is a test that fails with the bug: `make mutants` runs this test instead of the seeds. Drawn bugs have their
reason in `drawn_mutations.toml`.
"""

from __future__ import annotations

from typing import NamedTuple

_ONE_VOTE = "tests/simulation/test_schedules.py::test_the_schedule_is_survived[a_voter_votes_once]"
_FAULT_SCHEDULES = "tests/simulation/test_fault_schedules.py::test_the_schedule_is_survived"
_REFUSING = "tests/log/test_refusing_directory.py"


class Survivor(NamedTuple):
    reason: str
    schedule: str
    """The test, by its id."""


SURVIVORS: dict[str, Survivor] = {
    "quorum/votes_twice": Survivor("voters stand one after the other", _ONE_VOTE),
    "quorum/keeps_its_epoch_when_it_votes": Survivor("voters stand one after the other", _ONE_VOTE),
    "data/compares_a_moved_replica_by_its_end_alone": Survivor(
        "a cut between two steps of a move is rare", f"{_FAULT_SCHEDULES}[a_replica_is_moved_while_it_truncates]"
    ),
    "trust/sends_heartbeats_behind_clients_requests": Survivor(
        "no client of the simulator sends hundreds of requests to a slow controller",
        "tests/server/test_controller_channel.py::test_heartbeats_do_not_wait_for_requests_that_the_controller_does_not_answer",
    ),
    "trust/renames_the_served_log_before_its_copy": Survivor(
        "nothing ends a process inside of a callback, and both renames are in one callback",
        "tests/log/test_moves.py::test_a_kill_before_every_step_of_a_promotion",
    ),
    "trust/lets_one_full_directory_stop_compaction": Survivor(
        "no promise says when a log is compacted", f"{_REFUSING}::test_compaction_goes_on_with_the_others"
    ),
    "trust/stops_flushing_at_the_first_refusal": Survivor(
        "a directory is full for 3 s at most, and no promise says when a log is flushed",
        f"{_REFUSING}::test_flush_ms_goes_on_with_the_others",
    ),
}
