"""What a browser can be tricked into: foreign names, pages of other sites, forms."""

from __future__ import annotations

import pytest

from ottla.security.hosts import is_loopback
from ottla.security.web_hosts import WebHosts, host_names

HOSTS = WebHosts(("registry.example", ".cluster.local"))


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost:8081", True),
        ("LOCALHOST.", True),
        ("127.0.0.1:8081", True),
        ("[::1]:8081", True),
        ("10.1.2.3:8081", True),
        ("[fe80::1%eth0]:80", True),
        ("registry.example", True),
        ("registry.example.:80", True),
        ("a.b.cluster.local", True),
        ("cluster.local", False),
        ("evil.example", False),
        ("registry.example.evil.example", False),
        ("evilregistry.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
        ("[evil.example]", False),
        ("[::1]evil.example", False),
        ("127.0.0.1%evil.example", False),
    ],
)
def test_names_that_are_ours(host: str, known: bool) -> None:
    assert HOSTS.knows(host) == known
    assert (HOSTS.refusal("GET", {"host": host}) is None) == known


def test_all_names_can_be_allowed() -> None:
    assert WebHosts(("*",)).knows("whatever.example")


def test_the_names_of_a_server() -> None:
    assert host_names("0.0.0.0", "https://a.example:8081", machine="box") == ("box", "a.example")
    assert host_names("10.0.0.1", "b.example", machine="box") == ("10.0.0.1", "b.example")


@pytest.mark.parametrize(
    ("host", "is_it"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_loopback(host: str, is_it: bool) -> None:
    assert is_loopback(host) == is_it


JSON = {"content-type": "application/json", "content-length": "2"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", JSON, None),
        (
            "POST",
            {"content-type": "application/vnd.schemaregistry.v1+json; charset=utf-8", "content-length": "2"},
            None,
        ),
        ("POST", {"origin": "http://localhost:8081", **JSON}, None),
        ("POST", {"origin": "https://localhost:8081", **JSON}, None),
        ("POST", {"origin": "http://localhost:9999", **JSON}, 403),
        ("POST", {"origin": "http://evil.example", **JSON}, 403),
        ("DELETE", {"origin": "http://evil.example"}, 403),
        ("POST", {"origin": "null", **JSON}, 403),
        ("POST", {"origin": "", **JSON}, 403),
        ("PUT", {"sec-fetch-site": "cross-site", **JSON}, 403),
        ("PUT", {"sec-fetch-site": "same-site", **JSON}, 403),
        ("PUT", {"sec-fetch-site": "same-origin", **JSON}, None),
        ("PUT", {"sec-fetch-site": "none", **JSON}, None),
        ("GET", {"origin": "http://evil.example"}, None),
        ("POST", {}, None),
        ("POST", {"content-length": "0"}, None),
        ("POST", {"content-length": "2"}, 415),
        ("POST", {"transfer-encoding": "chunked"}, 415),
        ("POST", {"content-type": "text/plain;charset=UTF-8", "content-length": "2"}, 415),
        ("POST", {"content-type": "application/x-www-form-urlencoded"}, 415),
        ("POST", {"content-type": "Multipart/Form-Data; boundary=x", "content-length": "9"}, 415),
    ],
)
def test_a_change(method: str, headers: dict[str, str], status: int | None) -> None:
    refused = HOSTS.refusal(method, {"host": "localhost:8081", **headers})
    assert (refused.status if refused is not None else None) == status


def test_a_server_of_forms_takes_its_own() -> None:
    """They have a token of their own; `null` is the origin of a page that sends no referrer."""
    form = {"host": "localhost", "content-type": "application/x-www-form-urlencoded", "content-length": "9"}
    own = {"origin": "null", "sec-fetch-site": "same-origin"}
    foreign = {"origin": "null", "sec-fetch-site": "cross-site"}
    assert HOSTS.refusal("POST", {**form, **own}, forms=True) is None
    assert HOSTS.refusal("POST", {**form, **foreign}, forms=True) is not None
    assert HOSTS.refusal("POST", {**form, "origin": "http://evil.example"}, forms=True) is not None


def test_a_refusal_names_what_to_do() -> None:
    foreign = WebHosts((), setting="ottla.http.allowed.hosts").refusal("GET", {"host": "evil.example"})
    assert foreign is not None
    assert "evil.example" in foreign.message
    assert "ottla.http.allowed.hosts" in foreign.message
    form = HOSTS.refusal("POST", {"content-type": "text/plain"})
    assert form is not None
    assert "curl: -H 'Content-Type: application/json'" in form.message
