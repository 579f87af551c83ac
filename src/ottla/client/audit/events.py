"""An audit event of an HTTP server: who asked for what, of which resource, from where, and whether it was allowed.

The fields have the names of the broker's own events (`ottla.broker.audit.events`). Every field is cut: an event has at most some
4 KB, however much a peer sends. Bodies, form values, passwords and tokens are never in it.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from typing import Any

from ottla.model.peer_text import cut
from ottla.security.web import Scope, client_of
from ottla.security.web_hosts import READING, headers_of

Event = dict[str, Any]
FACTS = "ottla.audit"
"""Key of an ASGI scope where a handler stores more exact facts: event, action, principal, resources."""
MAX_RESOURCES = 10
REFUSED = frozenset({401, 403, 421, 429})


def is_worth_noting(scope: Scope, status: int) -> bool:
    """Every change and every refusal; not the first request of a browser, which shows no login yet."""
    if scope["method"] not in READING or FACTS in scope:
        return True
    return status in REFUSED and (status != 401 or any(name == b"authorization" for name, _ in scope["headers"]))


def request_event(surface: str, scope: Scope, status: int) -> Event:
    facts: Mapping[str, Any] = scope.get(FACTS) or {}
    endpoint = scope.get("endpoint")
    action = f"{endpoint.__module__.rpartition('.')[2]}.{endpoint.__name__}" if callable(endpoint) else scope["method"]
    resources = facts.get("resources") or list((scope.get("path_params") or {}).values()) or [scope["path"]]
    return {
        "timestamp_ms": int(time.time() * 1000),
        "surface": surface,
        "event": str(facts.get("event", "request")),
        "action": cut(str(facts.get("action", action))),
        "method": cut(scope["method"]),
        "principal": cut(str(facts.get("principal") or _principal(scope))),
        "host": client_of(scope),
        "resources": [cut(str(resource)) for resource in resources[:MAX_RESOURCES]],
        "allowed": status not in REFUSED,
        "status": status,
    }


def _principal(scope: Scope) -> str:
    user = scope.get("user") or (scope.get("state") or {}).get("user")
    name = getattr(user, "name", "") or _claimed(headers_of(scope).get("authorization", ""))
    return f"User:{name}" if name and name != "anonymous" else "User:ANONYMOUS"


def _claimed(authorization: str) -> str:
    """The name that a refused login showed."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[0]
    except ValueError:
        return ""
