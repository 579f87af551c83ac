"""Wrong passwords, forms of other sites and hostile bodies at the console's own doors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.console.settings import MAX_BODY_BYTES, MAX_LOGIN_BYTES
from ottla.security.failed_logins import LIMIT, WebLoginFailures
from ottla.security.web import hash_password
from tests.console.site import ServedConsole


@pytest.mark.timeout(180)
def test_wrong_passwords_have_a_limit_and_who_is_in_stays(
    broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.console.access._FAILED_LOGIN_S", 0.0)
    users = tmp_path / "users"
    users.write_text(f"ann:viewer:{hash_password('good')}\n")
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, users_file=str(users)) as console:
        console.site.access._web.failures = WebLoginFailures(monotonic=lambda: 0.0)  # no failure fades meanwhile
        assert console.http.post("/login", data={"name": "ann", "password": "good"}).status_code in (200, 303)
        statuses = [
            console.http.post("/login", data={"name": "ann", "password": f"bad{number}"}).status_code
            for number in range(LIMIT + 2)
        ]
        assert statuses == [401] * LIMIT + [429] * 2
        assert console.http.get("/topics", auth=("ann", "bad")).status_code == 429
        assert console.http.get("/topics", auth=("ann", "good")).status_code == 200
        assert console.http.get("/topics").status_code == 200, "the session goes on"


def test_no_page_of_another_site_logs_anybody_in_or_out(broker, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:viewer:{hash_password('good')}\n")
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, users_file=str(users)) as console:
        for foreign in ({"Origin": "https://evil.example"}, {"Origin": "null", "Sec-Fetch-Site": "cross-site"}):
            for path in ("/login", "/logout"):
                answer = console.http.post(path, data={"name": "ann", "password": "good"}, headers=foreign)
                assert answer.status_code == 403
                assert "set-cookie" not in answer.headers


def chunks(size: int) -> Iterator[bytes]:
    """A form whose length is not announced."""
    yield b"name="
    for _ in range(size // 1024):
        yield b"n" * 1024


def test_strangers_send_little_and_nobody_chooses_the_codec(broker, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:operator:{hash_password('good')}\n")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, users_file=str(users)) as console:
        http = console.http
        assert http.post("/login", content=b"n" * (MAX_LOGIN_BYTES + 1), headers=form).status_code == 413
        assert http.post("/login", content=chunks(MAX_LOGIN_BYTES + 2048), headers=form).status_code == 413
        part = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nann\r\n--x--\r\n'
        for charset, status in (("punycode", 415), ("PUNYCODE", 415), ('"unicode_escape"', 415), ("UTF-8", 401)):
            kind = {"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
            assert http.post("/login", content=part, headers=kind).status_code == status, charset
        kind = {"Content-Type": "multipart/form-data; boundary=x; charset=idna"}
        for path in ("/topics", "/topics/x/search"):
            assert http.post(path, content=part, headers=kind, auth=("ann", "good")).status_code == 415, path
        large = chunks(MAX_BODY_BYTES + 2048)
        assert http.post("/topics", content=large, headers=form, auth=("ann", "good")).status_code == 413
        odd = http.get("/topics", headers={b"Authorization": b"Basic \xe9"}, follow_redirects=False)
        assert odd.status_code == 401
