"""The overview: is all well, how much flows, who is behind, what needs attention. Answered from the last look."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.group_lag import ReadLag
from ottla.console.cluster.history import History
from ottla.console.cluster.snapshot import ClusterSnapshot, GroupRow
from ottla.console.cluster.user_sampler import UserHistory
from ottla.console.render import path_part
from ottla.console.site import site_of
from ottla.console.web import page_response

_TOP = 8
_BEHIND_S = 60
_DISK_LOW = 0.1


@dataclass(frozen=True, slots=True)
class Concern:
    level: str
    text: str
    href: str


async def show(request: Request) -> Response:
    return await _answer(request, "overview.html")


async def fragment(request: Request) -> Response:
    return await _answer(request, "overview_live.html")


async def _answer(request: Request, template: str) -> Response:
    sampler = site_of(request).sampler
    snapshot = await sampler.current()
    history = sampler.history
    lags = sampler.lags
    times, rates = history.written.rates()
    busiest = sorted(
        (
            (rate, topic)
            for topic in snapshot.topics.values()
            if not topic.internal and (rate := topic_rate(history, topic.name))
        ),
        key=lambda pair: -pair[0],
    )[:_TOP]
    behind = sorted(
        ((snapshot.groups[name], lag) for name, lag in lags.items() if lag.records), key=lambda pair: -pair[1].records
    )[:_TOP]
    return page_response(
        request,
        template,
        "overview",
        snapshot=snapshot,
        problem=sampler.error,
        concerns=concerns(snapshot, lags),
        own_topics=sum(not topic.internal for topic in snapshot.topics.values()),
        partitions=sum(len(topic.partitions) for topic in snapshot.topics.values()),
        size=sum(row.size or 0 for row in snapshot.brokers),
        rate=history.written.rate(),
        times=times,
        rates=rates,
        busiest=busiest,
        behind=behind,
        total_lag=sum(lag.records for lag in lags.values()),
    )


def topic_rate(history: History | UserHistory, name: str) -> float | None:
    ring = history.written_by_topic.get(name)
    return ring.rate() if ring is not None else None


def concerns(snapshot: ClusterSnapshot, lags: dict[str, ReadLag]) -> list[Concern]:
    """What a person should look at, worst first."""
    concern_list = []
    for topic in snapshot.topics.values():
        href = f"/topics/{path_part(topic.name)}"
        if topic.leaderless:
            concern_list.append(
                Concern("bad", f"{topic.name}: {topic.leaderless} partitions have no leader and cannot be used", href)
            )
        elif topic.under_replicated:
            concern_list.append(
                Concern("warn", f"{topic.name}: {topic.under_replicated} partitions lack replicas in sync", href)
            )
    for broker in snapshot.brokers:
        href = f"/brokers/{broker.id}"
        concern_list += [
            Concern("bad", f"broker {broker.id}: log directory {path} is offline", href) for path in broker.offline_dirs
        ]
        if broker.disk_total and broker.disk_free is not None and broker.disk_free < broker.disk_total * _DISK_LOW:
            concern_list.append(Concern("warn", f"broker {broker.id}: less than a tenth of its disk is free", href))
    concern_list += _group_concerns(snapshot.groups, lags)
    concern_list += [Concern("warn", f"could not ask for {problem}", "/brokers") for problem in snapshot.problems]
    return sorted(concern_list, key=lambda concern: concern.level != "bad")[:50]


def _group_concerns(groups: dict[str, GroupRow], lags: dict[str, ReadLag]) -> list[Concern]:
    concern_list = []
    for name, lag in lags.items():
        href = f"/groups/{path_part(name)}"
        moves = lag.seconds is not None and lag.seconds <= _BEHIND_S and not lag.at_least
        if lag.records and groups[name].state == "Empty" and not moves:  # pipelines and sinks commit without members
            concern_list.append(
                Concern("warn", f"group {name} has {lag.records:,} records to read and no member", href)
            )
        elif lag.records and lag.seconds is not None and lag.seconds > _BEHIND_S:
            concern_list.append(Concern("warn", f"group {name} is {lag.seconds / 60:.0f} minutes behind", href))
    return concern_list


ROUTES = [Route("/", show), Route("/overview/live", fragment)]
