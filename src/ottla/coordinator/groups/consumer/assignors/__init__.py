"""Server-side assignors: pure functions from subscriptions and earlier targets to new targets.

The assignors follow Kafka's step by step, with Kafka's order of members (`ottla.model.java_order`). A group therefore
gets the same assignment from both servers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.coordinator.groups.consumer.assignors.range import assign_range
from ottla.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec
from ottla.coordinator.groups.consumer.assignors.uniform import assign_uniform

Assignor: TypeAlias = Callable[[GroupSpec], Assignment]

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
