"""`--profile` of the verbs that keep running: the console, the registry, connectors and pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.cli.options.client_options import pairs, property_option, servers_option
from ottla.cli.options.profile_option import profiled, words_again
from ottla.cli.options.settings_file import settings_option
from ottla.console import serve as console_serve
from ottla.registry import server as registry_server


@click.command()
@servers_option()
@property_option()
@profiled
@settings_option("property.linger.ms: ...")
def program(*, bootstrap_servers: str, properties: tuple[str, ...]) -> None:
    own = click.get_current_context().params
    words = words_again(own["profile"], own["bootstrap_servers"])
    click.echo(json.dumps([bootstrap_servers, pairs("--property", properties), words]))


@pytest.fixture(autouse=True)
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`prod` is in use, `test` is not."""
    for name in ("OTTLA_BOOTSTRAP_SERVERS", "OTTLA_PROFILE", "OTTLA_REGISTRY", "OTTLA_CONSOLE_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path))
    call(
        ottla,
        "profile",
        "set",
        "prod",
        "-b",
        "prod:1",
        "-X",
        "client.id=p",
        "-X",
        "acks=1",
        "--registry",
        "http://prod",
    )
    call(ottla, "profile", "set", "test", "-b", "test:1")
    call(ottla, "profile", "use", "prod")


def call(command: click.Command, *words: str, code: int = 0, **variables: str) -> str:
    done = CliRunner().invoke(command, list(words), env=variables)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output


def test_the_profile_fills_in_what_is_not_set(tmp_path: Path) -> None:
    own = {"client.id": "p", "acks": "1"}
    assert json.loads(call(program)) == ["prod:1", own, ["--profile", "prod"]]
    assert json.loads(call(program, "--profile", "test")) == ["test:1", {}, ["--profile", "test"]]
    assert json.loads(call(program, OTTLA_PROFILE="test")) == ["test:1", {}, ["--profile", "test"]]
    here = ["here:1", {**own, "acks": "all"}, ["--profile", "prod", "--bootstrap-servers", "here:1"]]
    assert json.loads(call(program, "-b", "here:1", "-X", "acks=all")) == here
    assert json.loads(call(program, "-X", "acks=all", OTTLA_BOOTSTRAP_SERVERS="here:1")) == here
    (tmp_path / "settings.yaml").write_text("bootstrap-servers: here:1\nproperty.acks: all\n")
    assert json.loads(call(program, "--settings", str(tmp_path / "settings.yaml"))) == here
    assert "there is no profile 'none'" in call(program, "--profile", "none", code=1)


def test_without_profiles_nothing_changes(tmp_path: Path) -> None:
    words = ["--bootstrap-servers", "127.0.0.1:9092"]
    assert json.loads(call(program, OTTLA_CONFIG_DIR=str(tmp_path / "none"))) == ["127.0.0.1:9092", {}, words]


def test_the_console_follows_a_profile_and_a_companion_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(console_serve, "serve", lambda settings, *_, **__: served.append(settings))
    call(ottla, "console")
    call(ottla, "console", "--registry", "http://own")
    call(ottla, "console", "-b", "up:1", "--until-stdin-closes")
    assert [(row.bootstrap_servers, row.client.get("client.id"), row.registry_url) for row in served] == [
        ("prod:1", "p", "http://prod"),
        ("prod:1", "p", "http://own"),
        ("up:1", None, ""),
    ]


def test_the_registry_follows_a_profile_and_a_companion_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served: list[Any] = []

    async def serve(settings: Any, *_: Any, **__: Any) -> None:
        served.append(settings)

    monkeypatch.setattr(registry_server, "serve", serve)
    (tmp_path / "client").write_text("acks=0\nsasl.username=librdkafka's name\n")
    call(ottla, "registry")
    call(ottla, "registry", "--client-config", str(tmp_path / "client"), "-X", "client.id=own")
    call(ottla, "registry", "-b", "up:1", "--until-stdin-closes")
    given = [(row.bootstrap_servers, {**row.client_properties, "log_level": ""}) for row in served]
    quiet = {"log_level": ""}
    assert given == [
        ("prod:1", {"client.id": "p", "acks": "1", **quiet}),
        ("prod:1", {"client.id": "own", "acks": "0", "sasl.username": "librdkafka's name", **quiet}),
        ("up:1", quiet),
    ]


def test_the_registry_logs_in_with_the_properties_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []

    async def serve(settings: Any, *_: Any, **__: Any) -> None:
        served.append(settings)

    monkeypatch.setattr(registry_server, "serve", serve)
    login = (
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    )
    call(
        ottla,
        "registry",
        "-b",
        "127.0.0.1:1",
        "-X",
        "security.protocol=SASL_PLAINTEXT",
        "-X",
        "sasl.mechanism=PLAIN",
        "-X",
        login,
    )
    assert served[0].client_properties.items() >= {"sasl.username": "a", "sasl.password": "b"}.items()
