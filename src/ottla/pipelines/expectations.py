"""What the rows of a step must be: declared beside the step's function, as SQL conditions. Nothing here needs Spark.

    @shop.step(reads={"orders": ORDERS}, writes=topic("totals", value="json"), quarantine="totals.bad")
    @expect("total >= 0", on_fail="quarantine")
    def totals(orders):
        return orders.select("id", "total")

A row passes if `where(condition)` would keep the row: a condition that is null fails. `checked_rows.py` puts the
conditions into the plan of each output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.model.user_error import UserError

Function = TypeVar("Function", bound=Callable[..., Any])
QUARANTINE, DROP, FAIL = ON_FAIL = ("quarantine", "drop", "fail")
MOST_EXPECTATIONS = 100
"""For one step: each condition is part of the plan, and of every status."""
_DECLARED = "__ottla_expectations__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    condition: str
    on_fail: str
    name: str
    branch: str | None = None
    """The output whose rows are checked; None stands for every output of the step."""


def expect(
    condition: str, *, on_fail: str, name: str | None = None, branch: str | None = None
) -> Callable[[Function], Function]:
    """Declares that the rows of a step meet an SQL condition. The function stays a plain function.

    `on_fail` is `quarantine` (the row goes to the step's quarantine topic), `drop` or `fail` (the batch fails). The name,
    by default the condition, is shown with the counts.
    """
    if on_fail not in ON_FAIL:
        raise UserError(f"on_fail of @expect is {', '.join(ON_FAIL[:-1])} or {ON_FAIL[-1]}, not {on_fail!r}")
    if not condition.strip():
        raise UserError("@expect needs a condition, such as 'total >= 0'")
    expectation = Expectation(condition=condition, on_fail=on_fail, name=name or condition, branch=branch)

    def declare(function: Function) -> Function:
        # The decorator nearest to the function runs first.
        setattr(function, _DECLARED, (expectation, *expectations_of(function)))
        return function

    return declare


def expectations_of(function: Callable[..., Any], branch: str | None = None) -> tuple[Expectation, ...]:
    """Those of one output, or all of them, in the order of the file."""
    declared: tuple[Expectation, ...] = getattr(function, _DECLARED, ())
    return tuple(expectation for expectation in declared if branch is None or expectation.branch in (None, branch))
