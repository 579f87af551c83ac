"""`ottla pipeline serve` and who may use it: users, TLS, foreign names and pages. No Spark here."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.console.upstream import basic, node_headers, upstream
from ottla.security.web import hash_password
from tests.security.secured import Certificates
from tests.support.ports import free_port

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, ssl.SSLContext]]:
    """(port, what to trust): `ottla pipeline serve` as a user starts it, over a state directory with one dead pipeline."""
    folder = Path(tmp_path_factory.mktemp("served"))
    certificates = Certificates(folder)
    (folder / "users").write_text(f"see:viewer:{hash_password('s')}\ndo:operator:{hash_password('d')}\n")
    state = folder / "state"
    state.mkdir()
    (state / "shop.status.json").write_text(json.dumps({"name": "shop", "state": "running"}))
    port = free_port()
    command = [sys.executable, "-P", "-m", "ottla.cli.main", "pipeline", "serve", "-l", f"127.0.0.1:{port}", "--state", str(state),
               "--users", str(folder / "users"), "--tls-certificate", str(certificates.issue("pipelines")),
               "--allowed-host", "pipelines.example"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        assert b"https://" in process.stdout.readline()
        context = ssl.create_default_context(cafile=str(certificates.authority_file))
        deadline = time.monotonic() + 60
        while True:
            try:
                assert call((port, context), "GET", "/healthz")[0] == 200
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield port, context
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def call(server: tuple[int, ssl.SSLContext], method: str, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPSConnection("127.0.0.1", server[0], timeout=60, context=server[1])
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_logins_and_roles(server: tuple[int, ssl.SSLContext]) -> None:
    assert call(server, "GET", "/pipelines")[0] == 401
    assert call(server, "POST", "/pipelines/shop/stop")[0] == 401
    assert "shop" in call(server, "GET", "/pipelines", **basic("see:s"))[1]
    assert call(server, "GET", "/metrics")[0] == 401
    assert 'ottla_pipeline_state{pipeline="shop",state="' in call(server, "GET", "/metrics", **basic("see:s"))[1]
    assert call(server, "POST", "/pipelines/shop/stop", **basic("see:s"))[0] == 403
    assert call(server, "POST", "/pipelines/shop/stop", **basic("do:d"))[0] == 200
    assert call(server, "POST", "/healthz")[0] == 401


def test_what_a_browser_can_be_made_to_send(server: tuple[int, ssl.SSLContext]) -> None:
    who = basic("do:d")
    assert call(server, "GET", "/pipelines", Host="rebound.example", **who)[0] == 421
    assert call(server, "GET", "/pipelines", Host="pipelines.example", **who)[0] == 200
    assert call(server, "POST", "/pipelines/shop/stop", Origin="https://evil.example", **who)[0] == 403
    assert call(server, "POST", "/pipelines/shop/stop", Sec_Fetch_Site="cross-site", **who)[0] == 403
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert call(server, "POST", "/pipelines/shop/stop", **form, **who)[0] == 415


def test_the_console_logs_in_and_sends_no_password_in_the_clear() -> None:
    assert upstream("https://do:d%40@host:8084/", "x") == ("https://host:8084", basic("do:d@"))
    assert upstream("http://host:8084", "x") == ("http://host:8084", {})
    assert node_headers("https://node:9094", "a:b") == basic("a:b")
    assert node_headers("http://127.0.0.1:9094", "a:b") == basic("a:b")
    assert node_headers("http://node:9094", "a:b") == {}
    assert node_headers("https://node:9094", None) == {}
