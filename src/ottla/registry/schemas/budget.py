"""How much work one schema may cause: a count of steps, the same on every machine, never a time.

A step is one node looked at, one pair compared or about 32 characters read: roughly a microsecond. Everything that
walks a client's schema spends from the budget of its request, so that no text of a few kilobytes costs minutes.
"""

from __future__ import annotations

from ottla.registry.schemas.parsed import SchemaProblem

MAX_STEPS = 400_000
"""For one schema, and for one pair that is compared."""
MAX_REQUEST_STEPS = 8_000_000
"""For one request: a transitive level compares with every version."""
CHARACTERS_A_STEP = 32


class TooComplex(SchemaProblem):
    """The schema needs more steps than there are."""


class Budget:
    """Steps that are left, of this piece of work and of the request that it belongs to."""

    __slots__ = ("_limit", "_whole", "left")

    def __init__(self, limit: int = MAX_STEPS, whole: Budget | None = None) -> None:
        self._limit = limit
        self._whole = whole
        self.left = limit

    @property
    def spent(self) -> int:
        return self._limit - self.left

    def part(self, limit: int = MAX_STEPS) -> Budget:
        """A piece of this work with a limit of its own."""
        return Budget(limit, self)

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooComplex(f"too complex: the check needs more than {self._limit} steps; make the schema smaller")
        if self._whole is not None:
            self._whole.spend(steps)

    def read(self, text: str) -> None:
        """Spend what it costs to read a text."""
        self.spend(1 + len(text) // CHARACTERS_A_STEP)
