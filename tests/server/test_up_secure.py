"""`ottla up --secure`: real clients log in with the settings that it wrote, and a client without a login is refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ottla.cli.commands import ottla
from ottla.client.settings import load_properties
from tests.support.kafka_jars import Unavailable
from tests.support.kafka_tools import Result
from tests.support.kcat import library_of_confluent_kafka
from tests.support.ports import free_port

pytestmark = pytest.mark.timeout(300)


class SecureLog:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secure = folder / "log" / "secure"
        self.registry_port, self.console_port = free_port(), free_port()
        self.lines: list[str] = []

    def start(self) -> SecureLog:
        words = ["up", "--dir", "log", "--secure", "--port", "0" if not self.secure.exists() else str(self.port)]
        words += ["--registry-port", str(self.registry_port), "--console-port", str(self.console_port)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._process.stdout is not None
        ready = {"the schema registry is up", "the console is up"}
        for line in self._process.stdout:
            self.lines.append(line)
            ready -= {words for words in ready if words in line}
            if not ready:
                return self
        raise AssertionError("".join(self.lines))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.stdout is not None
        self.lines += self._process.stdout.readlines()
        assert self._process.wait(60) == 0, "".join(self.lines)

    @property
    def address(self) -> str:
        match = re.search(r"ottla is up at (\S+)", "".join(self.lines))
        assert match is not None
        return match[1]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def librdkafka(self) -> dict[str, str]:
        return load_properties(str(self.secure / "clients/librdkafka.properties"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureLog]:
    running = SecureLog(tmp_path_factory.mktemp("secure")).start()
    yield running
    running.stop()
    assert running.librdkafka["sasl.password"] not in "".join(running.lines)


def test_confluent_kafka(log: SecureLog) -> None:
    producer = Producer(log.librdkafka)
    producer.produce("orders", b"value", b"key")
    assert producer.flush(60) == 0
    reader = Consumer({**log.librdkafka, "group.id": "g", "auto.offset.reset": "earliest"})
    reader.subscribe(["orders"])
    message = reader.poll(60)
    reader.close()
    assert message is not None
    assert (message.error(), message.value()) == (None, b"value")


def test_aiokafka(log: SecureLog) -> None:
    settings = json.loads((log.secure / "clients/aiokafka.json").read_text())
    settings["ssl_context"] = ssl.create_default_context(cafile=str(log.secure / "ca.pem"))

    async def round_trip() -> bytes | None:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("typed", b"from aiokafka")
        async with AIOKafkaConsumer("typed", auto_offset_reset="earliest", **settings) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(round_trip()) == b"from aiokafka"


def test_own_verbs_with_the_settings_of_java(log: SecureLog) -> None:
    words = ["acl", "list", "-b", log.address, "--command-config", str(log.secure / "clients/java.properties")]
    done = CliRunner().invoke(ottla, [*words, "-o", "json"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])


@pytest.mark.parametrize(
    "change",
    [
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"},
        {"sasl.password": "wrong"},
        {"ssl.ca.location": ""},
    ],
    ids=["no TLS", "no login", "wrong password", "no authority"],
)
def test_a_client_without_the_settings_is_refused(log: SecureLog, change: dict[str, str]) -> None:
    settings = {name: value for name, value in (log.librdkafka | change).items() if value}
    if settings["security.protocol"] != "SASL_SSL":
        settings = {name: value for name, value in settings.items() if not name.startswith("sasl.")}
    with pytest.raises(KafkaException):
        AdminClient({**settings, "log_level": 0}).list_topics(timeout=5)


def test_a_user_without_rights_reads_nothing(log: SecureLog) -> None:
    java = ["-b", log.address, "--command-config", str(log.secure / "clients/java.properties")]
    done = CliRunner().invoke(ottla, ["user", "add", "alice", "--password", "secret", *java])
    assert "alice can log in with SCRAM-SHA-512" in done.output
    alice = AdminClient({**log.librdkafka, "sasl.username": "alice", "sasl.password": "secret"})
    assert set(alice.list_topics(timeout=60).topics) == set()
    done = CliRunner().invoke(ottla, ["acl", "allow", "User:alice", "topic", "orders", "describe", *java])
    assert done.exit_code == 0, done.output
    assert set(alice.list_topics(timeout=60).topics) <= {"orders"}


def test_console_and_registry_ask_for_a_login(log: SecureLog) -> None:
    trust = ssl.create_default_context(cafile=str(log.secure / "ca.pem"))
    password = log.librdkafka["sasl.password"]
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(f"https://127.0.0.1:{log.registry_port}/subjects", context=trust)
    assert refusal.value.code == 401
    with urllib.request.urlopen(f"https://127.0.0.1:{log.console_port}/topics", context=trust) as page:
        assert "/login" in page.url
        assert b"orders" not in page.read()
    login = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    login.add_password(None, f"https://127.0.0.1:{log.registry_port}", "admin", password)
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=trust), urllib.request.HTTPBasicAuthHandler(login)
    )
    assert json.load(opener.open(f"https://127.0.0.1:{log.registry_port}/subjects")) == []


@pytest.mark.interop
def test_kcat(log: SecureLog, kcat_tool: Callable[..., Result], tmp_path: Path) -> None:
    """With the librdkafka of confluent-kafka, as docs/security.md advises where the system's is older than 2.6.1."""
    try:
        library = library_of_confluent_kafka(tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))
    settings = str(log.secure / "clients/librdkafka.properties")
    shown = kcat_tool("-F", settings, "-L", "-J", library=library)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["brokers"][0]["name"] == log.address


@pytest.mark.interop
def test_java(log: SecureLog, kafka_tool: Callable[..., Result]) -> None:
    settings = str(log.secure / "clients/java.properties")
    words = ["--bootstrap-server", log.address, "--command-config", settings, "--create", "--topic", "of-java"]
    assert "Created topic of-java" in kafka_tool("org.apache.kafka.tools.TopicCommand", *words).stdout


def test_files_are_for_their_owner_only(log: SecureLog) -> None:
    files = [path for path in log.secure.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "ca.pem", "ca.key", "server.pem", "users", "password", "java.properties", "librdkafka.properties", "aiokafka.json",
    }  # fmt: skip
    assert {path: path.stat().st_mode & 0o777 for path in files} == dict.fromkeys(files, 0o600)
    assert (log.secure.parent / "server.properties").stat().st_mode & 0o777 == 0o600


def test_a_second_start_uses_the_same_folder(tmp_path: Path) -> None:
    first = SecureLog(tmp_path).start()
    first.stop()
    kept = ("ca.pem", "ca.key", "server.pem", "password", "users")
    before = {name: (first.secure / name).read_bytes() for name in kept}
    first.start()
    try:
        assert {name: (first.secure / name).read_bytes() for name in kept} == before
        AdminClient(first.librdkafka).list_topics(timeout=60)
    finally:
        first.stop()


def test_a_log_without_logins_is_not_made_secure(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n")
    done = CliRunner().invoke(ottla, ["up", "--secure", "--dir", str(tmp_path)])
    assert done.exit_code == 1
    assert not (tmp_path / "secure").exists()
