"""What has no login serves loopback only, unless it is told; `ottla doctor --security` lists what is open; files are their owner's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.cli.doctor.files import check_files
from ottla.cli.doctor.security import check_http, check_settings, check_topics
from ottla.cli.options.profiles import Profiles
from ottla.env.config.load import load
from ottla.pipelines import supervisor
from ottla.runtime.disk import DiskStorage
from ottla.security.exposure import open_listeners
from ottla.security.hosts import is_loopback
from ottla.server.errors import StartupError
from ottla.server.sockets import Sockets
from ottla.testing import Broker
from tests.security.test_encryption import storage

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
EVERYWHERE = "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "closed"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("[::1]", True), ("localhost", True), ("", False), (EVERYWHERE, False),
     ("::", False), ("192.0.2.1", False), ("broker.example", False)],
)  # fmt: skip
def test_loopback(host: str, closed: bool) -> None:
    assert is_loopback(host) == closed


@pytest.mark.parametrize(
    "words",
    [["console", "--listen"], ["registry", "--listen"], ["pipeline", "serve", "--listen"]],
)
@pytest.mark.parametrize("address", [f"{EVERYWHERE}:1", "[::]:1"])
def test_a_server_without_users_refuses_other_addresses(words: list[str], address: str) -> None:
    done = CliRunner().invoke(ottla, [*words, address])
    assert done.exit_code == 2
    assert "--allow-open" in done.output
    assert "--users" in done.output


@pytest.mark.parametrize("command", ["console", "registry"])
def test_rules_that_only_mask_fields_are_no_login(command: str, tmp_path: Path) -> None:
    rules = tmp_path / "access.toml"
    rules.write_text('[[mask]]\ntopics = ["*"]\nfield = "value.card"\nmode = "hide"\n')
    done = CliRunner().invoke(ottla, [command, "--listen", f"{EVERYWHERE}:1", "--access-rules", str(rules)])
    assert done.exit_code == 2
    assert "--allow-open" in done.output


def test_up_refuses_other_addresses_and_leaves_nothing(tmp_path: Path) -> None:
    for more in ([], ["--nodes", "3"]):
        command = [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "up",
            "--dir",
            str(tmp_path / "d"),
            "--host",
            EVERYWHERE,
            *more,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "--allow-open" in done.stderr
        assert not (tmp_path / "d").exists()


def test_a_nodes_own_http_refuses_other_addresses() -> None:
    values = {**NODE, "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}
    values["ottla.http.listener"] = f"{EVERYWHERE}:0"
    sockets = Sockets()
    with pytest.raises(StartupError, match=r"ottla\.allow\.open=true"):
        sockets.bind(load(values))
    assert not sockets.by_listener, "no port is kept"
    sockets.bind(load({**values, "ottla.allow.open": "true"}))
    sockets.close()
    assert open_listeners(load({**NODE, "listeners": "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093"})) == [
        "PLAINTEXT://:9092"
    ]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_files_are_for_their_owner(tmp_path: Path, umask: int) -> None:
    """Whatever the umask allows: keys for the owner alone, records for the owner and its group."""
    before = os.umask(umask)
    try:
        (tmp_path / "master").write_text("m1:" + "bW1t" * 10 + "bW0=\n")
        settings = {"ottla.encryption.master.key.file": str(tmp_path / "master")}
        with Broker(directory=tmp_path / "node", properties=settings):
            pass
        disk = storage(tmp_path / "node" / "data")
        disk.make_dirs(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    made = list((tmp_path / "node" / "data").rglob("*"))
    assert made
    for path in (*made, tmp_path / "a", tmp_path / "a" / "b"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.name == "encryption-keys":
            assert mode == 0o600
        elif path.name != "master":
            assert mode & 0o027 == 0, (path, oct(mode))


def test_state_and_logs_of_pipelines_and_profiles_are_for_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "own_command", lambda *_words: ["true"])
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    before = os.umask(0)
    try:
        state = Path(supervisor.state_directory(str(tmp_path / "state")))
        with contextlib.suppress(ChildProcessError):  # it may have been waited for
            os.waitpid(supervisor.start(str(state), "p", ["--option", "secret"]), 0)
        Profiles().save()
        (tmp_path / "config" / "profiles.new").write_text("left by a crash")
        Profiles().save()
    finally:
        os.umask(before)
    made = [state, *state.rglob("*"), tmp_path / "config", tmp_path / "config" / "profiles.json"]
    assert len(made) > 5
    for path in made:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"Not a directory|exists"):
            DiskStorage().make_dirs(str(path))


OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OPEN = {
    "listeners": f"PLAINTEXT://:9092,EXT://{EVERYWHERE}:9094,TLS://192.0.2.1:9095,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512, PLAIN",
    "listener.name.ext.ottla.sasl.oauthbearer.unsecured.enable": "true",
    "listener.name.tls.ottla.ssl.security.level": "0",
    "ssl.enabled.protocols": "TLSv1.1,TLSv1.2",
    "ssl.endpoint.identification.algorithm": "",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:a",
    "allow.everyone.if.no.acl.found": "true",
    "ottla.http.listener": ":9096",
    "ottla.allow.open": "true",
}
CLOSED = {
    "listeners": "CLIENTS://:9092,CONTROLLER://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SASL_SSL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node",
    "ottla.audit.enable": "true",
    "ottla.http.listener": "127.0.0.1:9094",
    "ottla.encryption.master.key.url": "https://vault:8200/v1/transit/decrypt/ottla",
    "ottla.encryption.refuse.plain": "true",
}


def test_the_doctor_names_what_is_open_and_what_closes_it() -> None:
    found = list(check_settings(OPEN, "here"))
    levels = {(one.name, one.level) for one in found}
    assert levels >= {
        ("open-listener", "error"), ("clear-text", "error"), ("anonymous-tls", "warning"), ("unsigned-tokens", "error"),
        ("weak-tls", "error"), ("old-tls", "error"), ("names-not-checked", "warning"), ("anonymous-super-user", "error"),
        ("open-by-default", "error"), ("no-audit", "warning"), ("open-http", "error"), ("allowed-open", "warning"),
        ("not-encrypted", "warning"),
    }  # fmt: skip
    assert all(one.fix and one.seen.startswith("here: ") for one in found)
    assert [one.level for one in check_settings(CLOSED, "here")] == ["ok"]
    assert {one.name for one in check_settings({}, "here")} >= {"open-listener", "no-acls"}, "Kafka's defaults"
    controller = {**CLOSED, "listener.security.protocol.map": "clients : sasl_ssl"}
    seen = [(one.name, one.seen) for one in check_settings(controller, "here") if one.level == "error"]
    assert len(seen) == 1, "names in any case; a listener without an entry is PLAINTEXT, as a controller's is"
    assert "CONTROLLER (PLAINTEXT) on every address" in seen[0][1]
    tokens = {
        **CLOSED,
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "http://id.example/keys",
    }
    assert {one.name for one in check_settings(tokens, "here") if one.level == "error"} == {"clear-text"}
    assert [one.name for one in check_topics({"t": {"ottla.schema.validation": "quarantine"}})] == []
    bad = {"ottla.schema.validation": "quarantine", "ottla.schema.quarantine.topic": "__consumer_offsets"}
    assert [one.name for one in check_topics({"t": bad})] == ["quarantine"]


def test_each_setting_that_the_doctor_names_closes_what_it_is_for() -> None:
    """Also where the setting of a listener hides that of all: the line that is pasted must be the one in force."""
    values = {
        **CLOSED,
        "ssl.enabled.protocols": "TLSv1.2",
        "listener.name.clients.ssl.enabled.protocols": "TLSv1.1",
        "listener.name.clients.ottla.sasl.oauthbearer.unsecured.enable": "true",
        "listener.name.clients.ssl.endpoint.identification.algorithm": "",
        "listener.name.clients.ottla.ssl.security.level": "1",
        "allow.everyone.if.no.acl.found": "true",
        "ottla.audit.enable": "false",
        "ottla.encryption.refuse.plain": "false",
    }
    found = [one for one in check_settings(values, "here") if one.level != "ok"]
    assert len(found) == 7
    for one in found:
        name, _, value = re.split(r",? (?:and|after|when) ", one.fix)[0].partition("=")
        left = [each.name for each in check_settings({**values, name: value}, "here")]
        assert one.name not in left, one.fix


def test_the_doctor_looks_at_files(tmp_path: Path) -> None:
    file, key, logs = tmp_path / "server.properties", tmp_path / "a key", tmp_path / "logs"
    logs.mkdir(mode=0o755)
    (logs / "encryption-keys").write_text(json.dumps({"before": {"t-0": {"a.log": "", "b.log": "00"}}}))
    key.write_text("")
    values = {"ssl.key.password": "hunter2", "ottla.encryption.master.key.file": str(key), "log.dirs": str(logs)}
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    for path in (file, key, logs / "encryption-keys"):
        path.chmod(0o644)
    found = list(check_files(str(file), values))
    names = [one.name for one in found]
    assert names.count("readable-secret") == 3
    assert {"readable-log-dir", "plain-files"} <= set(names)
    assert "hunter2" not in " ".join(one.seen for one in found)
    for command in [one.fix for one in found if one.fix.startswith("chmod")]:
        subprocess.run(["sh", "-c", command], check=True, timeout=20)
    left = [one.name for one in check_files(str(file), values)]
    assert left == ["plain-files"], "each command closed what it was for"


@pytest.mark.timeout(120)
def test_the_doctor_asks_a_cluster_and_http_servers() -> None:
    tokens = {
        "listeners": "PLAINTEXT://127.0.0.1:0,EXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.ext.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
        "listener.name.ext.ottla.sasl.oauthbearer.unsecured.enable": "true",
    }
    with Broker(properties={"ottla.http.listener": "127.0.0.1:0", **tokens}) as broker:
        port = broker.node._sockets.http.getsockname()[1]  # type: ignore[union-attr]  # it listens
        url = f"http://127.0.0.1:{port}/metrics"
        words = ["doctor", "--security", "-b", broker.bootstrap_servers, "--http", url, "-o", "json"]
        done = CliRunner().invoke(ottla, words)
        found = json.loads(done.output)
        assert {one["name"] for one in found} >= {"no-acls", "not-encrypted", "open-http", "unsigned-tokens"}
        assert done.exit_code == 1, "an HTTP server answered without a login"
        unknown = check_http(f"http://127.0.0.1:{port}/nowhere", 5)
        assert (unknown.level, "does not show whether a login is required" in unknown.seen) == ("warning", True), (
            "404 is no login"
        )
    assert check_http(url, 5).level == "warning"
    assert check_http(Path(__file__).as_uri(), 5).level == "warning"
