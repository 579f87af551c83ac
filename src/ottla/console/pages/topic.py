"""One topic: partitions and growth, settings, who reads it, and what can be done to it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.configs import DELETE, SET, ConfigResourceType, alter_configs, describe_configs
from ottla.client.offsets import delete_records
from ottla.client.topics import create_partitions, delete_topic
from ottla.console.cluster.history import total_lag
from ottla.console.cluster.snapshot import ClusterSnapshot, TopicRow
from ottla.console.errors import ConsoleError
from ottla.console.pages.config_table import config_rows, until_changed
from ottla.console.render import path_part
from ottla.console.site import site_of
from ottla.console.web import back, form, number, page_response, text
from ottla.model.config_source import ConfigSource
from ottla.model.errors import KafkaError
from ottla.model.quarantine import TOPIC_SETTING, quarantine_topic
from ottla.security.grants import TOPIC


async def find(request: Request) -> tuple[ClusterSnapshot, TopicRow]:
    """The topic of the address; a look more when it may be new."""
    name = request.path_params["topic"]
    sampler = site_of(request).sampler
    snapshot = await sampler.current()
    if name not in snapshot.topics:
        snapshot = await sampler.look()
    try:
        return snapshot, snapshot.topics[name]
    except KeyError:
        raise ConsoleError(f"There is no topic {name}.", status=404) from None


async def show(request: Request) -> Response:
    _, topic = await find(request)
    history = site_of(request).sampler.history
    written, sizes = history.written_by_topic.get(topic.name), history.size_by_topic.get(topic.name)
    times, rates = written.rates() if written else ([], [])
    return page_response(
        request,
        "topic.html",
        "topics",
        tab="partitions",
        topic=topic,
        rate=written.rate() if written else None,
        times=times,
        rates=rates,
        size_times=list(sizes.times) if sizes else [],
        sizes=list(sizes.values) if sizes else [],
    )


async def consumers(request: Request) -> Response:
    snapshot, topic = await find(request)
    history = site_of(request).sampler.history
    rows = []
    for group in snapshot.groups.values():
        lags = [lag for where, lag in history.lags_by_partition(snapshot, group).items() if where[0] == topic.name]
        if lags:
            rows.append((group, len(lags), total_lag(lags)))
    return page_response(request, "topic_consumers.html", "topics", tab="consumers", topic=topic, rows=rows)


async def settings(request: Request) -> Response:
    _, topic = await find(request)
    configs = await site_of(request).gateway.ask(
        lambda cluster: describe_configs(cluster, ConfigResourceType.TOPIC, [topic.name], synonyms=True)
    )
    rows = config_rows(configs.get(topic.name, []), ConfigSource.DYNAMIC_TOPIC_CONFIG, "topic")
    return page_response(request, "topic_settings.html", "topics", tab="settings", topic=topic, rows=rows)


async def change_setting(request: Request) -> Response:
    form_data = await form(request)
    topic = request.path_params["topic"]
    name, value = text(form_data, "name"), text(form_data, "value")
    reset = text(form_data, "reset") == "yes"
    if name == TOPIC_SETTING:
        _check_quarantine(request, quarantine_topic(topic, "" if reset else value.strip()))
    change = (name, DELETE, None) if reset else (name, SET, value)
    gateway = site_of(request).gateway
    await gateway.ask(lambda cluster: alter_configs(cluster, ConfigResourceType.TOPIC, topic, [change]))
    level = ConfigSource.DYNAMIC_TOPIC_CONFIG
    await until_changed(gateway, ConfigResourceType.TOPIC, topic, name, level, None if reset else value)
    notice = f"{name} is back to its default." if reset else f"{name} is now {value}."
    return back(f"/topics/{path_part(topic)}/settings", notice)


def _check_quarantine(request: Request, target: str) -> None:
    """Records of this topic go there, written by the node: that needs what a replay into the target needs."""
    site, topic = site_of(request), request.path_params["topic"]
    site.access.require(request, "operator", TOPIC, target)
    if site.mask_of(topic) is not None:
        raise ConsoleError(
            f"Fields of {topic} are masked for you: you may not choose its quarantine topic.", status=403
        )


async def actions(request: Request) -> Response:
    _, topic = await find(request)
    return page_response(request, "topic_actions.html", "topics", tab="actions", topic=topic)


async def grow(request: Request) -> Response:
    form_data = await form(request)
    topic, count = request.path_params["topic"], number(text(form_data, "count"), "Partitions")
    site = site_of(request)
    await site.gateway.ask(lambda cluster: create_partitions(cluster, topic, count, None))

    def grown(snapshot: ClusterSnapshot) -> bool:
        row = snapshot.topics.get(topic)
        return row is not None and len(row.partitions) == count and row.answering

    await site.sampler.look_until(grown)
    return back(f"/topics/{path_part(topic)}", f"{topic} has {count} partitions now.")


async def truncate(request: Request) -> Response:
    form_data = await form(request, "admin")
    name = _named(request, text(form_data, "confirm"))
    _, topic = await find(request)
    site = site_of(request)
    before = {(name, row.index): -1 for row in topic.partitions}
    results = await site.gateway.ask(lambda cluster: delete_records(cluster, before))
    refused = [
        f"partition {where[1]}: {result.message}" for where, result in results.items() if isinstance(result, KafkaError)
    ]
    if refused:
        raise ConsoleError("; ".join(refused))
    await site.sampler.look()
    return back(f"/topics/{path_part(name)}", f"All records of {name} are deleted.")


async def delete(request: Request) -> Response:
    form_data = await form(request, "admin")
    name = _named(request, text(form_data, "confirm"))
    site = site_of(request)
    await site.gateway.ask(lambda cluster: delete_topic(cluster, name))
    await site.sampler.look_until(lambda snapshot: name not in snapshot.topics)
    return back("/topics", f"Topic {name} is deleted.")


def _named(request: Request, confirmed: str) -> str:
    name: str = request.path_params["topic"]
    if confirmed != name:
        raise ConsoleError(f"To be safe, write the topic's name, {name}, and try again. Nothing was changed.")
    return name


ROUTES = [
    Route("/topics/{topic}", show),
    Route("/topics/{topic}/consumers", consumers),
    Route("/topics/{topic}/settings", settings),
    Route("/topics/{topic}/settings", change_setting, methods=["POST"]),
    Route("/topics/{topic}/actions", actions),
    Route("/topics/{topic}/grow", grow, methods=["POST"]),
    Route("/topics/{topic}/truncate", truncate, methods=["POST"]),
    Route("/topics/{topic}/delete", delete, methods=["POST"]),
]
