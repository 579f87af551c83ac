"""The live side of messages: tails and searches, as server-sent events. Rows are rendered and escaped here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ottla.console.errors import ConsoleError
from ottla.console.messages.decode import FORMATS
from ottla.console.messages.record import BrowsedRecord
from ottla.console.messages.search import ENDED, Search
from ottla.console.messages.tail import Tail
from ottla.console.pages.messages import decode_rows, decoders_of, filter_of, place_of
from ottla.console.pages.topic import find
from ottla.console.render import path_part, render
from ottla.console.settings import MAX_HITS, MAX_TAILS
from ottla.console.site import Site, site_of
from ottla.console.web import form, page_response, read_form

_EVERY_S = 0.4
_FORM_FIELDS = ("key_format", "value_format", "key", "value", "header", "path", "begin", "at", "partition")


def event(kind: str, data: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _rows(site: Site, parameters: QueryParams, batch: list[BrowsedRecord]) -> bytes:
    rows = await decode_rows(site, parameters, batch)
    return event("rows", {"html": render("message_rows.html", rows=rows)})


# Tail


async def tail(request: Request) -> Response:
    site, parameters = site_of(request), request.query_params
    _, topic = await find(request)
    message_filter = filter_of(parameters)
    predicate = None if message_filter.empty else message_filter.predicate(decoders_of(site, parameters)[1])
    if site.tails.count >= MAX_TAILS:
        raise ConsoleError(f"{MAX_TAILS} tails are open; close one first", status=429)
    return _stream(_tail_events(request, Tail(site.reach, topic.name, place_of(parameters).partitions, predicate)))


async def _tail_events(request: Request, tail: Tail) -> AsyncIterator[bytes]:
    site = site_of(request)
    site.tails.count += 1
    seen_before, rate = 0, 0.0
    try:
        while not await request.is_disconnected() and await site.access.still_in(request):
            batch = tail.take()
            if batch:
                yield await _rows(site, request.query_params, batch)
            rate = 0.7 * rate + 0.3 * (tail.seen - seen_before) / _EVERY_S
            seen_before = tail.seen
            state = tail.error or ("reading" if tail.reading.is_set() else "starting")
            texts = {
                "live-state": state,
                "live-seen": f"{tail.seen:,}",
                "live-rate": f"{rate:,.0f}",
                "live-matched": f"{tail.matched:,}",
            }
            yield event("status", {"texts": texts, "over": bool(tail.error)})
            if tail.error:
                return
            await asyncio.sleep(_EVERY_S)
    finally:
        tail.stop()
        site.tails.count -= 1


# Search


async def start(request: Request) -> Response:
    """A form, because a search takes the cluster's time; it changes nothing, so that any role may."""
    form_data = await read_form(request, max_fields=50)
    fields = QueryParams([(name, str(form_data.get(name, ""))) for name in _FORM_FIELDS])
    site = site_of(request)
    _, topic = await find(request)
    message_filter = filter_of(fields)
    if message_filter.empty:
        raise ConsoleError(
            "Say what to look for: a part of the key or value, a header, or a path such as $.user.id == 7."
        )
    place = place_of(fields)
    if place.begin == "newest":
        place = place_of(QueryParams({**dict(fields), "begin": "oldest"}))
    search = site.searches.start(
        Search(topic.name, place, message_filter, decoders_of(site, fields)[1], owner=site.user.name), site.reach
    )
    return RedirectResponse(f"/topics/{path_part(topic.name)}/search/{search.id}?{fields}", status_code=303)


async def show(request: Request) -> Response:
    search = _search(request)
    _, topic = await find(request)
    parameters = request.query_params
    return page_response(
        request,
        "messages.html",
        "topics",
        tab="messages",
        topic=topic,
        mode="search",
        place=search.place,
        filter=search.filter,
        formats=FORMATS,
        page=None,
        rows=[],
        count=0,
        query=str(request.url.query),
        parameters=parameters,
        search=search,
        most=MAX_HITS,
    )


async def events(request: Request) -> Response:
    await find(request)
    return _stream(_search_events(request, _search(request)))


async def _search_events(request: Request, search: Search) -> AsyncIterator[bytes]:
    site, sent = site_of(request), 0
    while not await request.is_disconnected() and await site.access.still_in(request):
        state = search.state  # once: its thread goes on, and a page that reads "cancelled" has its buttons off
        over = state in ENDED
        hits = search.hits[sent : sent + 100]
        if hits:
            sent += len(hits)
            yield await _rows(site, request.query_params, hits)
        more = sent < len(search.hits)
        texts = {
            "live-state": search.error or state,
            "live-seen": f"{search.records_read:,}",
            "live-offsets": f"{search.offsets_read:,} of {search.offsets_total:,} offsets ({search.percent:.1f} %)",
            "live-matched": f"{search.hit_count:,}",
            "live-time": f"{search.seconds:.1f} s",
        }
        yield event("status", {"texts": texts, "percent": search.percent, "over": over and not more})
        if over and not more:
            return
        if not more:
            await asyncio.sleep(_EVERY_S)


async def control(request: Request) -> Response:
    await form(request, "viewer")
    search = _search(request)
    action = request.path_params["action"]
    if action == "pause":
        search.pause()
    elif action == "resume":
        search.resume()
    elif action == "cancel":
        search.cancel()
    else:
        raise ConsoleError(f"a search cannot {action}", status=404)
    return Response(status_code=204)


def _search(request: Request) -> Search:
    site = site_of(request)
    search = site.searches.get(request.path_params["search"], site.user.name)
    if search.topic != request.path_params["topic"]:
        raise ConsoleError("this search reads a different topic", status=404)
    return search


ROUTES = [
    Route("/topics/{topic}/tail", tail),
    Route("/topics/{topic}/search", start, methods=["POST"]),
    Route("/topics/{topic}/search/{search}", show),
    Route("/topics/{topic}/search/{search}/events", events),
    Route("/topics/{topic}/search/{search}/{action}", control, methods=["POST"]),
]
