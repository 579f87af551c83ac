"""Logging in at a real OpenID provider: code with PKCE, what is refused, what a session is worth, and logging out."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from confluent_kafka import Producer

from ottla.console.access import COOKIE, AccessControl
from ottla.console.errors import ConsoleError
from ottla.console.login_attempt import local_path, new_attempt
from ottla.console.oidc import Identity, Provider, ProviderCalls
from ottla.console.pages.login import ATTEMPT_COOKIE
from ottla.console.sessions import MAX_SESSIONS, MAX_SESSIONS_OF_ONE, Sessions
from ottla.security.access_rules import AccessRules, OidcRules
from ottla.security.grants import Grant
from ottla.security.ruled_access import RuledAccess
from ottla.security.web import hash_password
from ottla.testing import Broker
from tests.console.apart import run_apart
from tests.console.site import ServedConsole
from tests.support.kafka_jars import Unavailable
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider, log_in, onward

pytestmark = pytest.mark.timeout(180)
GRANTS = """
[[grant]]
groups = ["admins"]
role = "admin"

[[grant]]
groups = ["data-team"]
role = "viewer"
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    try:
        with OidcProvider() as running:
            yield running
    except Unavailable as reason:
        pytest.skip(str(reason))


def rules_file(folder: Path, issuer: str, more: str = GRANTS, **oidc: str) -> str:
    (folder / "secret").write_text(CLIENT_SECRET + "\n")
    fields = {"issuer": issuer, "client_id": CLIENT_ID, "client_secret_file": "secret", **oidc}
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    file = folder / "access.toml"
    file.write_text('[oidc]\nscopes = ["openid", "groups"]\n' + "\n".join(lines) + more)
    return str(file)


@pytest.fixture(scope="module")
def console(
    broker: Broker, provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedConsole]:
    rules = rules_file(tmp_path_factory.mktemp("oidc"), provider.issuer)
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, access_rules=rules) as served:
        provider.serve(served.url)
        yield served


@pytest.fixture
def person(console: ServedConsole) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.url, timeout=60) as client:
        yield client


@pytest.mark.interop
def test_a_person_logs_in_and_out(console: ServedConsole, provider: OidcProvider, person: httpx.Client) -> None:
    refused = person.get("/topics?internal=yes")
    assert refused.status_code == 303
    assert refused.headers["location"] == "/login?next=%2Ftopics%3Finternal%3Dyes"
    assert "/oidc/login?next=%2Ftopics%3Finternal%3Dyes" in person.get(refused.headers["location"]).text
    answer = log_in(person, "/oidc/login?next=%2Ftopics%3Finternal%3Dyes", "carol")
    assert answer.status_code == 200
    assert onward(answer) == "/topics?internal=yes"
    cookie = next(line for line in answer.headers.get_list("set-cookie") if line.startswith(f"{COOKIE}="))
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    page = person.get("/topics?internal=yes")
    assert page.status_code == 200
    assert "carol (admin)" in page.text
    token = person.cookies[COOKIE]
    out = person.post("/logout")
    left = urlsplit(onward(out))
    assert left.path == "/session/end"
    asked = parse_qs(left.query)
    assert asked["post_logout_redirect_uri"] == [console.url + "/login"]
    assert asked["client_id"] == [CLIENT_ID]
    assert asked["id_token_hint"][0].count(".") == 2
    stolen = httpx.get(console.url + "/topics", cookies={COOKIE: token})
    assert stolen.status_code == 303  # the token is worth nothing after the log-out


@pytest.mark.interop
def test_the_request_has_pkce_state_and_nonce(console: ServedConsole, person: httpx.Client) -> None:
    there = urlsplit(person.get("/oidc/login").headers["location"])
    asked = {name: values[0] for name, values in parse_qs(there.query).items()}
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["code_challenge"]) == 43
    assert len(asked["state"]) >= 32
    assert len(asked["nonce"]) >= 32
    assert asked["redirect_uri"] == console.url + "/oidc/callback"
    again = parse_qs(urlsplit(person.get("/oidc/login").headers["location"]).query)
    assert again["state"] != [asked["state"]]
    assert again["nonce"] != [asked["nonce"]]


@pytest.mark.interop
def test_roles_come_from_groups(console: ServedConsole, provider: OidcProvider, person: httpx.Client) -> None:
    assert log_in(person, "/oidc/login", "alice").status_code == 200
    assert "alice (viewer)" in person.get("/").text
    refused = person.post("/topics", data={"csrf": _csrf(person), "name": "alices"})
    assert refused.status_code == 403
    assert "needs the role operator" in refused.text
    nobody = httpx.Client(base_url=console.url, timeout=60)
    with nobody:
        answer = log_in(nobody, "/oidc/login", "dave")
        assert answer.status_code == 403
        assert "dave has no role on this console" in answer.text
        assert COOKIE not in nobody.cookies


def _csrf(person: httpx.Client) -> str:
    return person.get("/topics").text.partition('name="csrf" value="')[2].partition('"')[0]


@pytest.mark.interop
def test_an_answer_that_was_not_asked_for_is_refused(console: ServedConsole, person: httpx.Client) -> None:
    def said(answer: httpx.Response) -> str:
        assert answer.status_code == 403
        assert COOKIE not in person.cookies
        return answer.text

    assert "not begun in this browser" in said(person.get("/oidc/callback?code=x&state=y"))
    begun = parse_qs(urlsplit(person.get("/oidc/login").headers["location"]).query)
    issuer = console.site.access.rules.oidc.issuer
    assert "not begun here" in said(person.get("/oidc/callback", params={"code": "x", "state": "other", "iss": issuer}))
    begun = parse_qs(urlsplit(person.get("/oidc/login").headers["location"]).query)
    foreign = {"code": "x", "state": begun["state"][0], "iss": "https://evil.example"}
    assert "another provider" in said(person.get("/oidc/callback", params=foreign))
    begun = parse_qs(urlsplit(person.get("/oidc/login").headers["location"]).query)
    unnamed = {"code": "x", "state": begun["state"][0]}
    assert "does not name its issuer" in said(person.get("/oidc/callback", params=unnamed))
    begun = parse_qs(urlsplit(person.get("/oidc/login").headers["location"]).query)
    invented = {"code": "invented", "state": begun["state"][0], "iss": issuer}
    assert "the provider answered 400" in said(person.get("/oidc/callback", params=invented))
    # The cookie is used up: the same answer does not count twice.
    assert "not begun in this browser" in said(person.get("/oidc/callback", params=invented))
    assert ATTEMPT_COOKIE not in person.cookies


@pytest.mark.interop
def test_a_planted_session_ends_at_the_login(console: ServedConsole, person: httpx.Client) -> None:
    """Fixation: the attacker's own session in the victim's browser does not become the victim's."""
    log_in(person, "/oidc/login", "alice")
    planted = person.cookies[COOKIE]
    log_in(person, "/oidc/login", "carol")
    assert person.cookies[COOKIE] != planted
    assert console.site.access.sessions.get(planted) is None


@pytest.mark.interop
def test_an_expired_login_is_renewed_and_follows_the_groups(
    console: ServedConsole, provider: OidcProvider, person: httpx.Client
) -> None:
    assert log_in(person, "/oidc/login", "bob").status_code == 403  # in no group that has a role
    provider.put_in("bob", "admins")
    with httpx.Client(base_url=console.url, timeout=60) as fresh:
        assert log_in(fresh, "/oidc/login", "bob").status_code == 200
        session = console.site.access.sessions.get(fresh.cookies[COOKIE])
        assert session.identity.refresh_token
        provider.put_in("bob", "data-team")
        assert "bob (admin)" in fresh.get("/").text  # still fresh
        session.identity = replace(session.identity, fresh_until=0.0)
        assert "bob (viewer)" in fresh.get("/").text
        assert session.identity.fresh_until > time.time()
        provider.put_in("bob")
        session.identity = replace(session.identity, fresh_until=0.0)
        assert fresh.get("/").status_code == 303
        session.identity = replace(session.identity, fresh_until=0.0, refresh_token="invented")
        assert fresh.get("/").status_code == 303
        assert console.site.access.sessions.get(fresh.cookies[COOKIE]) is None
    provider.put_in("bob", "orders-team")


@pytest.mark.interop
def test_a_public_client_needs_no_secret(broker: Broker, provider: OidcProvider, tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_text(
        f'[oidc]\nissuer = "{provider.issuer}"\nclient_id = "public"\nscopes = ["groups"]\n{GRANTS}', encoding="utf-8"
    )
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, access_rules=str(file)) as served:
        provider.serve(served.url)
        with httpx.Client(base_url=served.url, timeout=60) as person:
            assert log_in(person, "/oidc/login", "carol").status_code == 200
            assert "carol (admin)" in person.get("/").text
            assert "Secure" not in person.get("/oidc/login").headers["set-cookie"]
            shown = {"Authorization": "Basic " + base64.b64encode(b"carol:x").decode()}
            assert httpx.get(served.url + "/", headers=shown).status_code == 401


@pytest.mark.interop
def test_cookies_of_an_https_console_are_secure(broker: Broker, provider: OidcProvider, tmp_path: Path) -> None:
    rules = rules_file(tmp_path, provider.issuer, public_url="https://console.example.org/")
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, access_rules=rules) as served:
        answer = httpx.get(served.url + "/oidc/login", timeout=60)
        assert "Secure" in answer.headers["set-cookie"]
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert "redirect_uri=https%3A%2F%2Fconsole.example.org%2Foidc%2Fcallback" in answer.headers["location"]


@pytest.mark.interop
def test_a_tail_ends_with_its_session(console: ServedConsole, broker: Broker, person: httpx.Client) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("tailed", "x")
    assert producer.flush(60) == 0
    log_in(person, "/oidc/login", "carol")
    with person.stream("GET", "/topics/tailed/tail") as stream:
        for text in stream.iter_text():  # ends by itself, or the test runs out of time
            if '"reading"' in text:
                console.site.access.sessions.end(person.cookies[COOKIE])


def test_logins_on_their_way_are_bounded() -> None:
    async def crowd() -> list[object]:
        calls, gate = ProviderCalls(), threading.Event()
        waiting = [asyncio.ensure_future(calls.run(gate.wait)) for _ in range(100)]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    found = run_apart(crowd())
    assert sum(isinstance(each, ConsoleError) for each in found) == 100 - 64


@pytest.mark.interop
def test_a_person_logs_in_with_a_browser(
    open_page: Callable[..., Any], console: ServedConsole, provider: OidcProvider
) -> None:
    provider.serve(console.url)
    page = open_page(console)
    page.goto("/topics")
    page.get_by_role("link", name="Log in with the company's account").click()
    page.get_by_label("Account").fill("carol")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Topics").wait_for()
    page.get_by_text("carol (admin)").wait_for()
    assert urlsplit(page.url).path == "/topics"
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{provider.issuer}/**")
    page.goto(console.url + "/topics")
    page.get_by_role("heading", name="Log in").wait_for()


# Without a provider


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "", "/a\nb", "/oidc/login", "/login"]
)
def test_no_other_site_after_the_login(path: str) -> None:
    assert local_path(path) == "/"
    assert new_attempt("https://c/oidc/callback", path).next == "/"


def test_a_path_of_the_console_is_kept() -> None:
    assert local_path("/topics/a?x=1&y=%2F") == "/topics/a?x=1&y=%2F"


def test_one_person_ends_no_session_of_another() -> None:
    sessions = Sessions()
    first, mine = sessions.begin("alice"), [sessions.begin("bob") for _ in range(2 * MAX_SESSIONS_OF_ONE)]
    assert sessions.get(first) is not None
    assert [token for token in mine if sessions.get(token) is not None] == mine[MAX_SESSIONS_OF_ONE:]


class SlowProvider:
    """What renews logins answers when it is let go, as it is told."""

    def __init__(self, status: int) -> None:
        self.status, self.asked, self.go = status, 0, threading.Event()

    def refresh(self, _: Identity) -> Identity:
        self.asked += 1
        assert self.go.wait(60)
        raise ConsoleError("no", status=self.status)


@pytest.mark.parametrize(("status", "kept"), [(403, False), (503, True)])
def test_no_request_slips_through_while_a_login_is_renewed(status: int, kept: bool) -> None:
    """Requests that come together ask once and wait. A provider that is away or busy ends no session."""
    access, provider = access_of(), SlowProvider(status)
    access.provider = provider  # type: ignore[assignment]
    old = Identity(name="ann", groups=("team",), subject="s", fresh_until=0.0, id_token="t", refresh_token="r")
    token = access.login_as(old)

    async def together() -> list[object]:
        first, second = (asyncio.ensure_future(access._of_session(token)) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        provider.go.set()
        return [await first, await second]

    assert run_apart(together()) == [None, None]
    assert provider.asked == 1
    assert (access.sessions.get(token) is not None) == kept


def access_of(users: str | None = None) -> AccessControl:
    web = RuledAccess.from_options(users_file=users)
    web.rules = AccessRules(grants=(Grant(role="admin", groups=("team",)), Grant(role="admin", users=("carol",))))
    web.oidc = True
    return AccessControl(web, read_only=False, hosts=())


def test_a_name_of_the_users_file_is_not_the_providers(tmp_path: Path) -> None:
    """Grants and ACLs go by name: whoever may choose a name at the provider must not become a local user."""
    file = tmp_path / "users"
    file.write_text("ann:admin:" + hash_password("geheim-1") + "\n")
    access = access_of(str(file))
    ann = Identity(name="carol", groups=(), subject="s", fresh_until=2e9, id_token="t", refresh_token=None)
    token = access.login_as(ann)
    assert run_apart(access._of_session(token)) is not None
    file.write_text(file.read_text() + "carol:admin:" + hash_password("geheim-2") + "\n")
    with pytest.raises(ConsoleError, match="a name of the users file"):
        access.login_as(ann)
    assert run_apart(access._of_session(token)) is None


def test_sessions_are_bounded() -> None:
    sessions = Sessions()
    first = sessions.begin("a")
    for n in range(MAX_SESSIONS):
        sessions.begin(f"b{n}")
    assert sessions.get(first) is None
    assert len(sessions._sessions) == len(sessions._of_name) == MAX_SESSIONS


class Signer:
    """A provider's keys in this process, for tokens that no honest provider makes."""

    def __init__(self, kind: str = "RS256") -> None:
        from joserfc.jwk import OKPKey, RSAKey

        self.key: Any = RSAKey.generate_key(2048, {"kid": "k1"}) if kind == "RS256" else OKPKey.generate_key("Ed25519")
        self.rules = OidcRules(issuer="https://id.example", client_id="console")
        self.provider = Provider(self.rules)
        self.answers: dict[str, Any] = {}
        document = {
            "issuer": "https://id.example",
            "jwks_uri": "https://id.example/keys",
            "token_endpoint": "https://id.example/token",
        }
        self.keys = {"keys": [self.key.as_dict(private=False)]}
        self.fetched: list[str] = []

        def get(url: str, data: bytes | None = None, headers: Any = None) -> dict[str, Any]:
            del data, headers
            self.fetched.append(url)
            return {"/keys": self.keys, "/token": self.answers}.get(urlsplit(url).path, document)

        self.provider._get = get  # type: ignore[method-assign]

    def token(self, algorithm: str = "RS256", key: Any = None, **claims: Any) -> str:
        from joserfc import jwt

        now = int(time.time())
        given = {
            "iss": "https://id.example",
            "aud": "console",
            "sub": "u1",
            "iat": now,
            "exp": now + 600,
            "nonce": "n1",
        }
        given |= claims
        kept = {name: value for name, value in given.items() if value is not None}
        header = {"alg": algorithm, "kid": "k1"}
        return jwt.encode(header, kept, key or self.key, algorithms=[algorithm])

    def identity(self, token: str) -> Identity:
        self.answers = {"id_token": token}
        attempt = replace(new_attempt("https://c/oidc/callback", "/"), nonce="n1")
        return self.provider.exchange(attempt, "code")


def test_a_good_token_is_an_identity() -> None:
    signer = Signer()
    found = signer.identity(signer.token(groups=["a", 7, "b"]))
    assert (found.name, found.groups) == ("u1", ("a", "b"))


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iss": "https://evil.example"}, "a different issuer"),
        ({"aud": "other"}, "a different audience"),
        ({"aud": ["console", "other"]}, "another client"),
        ({"azp": "other"}, "another client"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "no expiry"),
        ({"iat": 9_999_999_999}, "not valid yet"),
        ({"nonce": "n2"}, "another login"),
        ({"nonce": None}, "another login"),
        ({"sub": None}, "no claim sub"),
        ({"sub": "a\nb"}, "no usable claim"),
    ],
)
def test_a_token_that_is_not_ours_is_refused(claims: dict[str, Any], words: str) -> None:
    signer = Signer()
    with pytest.raises(ConsoleError, match=words):
        signer.identity(signer.token(**claims))


def test_a_token_of_another_key_or_algorithm_is_refused() -> None:
    from joserfc.jwk import RSAKey

    signer = Signer()
    with pytest.raises(ConsoleError, match="cannot be verified"):
        signer.identity(signer.token(key=RSAKey.generate_key(2048, {"kid": "k1"})))
    unsigned = signer.token().split(".")
    symmetric = _base64(b'{"alg":"HS256","kid":"k1"}') + "." + unsigned[1]
    mark = hmac.digest(signer.key.as_pem(private=False), symmetric.encode(), "sha256")
    with pytest.raises(ConsoleError, match="cannot be verified"):  # the public key as an HMAC secret
        signer.identity(f"{symmetric}.{_base64(mark)}")
    nothing = _base64(b'{"alg":"none"}')
    with pytest.raises(ConsoleError, match="cannot be verified"):
        signer.identity(f"{nothing}.{unsigned[1]}.")
    # Three tokens that could not be verified do not have the keys fetched three times.
    assert signer.fetched.count("https://id.example/keys") == 1


def test_a_shared_secret_among_the_keys_signs_nothing() -> None:
    """Every reader of the keys knows it."""
    from joserfc.jwk import OctKey

    signer = Signer()
    shared = OctKey.generate_key(256, {"kid": "k1"})
    signer.keys["keys"] = [shared.as_dict(private=True)]
    with pytest.raises(ConsoleError, match="cannot be verified"):
        signer.identity(signer.token("HS256", shared))


def test_the_provider_sends_the_console_nowhere_else() -> None:
    """A redirect would be followed with the client's secret, to an address that nobody has checked."""
    asked = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        issuer = f"http://127.0.0.1:{server.server_address[1]}"
        provider = Provider(OidcRules(issuer=issuer, client_id="console", client_secret="s"))
        attempt = new_attempt("https://c/oidc/callback", "/")
        with pytest.raises(ConsoleError, match="answered 302"):
            provider.login_url(attempt)
        provider._metadata = {"token_endpoint": f"{issuer}/token"}
        provider._metadata_at = time.monotonic()
        with pytest.raises(ConsoleError, match="answered 302"):
            provider.exchange(attempt, "code")
        server.shutdown()
    assert asked == ["/.well-known/openid-configuration", "/token"]


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_renewed_login_of_another_user_is_refused() -> None:
    signer = Signer()
    found = replace(signer.identity(signer.token()), refresh_token="r")
    signer.answers = {"id_token": signer.token(sub="u2")}
    with pytest.raises(ConsoleError, match="another user"):
        signer.provider.refresh(found)


def test_an_unverified_address_is_no_name() -> None:
    signer = Signer()
    signer.provider._rules = replace(signer.rules, user_claim="email")
    with pytest.raises(ConsoleError, match="not verified"):
        signer.identity(signer.token(email="a@example.org"))
    assert signer.identity(signer.token(email="a@example.org", email_verified=True)).name == "a@example.org"


def test_a_provider_with_another_name_or_plain_addresses_is_refused() -> None:
    signer = Signer()
    document = {"issuer": "https://other.example"}
    signer.provider._get = lambda *_, **__: document  # type: ignore[method-assign]
    with pytest.raises(ConsoleError, match="calls itself"):
        signer.provider.login_url(new_attempt("https://c/oidc/callback", "/"))
    document |= {"issuer": "https://id.example", "authorization_endpoint": "http://id.example/auth"}
    with pytest.raises(ConsoleError, match="must begin with https"):
        signer.provider.login_url(new_attempt("https://c/oidc/callback", "/"))
    document |= {"authorization_endpoint": "https://id.example/auth", "code_challenge_methods_supported": ["plain"]}
    signer.provider._metadata = {}
    with pytest.raises(ConsoleError, match="S256"):
        signer.provider.login_url(new_attempt("https://c/oidc/callback", "/"))
