"""Wrong passwords and forms of other sites at the console's own doors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.security.failed_logins import LIMIT, FailedLogins
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
        console.site.access._web.failures = FailedLogins(monotonic=lambda: 0.0)  # no failure fades meanwhile
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
