"""Settings of all brokers: what is set while running for the whole cluster, and the documentation of every name."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.configs import DELETE, SET, ConfigResourceType, alter_configs, describe_configs
from ottla.console.cluster.snapshot import ClusterSnapshot
from ottla.console.errors import ConsoleError
from ottla.console.pages.config_table import config_rows, until_changed
from ottla.console.site import site_of
from ottla.console.web import back, form, page_response, text
from ottla.model.config_source import ConfigSource


def _first_answering(snapshot: ClusterSnapshot) -> str:
    if not snapshot.answering:
        raise ConsoleError("No broker answers.", status=503)
    return str(snapshot.answering[0])


async def show(request: Request) -> Response:
    site = site_of(request)
    snapshot = await site.sampler.current()
    node = _first_answering(snapshot)
    configs = await site.gateway.ask(
        lambda cluster: describe_configs(cluster, ConfigResourceType.BROKER, [node], synonyms=True)
    )
    rows = config_rows(configs.get(node, []), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, "broker")
    return page_response(request, "settings.html", "settings", rows=rows, node=node)


async def change(request: Request) -> Response:
    form_data = await form(request, "admin")
    name, value, reset = text(form_data, "name"), text(form_data, "value"), text(form_data, "reset") == "yes"
    edit = (name, DELETE, None) if reset else (name, SET, value)
    site = site_of(request)
    await site.gateway.ask(lambda cluster: alter_configs(cluster, ConfigResourceType.BROKER, "", [edit]))
    snapshot = await site.sampler.current()
    node = _first_answering(snapshot)
    level = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    await until_changed(site.gateway, ConfigResourceType.BROKER, node, name, level, None if reset else value)
    return back("/settings", f"{name} is back to its default." if reset else f"{name} is now {value} on all brokers.")


ROUTES = [Route("/settings", show), Route("/settings", change, methods=["POST"])]
