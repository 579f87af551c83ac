"""Many seeds of one scenario: how often records are lost, as a frequency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.simulation.scenario.verdict import Verdict, judge_scenario

if TYPE_CHECKING:
    from ottla.simulation.scenario.plan import Scenario

MAX_SEEDS_NAMED = 10
OUTCOMES = ("lost", "doubled", "unreachable")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    seed: int
    acknowledged: int
    lost: int
    doubled: int
    unreachable: int


def run_many(scenario: Scenario, first_seed: int, count: int) -> Iterator[RunResult]:
    for seed in range(first_seed, first_seed + count):
        yield _result(judge_scenario(scenario, seed))


def _result(verdict: Verdict) -> RunResult:
    return RunResult(
        seed=verdict.seed,
        acknowledged=verdict.total("acknowledged"),
        lost=verdict.total("lost"),
        doubled=verdict.total("doubled"),
        unreachable=verdict.total("unreachable"),
    )


def is_bad(result: RunResult) -> bool:
    return bool(result.lost or result.doubled or result.unreachable)


def runs_tree(name: str, results: list[RunResult]) -> dict[str, Any]:
    """For JSON."""
    return {
        "scenario": name,
        "first_seed": results[0].seed,
        "runs": len(results),
        "acknowledged": sum(result.acknowledged for result in results),
        **{
            outcome: {
                "runs": sum(getattr(result, outcome) > 0 for result in results),
                "records": sum(getattr(result, outcome) for result in results),
                "seeds": [result.seed for result in results if getattr(result, outcome)],
            }
            for outcome in OUTCOMES
        },
    }


def runs_lines(name: str, results: list[RunResult]) -> list[str]:
    tree = runs_tree(name, results)
    last = results[-1].seed
    lines = [
        f"{name}, seeds {results[0].seed} to {last}: records were lost in {tree['lost']['runs']} of {len(results)} runs."
    ]
    for outcome in OUTCOMES:
        part = tree[outcome]
        seeds = ", ".join(map(str, part["seeds"][:MAX_SEEDS_NAMED]))
        more = f" and {len(part['seeds']) - MAX_SEEDS_NAMED} more" if len(part["seeds"]) > MAX_SEEDS_NAMED else ""
        shown = f" (seeds {seeds}{more})" if seeds else ""
        lines.append(
            f"  {outcome:<12} {part['runs']} of {len(results)} runs, "
            f"{part['records']:,} of {tree['acknowledged']:,} acknowledged records{shown}"
        )
    return lines
