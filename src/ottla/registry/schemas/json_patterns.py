"""Regular expressions of clients: run by jsonschema-rs, the engine that checks documents with them, under limits.

Its engine is linear but for look-around and back references; those have a limit of steps. Python's `re` has none: one
expression could keep the registry busy for hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from ottla.registry.schemas.budget import CHARACTERS_A_STEP, Budget, TooComplex
from ottla.registry.schemas.parsed import SchemaProblem

OPTIONS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1 << 18, dfa_size_limit=1 << 18)
"""For every validator: steps of one expression on one text, and bytes of one expression."""
STEPS_A_PATTERN = 100
"""An expression takes up to 256 KB of memory: a schema may have a few thousand."""


class Patterns:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._compiled: dict[str, Any] = {}
        self._matched: dict[tuple[str, str], bool] = {}

    def matches(self, pattern: str, name: str) -> bool:
        """Whether the expression matches in the name. Raises TooComplex if that takes too many steps."""
        self._budget.spend()
        matched = self._matched.get((pattern, name))
        if matched is None:
            self._budget.spend(1 + (len(pattern) + len(name)) // CHARACTERS_A_STEP)
            matched = self._matched[pattern, name] = self._match(pattern, name)
        return matched

    def _match(self, pattern: str, name: str) -> bool:
        validator = self._compiled.get(pattern)
        if validator is None:
            self._budget.spend(STEPS_A_PATTERN)
            try:
                validator = jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=OPTIONS)
            except ValueError as error:  # a name in patternProperties, which not every draft checks
                raise SchemaProblem(f"{pattern[:100]!r} is not a regular expression") from error
            self._compiled[pattern] = validator
        if validator.is_valid(name):
            return True
        kinds = jsonschema_rs.ValidationErrorKind
        if any(isinstance(error.kind, kinds.BacktrackLimitExceeded) for error in validator.iter_errors(name)):
            raise TooComplex(f"too complex: the pattern {pattern[:100]} takes too many steps on {name[:100]}")
        return False


def spend_patterns(documents: Sequence[Any], budget: Budget) -> None:
    """What the expressions of a schema cost, before they are compiled."""
    waiting = list(documents)
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            inner = node.get("patternProperties")
            count = isinstance(node.get("pattern"), str) + (len(inner) if isinstance(inner, dict) else 0)
            budget.spend(1 + count * STEPS_A_PATTERN)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
