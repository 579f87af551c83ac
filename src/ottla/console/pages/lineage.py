"""Lineage: what feeds what, as a picture, a table and OpenLineage events."""

from __future__ import annotations

import contextlib

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.console.cluster.snapshot import ClusterSnapshot
from ottla.console.errors import ConsoleError
from ottla.console.lineage import Lineage, find_listeners, gather, lineage_drawing, open_lineage
from ottla.console.pages.pipelines import running
from ottla.console.site import site_of
from ottla.console.web import page_response

_MOST_EDGES = 400
"""Flows in the drawing."""
_MOST_ROWS = 1_000


async def _look(request: Request) -> tuple[ClusterSnapshot, Lineage]:
    site = site_of(request)
    snapshot = await site.sampler.current()
    listeners = await site.gateway.ask(lambda cluster: find_listeners(cluster, snapshot))
    pipelines, node_user = [], site.settings.node_user
    if not site.user.rights.limited:  # as their own page: names of pipelines are about the whole cluster
        with contextlib.suppress(ConsoleError):  # the pipelines page shows the reason
            pipelines = await site.gateway.in_thread(lambda: running(site))
    lineage = await site.gateway.in_thread(lambda: gather(snapshot, listeners, pipelines, node_user))
    return snapshot, lineage.of(snapshot.topics) if site.limited else lineage


async def show(request: Request) -> Response:
    _, lineage = await _look(request)
    drawing = lineage_drawing(lineage) if len(lineage.edges) <= _MOST_EDGES else None
    edges = sorted((edge.source.partition(":")[2], edge.target.partition(":")[2]) for edge in lineage.edges)
    left_out = max(0, len(edges) - _MOST_ROWS)
    return page_response(
        request,
        "lineage.html",
        "lineage",
        lineage=lineage,
        drawing=drawing,
        edges=edges[:_MOST_ROWS],
        left_out=left_out,
    )


async def export(request: Request) -> Response:
    snapshot, lineage = await _look(request)
    return await site_of(request).gateway.in_thread(lambda: JSONResponse(open_lineage(lineage, snapshot.cluster_id)))


ROUTES = [Route("/lineage", show), Route("/lineage.json", export)]
