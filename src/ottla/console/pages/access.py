"""Access: ACLs and SCRAM users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.cluster import Cluster
from ottla.console.cluster.access import (
    MECHANISMS,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    RESOURCES,
    AclRow,
    create_acl,
    delete_acl,
    list_acls,
    list_users,
    remove_user,
    set_password,
)
from ottla.console.errors import ConsoleError
from ottla.console.site import Site, site_of
from ottla.console.web import back, form, number, page_response, text

Result = TypeVar("Result")


async def ask_or_reason(site: Site, question: Callable[[Cluster], Result]) -> tuple[Result | None, str]:
    """The answer, or why there is none: a part of the page that cannot be had must not take the rest with it."""
    try:
        return await site.gateway.ask(question), ""
    except ConsoleError as error:
        return None, error.message


async def show(request: Request) -> Response:
    site = site_of(request)
    acls, acl_reason = await ask_or_reason(site, list_acls)
    users, user_reason = await ask_or_reason(site, list_users)
    return page_response(
        request,
        "access.html",
        "access",
        acls=acls,
        acl_reason=acl_reason,
        users=users,
        user_reason=user_reason,
        resources=RESOURCES,
        patterns=PATTERNS,
        operations=OPERATIONS,
        permissions=PERMISSIONS,
        mechanisms=MECHANISMS,
    )


def _code_of(value: str, table: Mapping[int, str], what: str) -> int:
    chosen = number(value, what)
    if chosen not in table:
        raise ConsoleError(f"{what}: {value} is none of {', '.join(table.values())}")
    return chosen


async def change_acl(request: Request) -> Response:
    form_data = await form(request, "admin")
    acl = AclRow(
        _code_of(text(form_data, "resource"), RESOURCES, "Resource"),
        text(form_data, "name").strip(),
        _code_of(text(form_data, "pattern"), PATTERNS, "Pattern"),
        text(form_data, "principal").strip(),
        text(form_data, "host").strip() or "*",
        _code_of(text(form_data, "operation"), OPERATIONS, "Operation"),
        _code_of(text(form_data, "permission"), PERMISSIONS, "Permission"),
    )
    site = site_of(request)
    if text(form_data, "remove") == "yes":
        removed = await site.gateway.ask(lambda cluster: delete_acl(cluster, acl))
        await site.gateway.ask_until(list_acls, lambda acls: acl not in acls)
        return back("/access", f"{removed} rule removed." if removed else "The rule was gone already.")
    if not acl.principal.startswith("User:"):
        raise ConsoleError("A principal is written User:name.")
    await site.gateway.ask(lambda cluster: create_acl(cluster, acl))
    await site.gateway.ask_until(list_acls, lambda acls: acl in acls)
    return back("/access", f"{acl.principal} has a new rule.")


async def change_user(request: Request) -> Response:
    form_data = await form(request, "admin")
    name, mechanism = text(form_data, "user").strip(), _code_of(text(form_data, "mechanism"), MECHANISMS, "Mechanism")
    site = site_of(request)
    if text(form_data, "remove") == "yes":
        if text(form_data, "confirm") != name:
            raise ConsoleError(f"To be safe, write the user's name, {name}, and try again. Nothing was changed.")
        await site.gateway.ask(lambda cluster: remove_user(cluster, name, mechanism))
        await site.gateway.ask_until(list_users, lambda users: MECHANISMS[mechanism] not in users.get(name, []))
        return back("/access", f"{name} cannot log in with {MECHANISMS[mechanism]} any more.")
    password = text(form_data, "password")
    if not name or len(password) < 8:
        raise ConsoleError("A user needs a name and a password of 8 characters or more.")
    await site.gateway.ask(lambda cluster: set_password(cluster, name, mechanism, password))
    await site.gateway.ask_until(list_users, lambda users: MECHANISMS[mechanism] in users.get(name, []))
    return back("/access", f"{name} can log in with {MECHANISMS[mechanism]}.")


ROUTES = [
    Route("/access", show),
    Route("/access/acls", change_acl, methods=["POST"]),
    Route("/access/users", change_user, methods=["POST"]),
]
