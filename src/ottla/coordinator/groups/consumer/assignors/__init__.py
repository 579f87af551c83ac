"""Server-side assignors: pure functions from what members want and had to what each should have.

They follow Kafka's own step by step, its order of members included (`ottla.model.java_order`), so that a group
gets the same assignment from either server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.coordinator.groups.consumer.assignors.range import assign_range
from ottla.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec
from ottla.coordinator.groups.consumer.assignors.uniform import assign_uniform

Assignor: TypeAlias = Callable[[GroupSpec], Assignment]

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
