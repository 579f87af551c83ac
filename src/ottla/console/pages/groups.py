"""Groups of all kinds: lag in records and seconds, members, and a reset of offsets, first as a dry run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.cluster import Cluster
from ottla.client.group_lag import Partition, ReadLag
from ottla.client.groups import delete_group
from ottla.client.offsets import FoundOffset, list_offsets
from ottla.client.share_groups import share_offsets
from ottla.console.cluster.group_detail import describe_group, set_offsets, visible_detail
from ottla.console.cluster.history import total_lag
from ottla.console.cluster.snapshot import ClusterSnapshot, GroupRow
from ottla.console.errors import ConsoleError
from ottla.console.messages.browse import parse_time_ms
from ottla.console.render import path_part
from ottla.console.site import site_of
from ottla.console.web import back, form, number, page_response, text

_TO = ("earliest", "latest", "time", "offset", "shift")


@dataclass(frozen=True, slots=True)
class OffsetRow:
    topic: str
    partition: int
    committed: int
    end: int | None
    lag: ReadLag
    owner: str


async def show(request: Request) -> Response:
    sampler = site_of(request).sampler
    snapshot = await sampler.current()
    groups = list(snapshot.groups.values())
    return page_response(request, "groups.html", "groups", groups=groups, lags=sampler.lags)


async def find(request: Request) -> tuple[ClusterSnapshot, GroupRow]:
    name, sampler = request.path_params["group"], site_of(request).sampler
    snapshot = await sampler.current()
    if name not in snapshot.groups:
        snapshot = await sampler.look()
    try:
        return snapshot, snapshot.groups[name]
    except KeyError:
        raise ConsoleError(f"There is no group {name}.", status=404) from None


async def detail(request: Request) -> Response:
    site = site_of(request)
    snapshot, group = await find(request)
    described = await site.gateway.ask(lambda cluster: describe_group(cluster, group))
    if site.limited:
        described = visible_detail(described, snapshot.topics)
    group, reported_lags = await with_offsets(request, group)
    if site.limited:
        group = replace(
            group,
            committed={where: offset for where, offset in group.committed.items() if where[0] in snapshot.topics},
            owned=frozenset(where for where in group.owned if where[0] in snapshot.topics),
        )
    owners = {where: member.client_id or member.id for member in described.members for where in member.owned}
    rows = offset_rows(request, snapshot, group, owners, reported_lags)
    ring = site.sampler.history.lag_by_group.get(group.id)
    return page_response(
        request,
        "group.html",
        "groups",
        group=group,
        detail=described,
        rows=rows,
        total=total_lag([row.lag for row in rows]),
        times=list(ring.times) if ring else [],
        lags=list(ring.values) if ring else [],
        topics=sorted({row.topic for row in rows}),
        plan=None,
        fields={},
    )


async def with_offsets(request: Request, group: GroupRow) -> tuple[GroupRow, dict[Partition, int]]:
    """Puts a share group's start offsets in the place of committed offsets; the broker is asked when a page shows them.

    Also returns the lag that the broker reports: records after the start may already be read, in any order (KIP-1226).
    """
    if group.kind != "share":
        return group, {}
    offsets = await site_of(request).gateway.ask(lambda cluster: share_offsets(cluster, group.id))
    started = {where: row.start_offset for where, row in offsets.items() if row.start_offset >= 0}
    return replace(group, committed=started), {where: row.lag for where, row in offsets.items() if row.lag >= 0}


def offset_rows(
    request: Request,
    snapshot: ClusterSnapshot,
    group: GroupRow,
    owners: dict[Partition, str],
    reported_lags: dict[Partition, int],
) -> list[OffsetRow]:
    group = replace(group, owned=group.owned | owners.keys())
    lags = site_of(request).sampler.history.lags_by_partition(snapshot, group)
    rows = []
    for where in sorted(group.committed.keys() | group.owned):
        lag = lags.get(where, ReadLag(0, None))
        if where in reported_lags:
            lag = ReadLag(reported_lags[where], None if reported_lags[where] else 0.0)
        offset, end = group.committed.get(where, -1), snapshot.ends.get(where)
        rows.append(OffsetRow(where[0], where[1], offset, end, lag, owners.get(where, "")))
    return rows


async def reset(request: Request) -> Response:
    """Shows what would change; changes it only with `execute`."""
    form_data = await form(request)
    site = site_of(request)
    await site.sampler.look()  # a plan is made from what is there now: the last look may be some seconds old
    snapshot, group = await find(request)
    fields = {name: text(form_data, name) for name in ("topic", "to", "at", "partition")}
    group, _ = await with_offsets(request, group)
    plan = await site.gateway.ask(lambda cluster: plan_reset(cluster, snapshot, group, fields))
    if text(form_data, "execute") == "yes":
        await site.gateway.ask(
            lambda cluster: set_offsets(cluster, group, {where: to for where, (_, to) in plan.items()})
        )
        await site.sampler.look()
        return back(f"/groups/{path_part(group.id)}", f"{len(plan)} offsets of {group.id} were set.")
    return page_response(request, "group_reset.html", "groups", group=group, plan=plan, fields=fields)


def plan_reset(
    cluster: Cluster, snapshot: ClusterSnapshot, group: GroupRow, fields: dict[str, str]
) -> dict[Partition, tuple[int | None, int]]:
    """Partition -> (committed now, committed then); an offset outside the log is moved to its nearest end."""
    topic = snapshot.topics.get(fields["topic"])
    if topic is None:
        raise ConsoleError(f"There is no topic {fields['topic']!r}.", status=404)
    if fields["to"] not in _TO:
        raise ConsoleError(f"where to: one of {', '.join(_TO)}")
    only = number(fields["partition"], "Partition") if fields["partition"] else None
    rows = [row for row in topic.partitions if only is None or row.index == only]
    by_time: dict[Partition, int] = {}
    if fields["to"] == "time":
        moment = parse_time_ms(fields["at"])
        timestamps = {(topic.name, row.index): moment for row in rows}
        by_time = {w: f.offset for w, f in list_offsets(cluster, timestamps).items() if isinstance(f, FoundOffset)}
    plan: dict[Partition, tuple[int | None, int]] = {}
    for row in rows:
        where = (topic.name, row.index)
        if row.start is None or row.end is None:
            raise ConsoleError(f"The leader of partition {row.index} of {topic.name} does not answer now.", status=503)
        now, start, end = group.committed.get(where), row.start, row.end
        if fields["to"] == "earliest":
            then = start
        elif fields["to"] == "latest":
            then = end
        elif fields["to"] == "time":
            then = by_time.get(where, -1)
            then = end if then < 0 else then
        elif fields["to"] == "offset":
            then = number(fields["at"], "Offset")
        else:
            then = (now if now is not None else end) + number(fields["at"], "Shift")
        plan[where] = now, min(max(then, start), end)
    if not plan:
        raise ConsoleError(f"{topic.name} has no such partition.")
    return plan


async def delete(request: Request) -> Response:
    form_data = await form(request, "admin")
    name = request.path_params["group"]
    if text(form_data, "confirm") != name:
        raise ConsoleError(f"To be safe, write the group's name, {name}, and try again. Nothing was changed.")
    site = site_of(request)
    await site.gateway.ask(lambda cluster: delete_group(cluster, name))
    await site.sampler.look_until(lambda snapshot: name not in snapshot.groups)
    return back("/groups", f"Group {name} is deleted.")


ROUTES = [
    Route("/groups", show),
    Route("/groups/{group:path}/reset", reset, methods=["POST"]),
    Route("/groups/{group:path}/delete", delete, methods=["POST"]),
    Route("/groups/{group:path}", detail),
]
