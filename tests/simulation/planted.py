"""The hand-written planted bugs of all tables, and which seeds may notice each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.data_mutations import DATA_MUTATIONS
from tests.simulation.fault_mutations import FAULT_MUTATIONS
from tests.simulation.group_mutations import GROUP_MUTATIONS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.replica_mutations import REPLICA_MUTATIONS
from tests.simulation.trust_mutations import TRUST_MUTATIONS

Plant = Callable[[pytest.MonkeyPatch], None]
AREAS: dict[str, tuple[str, dict[str, Plant]]] = {
    "quorum": ("odd", MUTATIONS),
    "replication": ("even", REPLICA_MUTATIONS),
    "data": ("even", DATA_MUTATIONS),
    "groups": ("even", GROUP_MUTATIONS),
    "faults": ("even", FAULT_MUTATIONS),
    "trust": ("even", TRUST_MUTATIONS),
}
"""Area -> its seeds (`odd` ones are quorums, `even` ones clusters of whole nodes) and its table."""


def name_of(area: str, name: str) -> str:
    """Tables may share a name: quorum and replication both have `does_not_truncate`."""
    return f"{area}/{name}"


TABLES: dict[str, tuple[str, Plant]] = {
    name_of(area, name): (seeds, plant) for area, (seeds, table) in AREAS.items() for name, plant in table.items()
}

_BY_WORK: dict[tuple[str, ...], tuple[str, ...]] = {
    ("consumers",): (
        "gives_a_partition_to_two_owners", "never_fences_a_silent_member", "accepts_commits_of_fenced_members",
        "gives_away_what_a_static_member_left_for_a_while", "answers_with_offsets_of_a_deleted_namesake",
    ),
    ("consumers", "growth"): ("does_not_see_topics_that_grow", "forgets_growth_before_its_append"),
    ("consumers", "hours"): ("expires_offsets_of_active_groups",),
    ("classic",): (
        "never_ends_a_rebalance", "accepts_heartbeats_of_old_generations", "gives_every_member_the_assignment_of_the_leader",
    ),
    ("processing",): (
        "keeps_pending_offsets_of_deleted_topics", "commits_offsets_of_aborted_transactions", "hides_pending_offsets",
    ),
    ("hours",): ("never_expires_offsets",),
    ("share",): (
        "delivers_accepted_records_again", "answers_an_accept_before_it_is_stored", "never_ends_a_lock",
        "gives_a_locked_record_to_a_second_member", "does_not_count_released_deliveries",
        "locks_records_for_a_tenth_of_the_time",
    ),
}  # fmt: skip
WORK: dict[str, tuple[str, ...]] = {
    **{name_of("groups", name): work for work, names in _BY_WORK.items() for name in names},
    name_of("trust", "forgets_growth_of_shared_topics_before_its_append"): ("share", "growth"),
}
"""The kinds of work of the simulator that execute a bug, if only some do: seeds with this work run first."""
