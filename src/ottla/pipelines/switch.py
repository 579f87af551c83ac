"""From the old version of a pipeline to the new one (Kreps' reprocessing): both run beside each other, then the old stops.

A backfill has brought the new version's outputs up to some point. This module starts the new version in the background
on the backfill's checkpoint, so that it continues exactly where the backfill ended. Once the new version has caught up,
this module stops the old version. Nothing is renamed or removed: Kafka has no second name for a topic. So readers must
change to the new names, and the old outputs stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ottla.model.user_error import UserError
from ottla.pipelines import supervisor
from ottla.pipelines.checkpoints import Checkpoint, CheckpointFiles
from ottla.pipelines.pipeline import Pipeline, query_name

_LOOK_S = 0.5


def switch(
    state: str, old: str, new: str, start: Callable[[], None], *, patience_s: float, report: Callable[[str], None]
) -> None:
    """Starts `new` if it does not run, waits until it has read what is there, stops `old`.

    UserError when that does not come about; the old version then runs on.
    """
    if old == new:
        raise UserError(f"{new} cannot be switched to itself: --from names the version that runs now")
    if not supervisor.is_under_way(state, new):
        start()
    deadline = time.monotonic() + patience_s
    report(f"{new}: runs beside {old}; waiting until it has caught up")
    while not _caught_up(status := supervisor.current(state, new)):
        if not supervisor.is_under_way(state, new):
            reason = status.get("error") or f"it {status['state']}"
            raise UserError(f"{new} did not get there: {reason}. {old} is as it was; see {status['log']}")
        if time.monotonic() > deadline:
            raise UserError(
                f"{new} is {status.get('lag', 0):,} records behind after {patience_s:.0f} s; both versions run, {old} is "
                "still the one to read: call this again, or give it longer with --wait"
            )
        time.sleep(_LOOK_S)
    stopped = supervisor.stop(state, old)
    report(f"{new}: has caught up; {old} {'is stopped' if stopped else 'was not running'}")


def _caught_up(status: dict[str, Any]) -> bool:
    """Each query runs, has looked at its inputs since its start and found nothing that it has not read."""
    queries = status.get("queries") or []
    return (
        status["state"] == "running"
        and status.get("phase") != supervisor.WAITING
        and bool(queries)
        and all(query["active"] and query["batch"] >= 0 and not query["lag"] for query in queries)
    )


def check_backfilled(files: CheckpointFiles, checkpoints: str, old: Pipeline, new: Pipeline) -> None:
    """UserError where no backfill has ended for each output: the new version would come without a part of the history."""
    checkpoint = Checkpoint(files, f"{checkpoints}/{new.name}")
    if not files.names(checkpoint.folder):
        raise UserError(
            f"{new.name} has no checkpoint in {checkpoints}: make it first with `ottla pipeline backfill`, with the same "
            f"--suffix, --state and --checkpoints (a new pipeline without history is started as {old.name})"
        )
    queries = {query_name(step, branch) for step in new.steps for branch in step.writes}
    if missing := sorted(queries - checkpoint.finished()):
        raise UserError(
            f"no backfill of {new.name} has come to its end for {', '.join(missing)}: run `ottla pipeline backfill` again, "
            "which goes on where the last one stopped"
        )


def renamed_outputs(old: Pipeline, new: Pipeline) -> list[tuple[str, str]]:
    """Each output of the old version and what takes its place."""
    return [
        (port.node, changed.writes[branch].node)
        for step, changed in zip(old.steps, new.steps, strict=True)
        for branch, port in step.writes.items()
    ]
