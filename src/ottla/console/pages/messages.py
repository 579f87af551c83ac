"""The messages of a topic: a page from anywhere, exports, writing and replaying. Live things are in messages_live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import chain

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ottla.console.errors import ConsoleError, require_here
from ottla.console.messages.browse import Place, browse
from ottla.console.messages.decode import FORMATS, Decoder
from ottla.console.messages.export import MEDIA_TYPES, WRITERS, records
from ottla.console.messages.filters import Filter
from ottla.console.messages.write import parse_bytes, parse_headers, produce, replay
from ottla.console.pages.topic import find
from ottla.console.render import path_part
from ottla.console.settings import MAX_EXPORT
from ottla.console.site import Site, site_of
from ottla.console.web import back, form, number, page_response, text
from ottla.security.grants import TOPIC

_PAGE = 50
_MOST = 500


def place_of(parameters: QueryParams) -> Place:
    begin = parameters.get("begin") or "newest"
    if begin not in ("newest", "oldest", "offset", "time"):
        raise ConsoleError(f"begin: {begin!r} is none of newest, oldest, offset, time")
    chosen = parameters.get("partition", "")
    partitions = frozenset({number(chosen, "Partition")}) if chosen else frozenset[int]()
    return Place(begin=begin, at=parameters.get("at", ""), partitions=partitions)


def filter_of(parameters: QueryParams) -> Filter:
    return Filter(
        key=parameters.get("key", ""),
        value=parameters.get("value", ""),
        header=parameters.get("header", ""),
        path=parameters.get("path", ""),
    )


def decoders_of(site: Site, parameters: QueryParams) -> tuple[Decoder, Decoder]:
    return (
        Decoder(site.registry, parameters.get("key_format") or "auto"),
        Decoder(site.registry, parameters.get("value_format") or "auto"),
    )


async def show(request: Request) -> Response:
    site, parameters = site_of(request), request.query_params
    _, topic = await find(request)
    place, message_filter = place_of(parameters), filter_of(parameters)
    mode = parameters.get("mode") or "browse"
    count = min(number(parameters.get("count", ""), "Count", _PAGE), _MOST)
    page, rows = None, []
    if mode == "browse":
        page = await site.gateway.in_thread(lambda: browse(site.reach, topic.name, place, count))
        rows = await decode_rows(site, parameters, page.records)
    return page_response(
        request,
        "messages.html",
        "topics",
        tab="messages",
        topic=topic,
        mode=mode,
        place=place,
        filter=message_filter,
        formats=FORMATS,
        page=page,
        rows=rows,
        count=count,
        query=str(request.url.query),
        parameters=parameters,
        search=None,
    )


async def decode_rows(site: Site, parameters: QueryParams, batch: list) -> list:  # type: ignore[type-arg]
    """Each record with its key and value as text; the registry may have to be asked, so in a thread."""
    key, value = decoders_of(site, parameters)

    def decode() -> list[tuple[object, object, object]]:
        return [(record, key.decode(record.key), value.decode(record.value)) for record in batch]

    return await site.gateway.in_thread(decode)


async def export(request: Request) -> Response:
    site, parameters = site_of(request), request.query_params
    _, topic = await find(request)
    kind = parameters.get("format") or "jsonl"
    if kind not in WRITERS:
        raise ConsoleError(f"{kind!r} is not an export format; use one of {', '.join(WRITERS)}")
    if kind == "parquet":
        require_here("an export to Parquet", "pyarrow")
    place, message_filter = place_of(parameters), filter_of(parameters)
    if place.begin == "newest":
        place = Place(begin="oldest", partitions=place.partitions)
    predicate = None if message_filter.empty else message_filter.predicate(decoders_of(site, parameters)[1])
    limit = min(number(parameters.get("limit", ""), "Limit", MAX_EXPORT), MAX_EXPORT)
    batches = records(site.reach, topic.name, place, predicate, limit)
    # The first piece comes before the answer begins: a person who may not read gets an error page, not an empty file.
    first = await site.gateway.in_export_thread(lambda: next(batches, []))
    chunks = WRITERS[kind](chain([first], batches))
    headers = {"Content-Disposition": f'attachment; filename="{topic.name}.{kind}"'}
    return StreamingResponse(_threaded(request, chunks), media_type=MEDIA_TYPES[kind], headers=headers)


async def _threaded(request: Request, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    site, end = site_of(request), object()
    while True:
        chunk = await site.gateway.in_export_thread(partial(next, chunks, end))
        if chunk is end or not await site.access.still_in(request):
            return
        yield chunk


async def write(request: Request) -> Response:
    form_data = await form(request)
    site, topic = site_of(request), request.path_params["topic"]
    key_text = text(form_data, "key")
    key = parse_bytes(
        key_text, text(form_data, "key_encoding"), null=not key_text and text(form_data, "key_null") == "yes"
    )
    value = parse_bytes(
        text(form_data, "value"), text(form_data, "value_encoding"), null=text(form_data, "value_null") == "yes"
    )
    partition, headers = (
        number(text(form_data, "partition"), "Partition", -1),
        parse_headers(text(form_data, "headers")),
    )
    written = await site.gateway.in_thread(lambda: produce(site.reach, topic, partition, key, value, headers))
    notice = f"Written to partition {written.partition} at offset {written.offset}."
    return back(f"/topics/{path_part(topic)}/messages", notice)


async def copy(request: Request) -> Response:
    form_data = await form(request, anywhere=True)
    site, topic = site_of(request), request.path_params["topic"]
    target = text(form_data, "target").strip()
    site.access.require(request, "viewer", TOPIC, topic)
    site.access.require(request, "operator", TOPIC, target)
    if target == topic:
        raise ConsoleError("A replay into the same topic would never end; choose another.")
    if site.mask_of(topic) is not None:
        raise ConsoleError(f"Fields of {topic} are masked for you, so that a copy would be damaged.", status=403)
    snapshot = await site.sampler.look()
    if target not in snapshot.topics:
        raise ConsoleError(f"There is no topic {target}; make it first. Nothing was copied.", status=404)
    place = Place(begin=text(form_data, "begin") or "oldest", at=text(form_data, "at"))
    limit = min(number(text(form_data, "limit"), "At most", 1000), MAX_EXPORT)
    keep_time = text(form_data, "keep_time") == "yes"
    batches = records(site.reach, topic, place, None, limit)
    copied = await site.gateway.in_thread(lambda: replay(site.reach, batches, target, keep_time=keep_time))
    return back(f"/topics/{path_part(target)}/messages", f"{copied:,} messages of {topic} were copied here.")


ROUTES = [
    Route("/topics/{topic}/messages", show),
    Route("/topics/{topic}/export", export),
    Route("/topics/{topic}/produce", write, methods=["POST"]),
    Route("/topics/{topic}/replay", copy, methods=["POST"]),
]
