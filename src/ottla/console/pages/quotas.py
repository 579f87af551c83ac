"""Quotas: how much a user, a client id or an address may take."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.cluster.access import QUOTAS, QuotaRow, list_quotas, set_quota
from ottla.console.errors import ConsoleError
from ottla.console.pages.access import ask_or_reason
from ottla.console.site import site_of
from ottla.console.web import back, form, page_response, text

_DEFAULT = "*default*"
_KINDS = ("user", "client-id", "ip")


async def show(request: Request) -> Response:
    quotas, reason = await ask_or_reason(site_of(request), list_quotas)
    return page_response(request, "quotas.html", "quotas", quotas=quotas, reason=reason, names=QUOTAS, default=_DEFAULT)


async def change(request: Request) -> Response:
    form_data = await form(request, "admin")
    entity: dict[str, str | None] = {}
    for kind in _KINDS:
        who = text(form_data, kind).strip()
        if who:
            entity[kind] = None if who == _DEFAULT else who
    if not entity:
        raise ConsoleError("Say for whom: a user, a client id or an address.")
    name = text(form_data, "name")
    if name not in QUOTAS:
        raise ConsoleError(f"{name!r} is not a quota; use one of {', '.join(QUOTAS)}")
    value: float | None = None
    if text(form_data, "remove") != "yes":
        try:
            value = float(text(form_data, "value"))
        except ValueError:
            raise ConsoleError(f"{text(form_data, 'value')!r} is not a number") from None
    gateway = site_of(request).gateway
    await gateway.ask(lambda cluster: set_quota(cluster, entity, name, value))
    of = tuple(sorted(entity.items()))
    await gateway.ask_until(list_quotas, lambda quotas: _value(quotas, of, name) == value)
    return back("/quotas", f"{name} was removed." if value is None else f"{name} is now {value:g}.")


def _value(quotas: list[QuotaRow], entity: tuple[tuple[str, str | None], ...], name: str) -> float | None:
    return next((dict(quota.values).get(name) for quota in quotas if quota.entity == entity), None)


ROUTES = [Route("/quotas", show), Route("/quotas", change, methods=["POST"])]
