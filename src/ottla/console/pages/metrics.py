"""The console's own metrics: how far every group is behind, in records and in seconds, for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ottla.console.site import site_of
from ottla.model.peer_text import cut

_HEAD = """\
# HELP ottla_group_lag_records Records that a group has not read yet.
# TYPE ottla_group_lag_records gauge
{records}
# HELP ottla_group_uncommitted_records Records in partitions that a member owns without a commit, counted from the start.
# TYPE ottla_group_uncommitted_records gauge
{uncommitted}
# HELP ottla_group_lag_seconds Age of the oldest record that a group has not read yet, by its timestamp.
# TYPE ottla_group_lag_seconds gauge
{seconds}
# HELP ottla_console_look_seconds How long the last look at the whole cluster took.
# TYPE ottla_console_look_seconds gauge
ottla_console_look_seconds {took}
"""


async def show(request: Request) -> Response:
    sampler = site_of(request).sampler
    snapshot = await sampler.current()
    records, uncommitted, seconds = [], [], []
    for group in snapshot.groups.values():
        for (topic, partition), lag in sorted(sampler.history.lags_by_partition(snapshot, group).items()):
            labels = f'group="{_escaped(cut(group.id))}",topic="{topic}",partition="{partition}"'
            if lag.uncommitted:
                uncommitted.append(f"ottla_group_uncommitted_records{{{labels}}} {lag.records}")
                continue
            records.append(f"ottla_group_lag_records{{{labels}}} {lag.records}")
            if lag.seconds is not None:
                seconds.append(f"ottla_group_lag_seconds{{{labels}}} {lag.seconds:.3f}")
    text = _HEAD.format(
        records="\n".join(records),
        uncommitted="\n".join(uncommitted),
        seconds="\n".join(seconds),
        took=f"{snapshot.took_s:.6f}",
    )
    lines = [line for line in text.split("\n") if line]  # no other separator: group ids may have one
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


ROUTES = [Route("/metrics", show)]
