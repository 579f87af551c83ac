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
