"""The statuses of a heartbeat's response: why there is no assignment yet, or that the application must stop."""

from __future__ import annotations

from enum import IntEnum


class StatusCode(IntEnum):
    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopologyProblem(Exception):
    """The topics of the cluster do not fit the topology (yet): a status, not an error."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
