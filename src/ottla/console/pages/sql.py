"""SQL over topics: DuckDB on what the topics hold now, with nothing else in reach."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.errors import ConsoleError
from ottla.console.site import site_of
from ottla.console.sql_engine import QueryResult, run_query
from ottla.console.web import form, page_response, text


async def show(request: Request) -> Response:
    return page_response(request, "sql.html", "sql", query="", answer=None, problem="", took=0.0)


async def run(request: Request) -> Response:
    form_data = await form(request, "viewer", anywhere=True)
    site, query = site_of(request), text(form_data, "query")
    answer: QueryResult | None = None
    problem, started = "", time.monotonic()
    try:
        answer = await site.gateway.in_export_thread(lambda: run_query(site, query))
    except ConsoleError as error:
        problem = error.message
    took = time.monotonic() - started
    return page_response(request, "sql.html", "sql", query=query, answer=answer, problem=problem, took=took)


ROUTES = [Route("/sql", show), Route("/sql", run, methods=["POST"])]
