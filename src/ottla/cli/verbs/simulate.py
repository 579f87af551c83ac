"""`ottla simulate`: a cluster, its clients and its faults from a file, run in virtual time, with a verdict on every record.
Exit code 1 reports records that are lost, doubled or out of reach, 2 a scenario that cannot run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.options.output_format import output_option

if TYPE_CHECKING:
    from ottla.simulation.scenario.plan import Scenario

MAX_SEED = 1 << 53
MAX_RUNS = 10_000


@click.command()
@click.argument("scenario", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--seed", type=click.IntRange(0, MAX_SEED),
              help="Seed of every delay and draw; without SCENARIO the seed also draws the scenario.")  # fmt: skip
@click.option(
    "--runs",
    type=click.IntRange(1, MAX_RUNS),
    default=1,
    show_default=True,
    help="Number of seeds to run; with more than one, print how often records are lost.",
)
@click.option("--save", type=click.Path(path_type=Path), help="Write the drawn scenario into this file, to edit it.")
@output_option("table", "json")
def simulate(scenario: Path | None, *, seed: int | None, runs: int, save: Path | None, output: str) -> None:
    r"""Run a cluster with your own faults in virtual time, and report what became of every record.

    The nodes are Ottla's own server. docs/simulate.md describes the scenario file.

    \b
    Examples:
      ottla simulate acks-1.toml
      ottla simulate acks-1.toml --runs 100
      ottla simulate --seed 7 --save drawn.toml
    """
    from ottla.model.peer_text import visible
    from ottla.simulation.scenario.places import ScenarioError

    if scenario is None and seed is None:
        raise click.UsageError("name a scenario file, or draw a scenario with --seed")
    if save is not None and scenario is not None:
        raise click.UsageError("--save writes a drawn scenario; remove SCENARIO or --save")
    try:
        plan = _scenario(scenario, seed, save)
        failed = _run(plan, str(scenario) if scenario is not None else "drawn scenario", seed, runs, output)
    except ScenarioError as error:
        click.echo(f"ottla: {visible(str(error), lines=True)}", err=True)
        sys.exit(2)
    if failed:
        sys.exit(1)


def _scenario(path: Path | None, seed: int | None, save: Path | None) -> Scenario:
    from ottla.simulation.scenario.drawing import draw_scenario
    from ottla.simulation.scenario.places import ScenarioError
    from ottla.simulation.scenario.reading import MAX_FILE_BYTES, parse_scenario
    from ottla.simulation.scenario.writing import scenario_text

    if path is not None:
        with path.open("rb") as file:
            return parse_scenario(file.read(MAX_FILE_BYTES + 1), str(path))
    plan = draw_scenario(seed or 0)
    if save is not None:
        try:
            with save.open("x", encoding="utf-8") as new:
                new.write(scenario_text(plan, f"Drawn by `ottla simulate --seed {seed}`."))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ScenarioError(f"{save} cannot be written: {reason}; choose a different file") from error
    return plan


def _run(plan: Scenario, name: str, seed: int | None, runs: int, output: str) -> bool:
    """Whether a run has lost, doubled or unreachable records."""
    import io

    from ottla.cli.terminal.output import for_terminal, progress, show_tree
    from ottla.env.logging import configure
    from ottla.simulation.scenario.report import verdict_lines, verdict_tree
    from ottla.simulation.scenario.runs import is_bad, run_many, runs_lines, runs_tree
    from ottla.simulation.scenario.verdict import judge_scenario

    configure(io.StringIO(), level="error")  # the simulated nodes log their faults, which are what the user asked for
    first_seed = plan.run.seed if seed is None else seed
    if runs == 1:
        verdict = judge_scenario(plan, first_seed)
        if output == "json":
            show_tree(verdict_tree(name, verdict), output)
        else:
            click.echo(for_terminal("\n".join(verdict_lines(name, verdict))))
        return verdict.failed
    results = []
    with progress(runs, "running") as bar:
        for result in run_many(plan, first_seed, runs):
            results.append(result)
            bar.update(1)
    if output == "json":
        show_tree(runs_tree(name, results), output)
    else:
        click.echo("\n".join(runs_lines(name, results)))
    return any(is_bad(result) for result in results)
