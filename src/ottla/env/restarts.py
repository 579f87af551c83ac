"""How often, and after which pause, a supervisor starts again what failed: a connector, a query of a pipeline, a node."""

from __future__ import annotations

MAX_RESTARTS = 5
"""In a row, without a success in between."""
_LONGEST_PAUSE_S = 60.0


def pause_s(failures: int) -> float:
    """Before the attempt that follows so many failures in a row: 1, 2, 4 ... 60 seconds."""
    return min(_LONGEST_PAUSE_S, 2.0 ** (failures - 1))
