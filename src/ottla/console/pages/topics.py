"""All topics, and making one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.topics import create_topic
from ottla.console.pages.overview import topic_rate
from ottla.console.render import path_part
from ottla.console.site import site_of
from ottla.console.web import back, form, number, page_response, text
from ottla.security.grants import TOPIC


async def show(request: Request) -> Response:
    sampler = site_of(request).sampler
    snapshot = await sampler.current()
    internal = request.query_params.get("internal") == "yes"
    topics = [topic for topic in snapshot.topics.values() if internal or not topic.internal]
    return page_response(
        request,
        "topics.html",
        "topics",
        topics=topics,
        internal=internal,
        hidden=len(snapshot.topics) - len(topics),
        rates={topic.name: topic_rate(sampler.history, topic.name) for topic in topics},
        brokers=len(snapshot.brokers),
    )


async def new(request: Request) -> Response:
    snapshot = await site_of(request).sampler.current()
    return page_response(request, "topic_new.html", "topics", brokers=len(snapshot.brokers))


async def create(request: Request) -> Response:
    form_data = await form(request, anywhere=True)
    name = text(form_data, "name").strip()
    site_of(request).access.require(request, "operator", TOPIC, name)
    partitions = number(text(form_data, "partitions"), "Partitions", -1)
    factor = number(text(form_data, "replication_factor"), "Replication factor", -1)
    configs = {
        setting: value.strip()
        for setting in ("cleanup.policy", "retention.ms", "retention.bytes")
        if (value := text(form_data, setting)).strip()
    }
    site = site_of(request)
    await site.gateway.ask(
        lambda cluster: create_topic(cluster, name, partitions=partitions, replication_factor=factor, configs=configs)
    )
    await site.sampler.look_until(lambda snapshot: name in snapshot.topics and snapshot.topics[name].answering)
    return back(f"/topics/{path_part(name)}", f"Topic {name} was made.")


ROUTES = [Route("/topics", show), Route("/topics", create, methods=["POST"]), Route("/new-topic", new)]
