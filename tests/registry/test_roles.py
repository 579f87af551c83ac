"""The role of a request is the role of the route that answers it: every route has one, however its path is written."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ottla.registry.http import subjects
from ottla.registry.http.routes import ROUTES
from ottla.security.web import hash_password
from ottla.security.web_users import ROLES
from ottla.testing import Broker
from tests.registry.instances import RegistryThread

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "post")
BODY = json.dumps({"schema": '"int"', "compatibility": "NONE", "mode": "READONLY"})
REGISTRATIONS = (
    "/contexts/compatibility/subjects/:.:orders-value/versions",
    "/subjects/compatibility%2Fa%2Fb/versions",
    "/subjects/compatibility/versions",
    "/subjects/compatibility%2Fsubjects/versions/",
    "//subjects//versions",
    "/contexts/compatibility/subjects/s/versions?compatibility=/compatibility/a/b/c",
)


@pytest.fixture(scope="module")
def registry(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryThread]:
    users = Path(tmp_path_factory.mktemp("roles")) / "users"
    users.write_text("".join(f"{role}:{role}:{hash_password('p')}\n" for role in ROLES))
    with RegistryThread(broker.bootstrap_servers, topic="_schemas_role_walk", users_file=str(users)) as running:
        yield running


class Caller:
    """One connection as a user with a role; paths leave as they are written here."""

    def __init__(self, registry: RegistryThread, role: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(registry.url).netloc, timeout=30)
        login = base64.b64encode(f"{role}:p".encode()).decode()
        self._headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str) -> int:
        self._connection.request(method, path, body=BODY, headers=self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status


def spellings(pattern: tuple[str, ...]) -> list[str]:
    """A route's path, in its own words and in those that have fooled somebody."""
    found = []
    for name in ("s", "compatibility", "compatibility%2Fsubjects%2Fs%2Fversions", "%2e%2e", "S%00"):
        path = "/".join(name if part == "*" else part for part in pattern)
        found += [f"/{path}", f"/contexts/compatibility/{path}", f"/contexts/a%2Fcompatibility/{path}"]
        if name == "s":
            found += [f"//{path}", f"/{path}/", f"/{path.replace('/', '//')}", f"/{path.upper()}", f"/./{path}"]
    return found


def test_every_route_has_a_role() -> None:
    for pattern, methods in ROUTES.items():
        for method, route in methods.items():
            assert route.role in ROLES, (method, pattern)
            assert (route.role == "read") == (not route.writes), (method, pattern)
            assert (route.role == "write") == (route.handler is subjects.register), (method, pattern)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("role", ["read", "write"])
def test_no_spelling_of_a_path_does_more_than_the_role_allows(registry: RegistryThread, role: str) -> None:
    call, state = Caller(registry, role), registry.server.registry.state
    before, subjects_before = registry.server.registry.log.position, set(state.subjects)
    seen: dict[str, set[int]] = {}
    for pattern, methods in ROUTES.items():
        for path in spellings(pattern):
            for method in METHODS:
                if role == "write" and "POST" in methods and methods["POST"].role == "write" and method == "POST":
                    continue  # a writer registers: that is another test
                status = call(method, path)
                assert status in {200, 400, 403, 404, 405, 422}, (method, path, status)
                seen.setdefault(f"{method} {path}", set()).add(status)
    assert registry.server.registry.log.position == before, "a request wrote something"
    assert set(state.subjects) == subjects_before
    for pattern, methods in ROUTES.items():
        for method, route in methods.items():
            plain = f"{method} /{'/'.join('s' if part == '*' else part for part in pattern)}"
            if plain in seen:
                assert (seen[plain] == {403}) == (ROLES.index(route.role) > ROLES.index(role)), plain


@pytest.mark.parametrize("path", REGISTRATIONS)
def test_a_registration_needs_the_role_however_it_is_written(registry: RegistryThread, path: str) -> None:
    assert Caller(registry, "read")("POST", path) == 403
    assert Caller(registry, "write")("POST", path) == 200
