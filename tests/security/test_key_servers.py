"""Master keys from a key server and from a command: unwrapped, renewed, rotated while the node runs, kept while it is away.

Runs on the stand-in of `tests/support/vault.py`, and on a real Vault where the environment names one.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.security import key_renewal, key_sources
from ottla.security.key_renewal import LONGEST_PAUSE_S, KeyRenewal
from ottla.security.key_sources import CommandSource, KeyStoreError
from ottla.security.keystore import FILE_NAME, MasterKeys, parse_master_keys
from ottla.server import master_keys
from ottla.testing import Broker
from tests.security.test_encryption import config, master_line
from tests.support.vault import ROOT, VaultClient, VaultStandIn, real_vault

PREFIX = "ottla.encryption.master.key."


@pytest.fixture
def stand_in() -> Iterator[VaultStandIn]:
    server = VaultStandIn().start()
    yield server
    server.stop()


@pytest.fixture
def vault(request: pytest.FixtureRequest) -> VaultClient:
    found = real_vault()
    if found is not None:
        client = VaultClient(*found)
    else:
        client = VaultClient(request.getfixturevalue("stand_in").address, ROOT)
    client.write("transit/keys/ottla")
    return client


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_keys, "CHECK_MS", 50)
    monkeypatch.setattr(key_renewal, "FIRST_PAUSE_S", 0.05)


def token_file(tmp_path: Path, vault: VaultClient, ttl: str = "3600s") -> Path:
    made = vault.write("auth/token/create", ttl=ttl, renewable=True)["auth"]["client_token"]
    path = tmp_path / "token"
    path.write_text(made)
    path.chmod(0o600)
    return path


def transit(tmp_path: Path, vault: VaultClient, lines: str, **more: str) -> dict[str, str]:
    (tmp_path / "wrapped").write_text(lines)
    return {
        f"{PREFIX}url": f"{vault.address}/v1/transit/decrypt/ottla",
        f"{PREFIX}wrapped.file": str(tmp_path / "wrapped"),
        f"{PREFIX}token.file": str(token_file(tmp_path, vault)),
        **more,
    }


def until(true: Callable[[], Any], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_keys_are_unwrapped_by_the_transit_engine(tmp_path: Path, vault: VaultClient) -> None:
    key = os.urandom(32)
    settings = transit(tmp_path, vault, vault.wrap("2026", key))
    masters = MasterKeys(config(tmp_path, **settings))
    assert (masters.current.id, masters.current.key) == ("2026", key)
    assert base64.b64encode(key).decode() not in (tmp_path / "wrapped").read_text()
    vault.write("transit/keys/ottla/rotate")
    (tmp_path / "wrapped").write_text(vault.wrap("2027", os.urandom(32)) + (tmp_path / "wrapped").read_text())
    rotated = MasterKeys(config(tmp_path, **settings))
    assert [each.id for each in rotated.keys] == ["2027", "2026"]
    assert rotated.find("2026").key == key, "what the key server's older key wrapped opens too"


def test_keys_are_read_from_the_key_value_store(tmp_path: Path, vault: VaultClient) -> None:
    vault.write("secret/data/ottla", data={"keys": master_line("kv") + master_line("old", b"o")})
    settings = {
        f"{PREFIX}url": f"{vault.address}/v1/secret/data/ottla",
        f"{PREFIX}token.file": str(token_file(tmp_path, vault)),
    }
    assert [key.id for key in MasterKeys(config(tmp_path, **settings)).keys] == ["kv", "old"]


def test_what_a_key_server_refuses_is_one_line_without_secrets(tmp_path: Path, vault: VaultClient) -> None:
    settings = transit(tmp_path, vault, vault.wrap("m", os.urandom(32)))
    token = (tmp_path / "token").read_text()
    cases: dict[str, dict[str, str]] = {
        "answered 403": {**settings, f"{PREFIX}token.file": str(tmp_path / "wrong-token")},
        "answered 400": {**settings, f"{PREFIX}wrapped.file": str(tmp_path / "damaged")},
        "no such file": {**settings, f"{PREFIX}token.file": str(tmp_path / "nowhere")},
        "does not answer": {**settings, f"{PREFIX}url": "http://127.0.0.1:9/v1/transit/decrypt/ottla"},
        "use https": {**settings, f"{PREFIX}url": "http://vault.example:8200/v1/transit/decrypt/ottla"},
        "is not https://": {**settings, f"{PREFIX}url": "ftp://127.0.0.1/v1/x"},
        "set one of": {**settings, f"{PREFIX}file": str(tmp_path / "wrapped")},
    }
    (tmp_path / "wrong-token").write_text("hvs.wrong")
    (tmp_path / "damaged").write_text("m:vault:v1:AAAA\n")
    for message, given in cases.items():
        with pytest.raises(KeyStoreError) as refused:
            MasterKeys(config(tmp_path, **given))
        text = str(refused.value)
        assert message in text.lower()
        assert "\n" not in text
        assert token not in text


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("quick")
def test_a_node_renews_and_rotates_and_lives_while_the_key_server_is_away(
    tmp_path: Path, stand_in: VaultStandIn
) -> None:
    """Every directory is wrapped again while the node runs, also where no new file begins; the metrics show the outage."""
    vault = VaultClient(stand_in.address, ROOT)
    vault.write("transit/keys/ottla")
    first = vault.wrap("m1", os.urandom(32))
    settings = transit(tmp_path, vault, first, **{f"{PREFIX}refresh.ms": "100", "ottla.http.listener": "127.0.0.1:0"})
    with Broker(directory=tmp_path / "node", properties=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("before", 1, 1)])["before"].result(20)
        until(lambda: stand_in.renewals > 2, "the token was not renewed")
        second = vault.wrap("m2", os.urandom(32))
        (tmp_path / "wrapped").write_text(second + first)
        stores = list((tmp_path / "node").rglob(FILE_NAME))
        until(lambda: all(json.loads(path.read_text())["master"] == "m2" for path in stores), "not wrapped again")

        stand_in.stop()
        until(lambda: metric(broker, "ottla_master_keys_failures") > 0, "the outage is not in the metrics")
        admin.create_topics([NewTopic("meanwhile", 1, 1)])["meanwhile"].result(20)
        stand_in.start()
        until(lambda: metric(broker, "ottla_master_keys_failures") == 0, "not asked again")
        assert metric(broker, "ottla_master_keys_age_seconds") < 60
        vault.write("auth/token/revoke", token=(tmp_path / "token").read_text())
        until(lambda: metric(broker, "ottla_master_keys_failures") > 0, "a revoked token goes unnoticed")
        token_file(tmp_path, vault)
        until(lambda: metric(broker, "ottla_master_keys_failures") == 0, "the new token is not read")
    (tmp_path / "wrapped").write_text(second)
    with Broker(directory=tmp_path / "node", properties=settings) as broker:
        names = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=20).topics
        assert {"before", "meanwhile"} <= names.keys()


def metric(broker: Broker, name: str) -> float:
    port = broker.node._sockets.http.getsockname()[1]  # type: ignore[union-attr]  # it listens
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("quick")
def test_a_command_is_asked_again_while_the_node_runs(tmp_path: Path) -> None:
    """Any key management service with a command line: what it prints next is the rotation."""
    printed = tmp_path / "printed"
    printed.write_text(master_line("c1"))
    settings = {f"{PREFIX}command": f"cat {printed}", f"{PREFIX}refresh.ms": "100"}
    with Broker(directory=tmp_path / "node", properties=settings):
        printed.write_text(master_line("c2", b"2") + master_line("c1"))
        stores = list((tmp_path / "node").rglob(FILE_NAME))
        assert stores
        until(lambda: all(json.loads(path.read_text())["master"] == "c2" for path in stores), "not wrapped again")
        printed.unlink()


class Away:
    renewed = True

    def __init__(self, failures: int) -> None:
        self.failures, self.asked = failures, 0

    def fetch(self) -> str:
        self.asked += 1
        if self.asked <= self.failures:
            raise KeyStoreError("away")
        return master_line("back")

    def wait_s(self, refresh_s: float) -> float:
        return refresh_s


def test_pauses_after_failures_grow_and_are_bounded() -> None:
    """No thread and no clock: the pauses that `_ask` returns."""
    renewal = KeyRenewal(Away(12), 300)
    pauses = [renewal._ask() for _ in range(13)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 32]
    assert set(pauses[6:12]) == {LONGEST_PAUSE_S}
    assert pauses[12] == 300
    taken = renewal.take()
    assert taken is not None
    assert taken[0].id == "back"
    assert renewal.take() is None


class Garbage(BaseHTTPRequestHandler):
    """Answers each request with the next text; a renewal of the token with `renewed`."""

    renewed, secret, status = b"{}", b"{}", 200
    paths: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.paths.append(self.path)
        body = type(self).renewed if self.path.endswith("renew-self") else type(self).secret
        self.send_response(type(self).status)
        self.send_header("Location", "/v1/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()


@pytest.fixture
def garbage() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Garbage)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1/"
    server.shutdown()
    server.server_close()
    thread.join()


DEEP = b"[" * 60_000
LEASES = [b'"x"', b"NaN", b"-5", b"1e-9", b"{}", b"1" + b"0" * 400, b"true", b"null"]
SECRETS = [
    b'{"data": "x"}',
    b'{"data": [1]}',
    b'{"data": {"data": [], "keys": 1}}',
    b"[]",
    b"x",
    b'{"data": null}',
    DEEP,
]


def test_whatever_a_key_server_answers_the_renewal_goes_on(
    tmp_path: Path, garbage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that cannot be used is a failure that is counted; any other error would end the thread without a word."""
    (tmp_path / "token").write_text("hvs.token")
    (tmp_path / "wrapped").write_text("m:vault:v1:AAAA\n")
    url = {f"{PREFIX}url": f"{garbage}secret/data/ottla", f"{PREFIX}token.file": str(tmp_path / "token")}
    unwrapping = {
        **url,
        f"{PREFIX}url": f"{garbage}transit/decrypt/o",
        f"{PREFIX}wrapped.file": str(tmp_path / "wrapped"),
    }
    good = json.dumps({"data": {"data": {"keys": master_line()}}}).encode()
    monkeypatch.setattr(Garbage, "secret", good)
    source = MasterKeys(config(tmp_path, **url))._source
    renewal = KeyRenewal(source, 300)
    for text in [
        *(b'{"auth": {"renewable": true, "lease_duration": %s}}' % lease for lease in LEASES),
        b'{"auth": [1]}',
    ]:
        monkeypatch.setattr(Garbage, "renewed", text)
        assert 1 <= renewal._ask() <= 300, "no lease makes it ask all the time"
        assert renewal.failures == 0
    monkeypatch.setattr(Garbage, "renewed", b"{}")
    for text in SECRETS:
        monkeypatch.setattr(Garbage, "secret", text)
        renewal._ask()
        with pytest.raises(KeyStoreError):
            MasterKeys(config(tmp_path, **unwrapping))
    assert renewal.failures == len(SECRETS)


def test_redirects_and_long_answers_are_refused(tmp_path: Path, garbage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = json.dumps({"data": {"data": {"keys": master_line()}}}).encode()
    monkeypatch.setattr(Garbage, "paths", [])
    for status, secret in ((302, good), (307, good), (500, good), (200, b" " * 65_536 + good)):
        monkeypatch.setattr(Garbage, "status", status)
        monkeypatch.setattr(Garbage, "secret", secret)
        with pytest.raises(KeyStoreError):
            MasterKeys(config(tmp_path, **{f"{PREFIX}url": f"{garbage}secret/data/ottla"}))
    assert Garbage.paths == ["/v1/secret/data/ottla"] * 4


def test_a_token_of_several_lines_is_not_in_the_error(tmp_path: Path, garbage: str) -> None:
    (tmp_path / "token").write_text("hvs.token\n# of the cluster\n")
    settings = {f"{PREFIX}url": f"{garbage}secret/data/ottla", f"{PREFIX}token.file": str(tmp_path / "token")}
    with pytest.raises(KeyStoreError, match="one line") as refused:
        MasterKeys(config(tmp_path, **settings))
    assert "hvs.token" not in str(refused.value)


def test_a_command_that_hangs_or_floods_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "pid"
    monkeypatch.setattr(key_sources, "_COMMAND_TIMEOUT_S", 0.5)
    for words in (f"sleep 600 & echo $! > {noted}; wait", f"yes & echo $! > {noted}; wait"):
        with pytest.raises(KeyStoreError, match=r"command failed: exit code -9"):
            CommandSource(f"sh -c '{words}'").fetch()
        until(lambda: not alive(int(noted.read_text())), "a child of the command lives on", 20)
    with pytest.raises(KeyStoreError, match="exit code 3"):
        CommandSource("sh -c 'exit 3'").fetch()
    assert CommandSource("cat").fetch() == "", "it does not read the terminal of the node"


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_known_id_with_other_bytes_is_not_adopted(tmp_path: Path) -> None:
    """Topic keys that the first bytes wrapped could not be opened after the next start."""
    file = tmp_path / "master"
    file.write_text(master_line("m1"))
    masters = MasterKeys(config(tmp_path, **{f"{PREFIX}file": str(file)}))
    first = masters.current.key
    file.write_text(master_line("m2", b"2") + master_line("m1", b"x"))
    masters.refresh()
    assert [(key.id, key.key) for key in masters.keys] == [("m1", first)]
    file.write_text(master_line("m2", b"2") + master_line("m1") + "\n")
    masters.refresh()
    assert [key.id for key in masters.keys] == ["m2", "m1"]
    with pytest.raises(KeyStoreError, match="two keys"):
        parse_master_keys(master_line("m1") + master_line("m1", b"x"))
