"""Roles on some subjects only: every route of the table is walked, and none shows or changes a subject of others."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ottla.registry.http.routes import ROUTES
from ottla.registry.settings import RegistryStartError
from ottla.security.web import hash_password
from ottla.testing import Broker
from tests.registry.instances import RegistryThread, call

pytestmark = pytest.mark.timeout(180)
RULES = """
[[grant]]
roles = ["admin"]
role = "admin"

[[grant]]
users = ["bob"]
role = "admin"
subjects = ["orders*", ":.team:orders*"]

[[grant]]
users = ["rita"]
role = "viewer"
subjects = ["orders*"]

[[grant]]
users = ["star"]
role = "admin"
subjects = ["*"]
"""
HIDDEN = "salaries-value"
MARK = "grossPay"


def record(name: str, field: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": field, "type": "long"}]})


def as_(user: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:p".encode()).decode()}


@pytest.fixture(scope="module")
def registry(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryThread]:
    folder: Path = tmp_path_factory.mktemp("rights")
    people = {"ann": "admin", "bob": "read", "rita": "read", "eve": "write", "star": "read"}
    (folder / "users").write_text("".join(f"{name}:{role}:{hash_password('p')}\n" for name, role in people.items()))
    (folder / "rules").write_text(RULES)
    settings = {"users_file": str(folder / "users"), "access_rules": str(folder / "rules")}
    with RegistryThread(broker.bootstrap_servers, topic="_schemas_rights", **settings) as running:
        for subject, field in ((HIDDEN, MARK), ("orders-value", "cents"), (":.team:salaries-value", MARK)):
            path = f"/subjects/{quote(subject, safe='')}/versions"
            status, answer = call(running.url, "POST", path, {"schema": record("R", field)}, headers=as_("ann"))
            assert status == 200, answer
        yield running


def ask(registry: RegistryThread, user: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
    status, answer = call(registry.url, method, path, body, headers=as_(user))
    return status, answer if isinstance(answer, str) else json.dumps(answer)


def walk(registry: RegistryThread) -> Iterator[tuple[str, str, Any]]:
    """Every route, filled in with what others have; also below a context, and by other spellings of the subject."""
    _, found = call(registry.url, "GET", f"/subjects/{HIDDEN}/versions/1", headers=as_("ann"))
    guid = call(registry.url, "GET", f"/schemas/ids/{found['id']}", headers=as_("ann"))[1]["guid"]
    body = {"schema": record("R", "other"), "compatibility": "NONE", "mode": "READONLY"}
    for pattern, methods in ROUTES.items():
        for method in methods:
            for subject in (HIDDEN, ":.:" + HIDDEN, ":.team:" + HIDDEN):
                fills = iter((subject, "1"))
                if pattern[:2] == ("schemas", "ids"):
                    fills = iter((str(found["id"]),))
                elif pattern[:2] == ("schemas", "guids"):
                    fills = iter((guid,))
                parts = [quote(next(fills), safe="") if part == "*" else part for part in pattern]
                sent = body if method in ("POST", "PUT") else None
                yield method, "/" + "/".join(parts), sent
                yield method, "/contexts/:.:/" + "/".join(parts), sent
                yield method, "/contexts/.team/" + "/".join(parts), sent


def test_no_route_shows_or_changes_a_subject_of_others(registry: RegistryThread) -> None:
    walked = list(walk(registry))
    assert len(walked) > 200
    before = [ask(registry, "ann", "GET", f"/subjects/{name}/versions") for name in (HIDDEN, quote(":.team:" + HIDDEN))]
    for method, path, body in walked:
        for query in ("", "?deleted=true&verbose=true&subjectPrefix=:*:&fetchMaxId=true"):
            for user in ("bob", "rita"):
                status, said = ask(registry, user, method, path + query, body)
                assert MARK not in said, (user, method, path, said)
                if "salaries" not in path:
                    assert "salaries" not in said, (user, method, path, said)
                elif "subjects" in path or "config" in path or "mode" in path:
                    assert status in (403, 404, 405), (user, method, path, said)
                assert status != 500, (user, method, path, said)
                assert not (user == "rita" and method in ("PUT", "DELETE") and status == 200), (path, said)
    after = [ask(registry, "ann", "GET", f"/subjects/{name}/versions") for name in (HIDDEN, quote(":.team:" + HIDDEN))]
    assert before == after
    assert ask(registry, "ann", "GET", "/config")[1] == '{"compatibilityLevel": "BACKWARD"}'


def test_ones_own_subjects_are_all_there(registry: RegistryThread) -> None:
    assert ask(registry, "bob", "GET", "/subjects") == (200, '["orders-value"]')
    assert ask(registry, "ann", "GET", "/subjects")[1] == '["orders-value", "salaries-value"]'
    status, said = ask(registry, "bob", "POST", "/subjects/orders-more/versions", {"schema": record("M", "a")})
    assert status == 200, said
    own = json.loads(said)["id"]
    assert ask(registry, "rita", "GET", f"/schemas/ids/{own}")[0] == 200
    assert ask(registry, "rita", "GET", f"/schemas/ids/{own}/subjects") == (200, '["orders-more"]')
    assert ask(registry, "rita", "POST", "/subjects/orders-x/versions", {"schema": record("M", "a")})[0] == 403
    assert ask(registry, "bob", "PUT", "/config/orders-more", {"compatibility": "NONE"})[0] == 200
    assert ask(registry, "bob", "PUT", "/config", {"compatibility": "NONE"})[0] == 403
    assert ask(registry, "bob", "DELETE", "/subjects/orders-more")[0] == 200


def test_a_schema_may_refer_only_to_what_its_author_sees(registry: RegistryThread) -> None:
    refers = {
        "schema": json.dumps({"type": "record", "name": "O", "fields": [{"name": "r", "type": "R"}]}),
        "references": [{"name": "R", "subject": HIDDEN, "version": 1}],
    }
    for path in ("/subjects/orders-r/versions", "/compatibility/subjects/orders-value/versions?verbose=true"):
        status, said = ask(registry, "bob", "POST", path, refers)
        assert status == 403, said
        assert MARK not in said


@pytest.mark.parametrize("junk", [b"1e999", b'"\xff"'])
def test_a_body_is_read_once_for_the_rights_and_for_the_handler(registry: RegistryThread, junk: bytes) -> None:
    """A field that nobody knows is skipped by the handler, and was an unreadable body to the check of the rights."""
    schema = json.dumps(json.dumps({"type": "record", "name": "O", "fields": [{"name": "r", "type": "R"}]})).encode()
    refers = json.dumps([{"name": "R", "subject": HIDDEN, "version": 1}]).encode()
    body = b'{"junk":' + junk + b',"schema":' + schema + b',"references":' + refers + b"}"
    for path in (
        "/subjects/orders-junk/versions",
        "/subjects/orders-value",
        "/compatibility/subjects/orders-value/versions",
    ):
        status, said = ask(registry, "bob", "POST", path, body)
        assert (status, json.loads(said)["error_code"]) == (403, 40301), path


def test_ids_are_of_the_whole_registry(registry: RegistryThread) -> None:
    """An imported 2^31-1 would leave no id for anybody."""
    assert ask(registry, "bob", "PUT", "/mode/orders-import", {"mode": "IMPORT"})[0] == 200
    body = {"schema": '"int"', "id": 2**31 - 1, "version": 1}
    assert ask(registry, "bob", "POST", "/subjects/orders-import/versions", body)[0] == 403
    assert ask(registry, "bob", "POST", "/subjects/orders-after/versions", {"schema": record("A", "a")})[0] == 200


def test_a_pattern_for_every_subject_does_not_reach_what_holds_for_everybody(registry: RegistryThread) -> None:
    for setting in ("config", "mode"):
        body = {"compatibility": "NONE", "mode": "READONLY"}
        assert ask(registry, "star", "PUT", f"/{setting}/:.:", body)[0] == 403
        assert ask(registry, "star", "DELETE", f"/{setting}/:.:")[0] == 403
        assert ask(registry, "star", "PUT", f"/{setting}/any", {"compatibility": "NONE", "mode": "READWRITE"})[0] == 200
    assert ask(registry, "ann", "GET", "/mode")[1] == '{"mode": "READWRITE"}'


def test_nobody_without_a_grant_is_let_in(registry: RegistryThread) -> None:
    assert ask(registry, "eve", "GET", "/subjects")[0] == 401


def test_grants_need_people_to_name(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(RULES)
    with (
        pytest.raises(RegistryStartError, match="requires no login"),
        RegistryThread(broker.bootstrap_servers, topic="_schemas_open", access_rules=str(tmp_path / "rules")),
    ):
        pass
