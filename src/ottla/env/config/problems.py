"""What is wrong with a configuration: one line per problem, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Problem(NamedTuple):
    name: str
    """The setting to look at."""
    message: str
    requirement: bool = False
    """Kafka puts `requirement failed: ` before these when a client gets to see them."""

    @property
    def kafka_message(self) -> str:
        return f"requirement failed: {self.message}" if self.requirement else self.message


class ConfigError(ValueError):
    """The configuration cannot be used; `problems` has a line for each reason."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
