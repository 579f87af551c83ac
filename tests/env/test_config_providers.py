"""`${provider:path:key}` in a properties file: Kafka's three providers, and what is left as it is written."""

from __future__ import annotations

import pytest

from ottla.env.config.problems import ConfigError
from ottla.env.config.providers import DIRECTORY, ENVIRONMENT, FILE, resolve

FILES = {"/secrets/store.properties": "password=sec\\u0072et\nempty=\n", "/secrets/key": "from a file\n"}
ALL = {
    "config.providers": "file, directory,env",
    "config.providers.file.class": FILE,
    "config.providers.directory.class": DIRECTORY,
    "config.providers.env.class": ENVIRONMENT,
}


def _resolved(value: str, **params: str) -> str:
    properties = {**ALL, **{f"config.providers.{name}": text for name, text in params.items()}, "x": value}
    return resolve(properties, {"HOME": "/root", "SECRET": "s3cret"}, FILES.get)["x"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${file:/secrets/store.properties:password}", "secret"),
        ("a ${file:/secrets/store.properties:password} b ${env:SECRET}", "a secret b s3cret"),
        ("${file:/secrets/store.properties:empty}", ""),
        ("${file:/secrets/store.properties:other}", "${file:/secrets/store.properties:other}"),
        ("${directory:/secrets:key}", "from a file\n"),
        ("${directory:/secrets:nothing}", "${directory:/secrets:nothing}"),
        ("${env:NOTHING}", "${env:NOTHING}"),
        ("${vault:path:key}", "${vault:path:key}"),
        ("${plain}", "${plain}"),
        ("no variable", "no variable"),
    ],
)
def test_variables(value: str, expected: str) -> None:
    assert _resolved(value) == expected


def test_without_providers_nothing_is_filled_in() -> None:
    assert resolve({"x": "${env:SECRET}"}, {"SECRET": "s"}, FILES.get) == {"x": "${env:SECRET}"}


def test_a_provider_without_a_class_is_left_out() -> None:
    assert (
        resolve({"config.providers": "env", "x": "${env:SECRET}"}, {"SECRET": "s"}, FILES.get)["x"] == "${env:SECRET}"
    )


def test_paths_and_names_can_be_limited() -> None:
    allowed = {"file.param.allowed.paths": "/etc/kafka,/secrets"}
    assert _resolved("${file:/secrets/store.properties:password}", **allowed) == "secret"
    forbidden = {"file.param.allowed.paths": "/etc/kafka,/secret"}
    same = "${file:/secrets/store.properties:password}"
    assert _resolved(same, **forbidden) == same
    climbing = "${file:/etc/kafka/../../secrets/store.properties:password}"
    assert _resolved(climbing, **forbidden) == climbing
    relative = "${file:store.properties:password}"
    assert _resolved(relative, **allowed) == relative
    key = "${directory:/etc:../secrets/key}"
    assert _resolved(key, **{"directory.param.allowed.paths": "/etc"}) == key
    assert _resolved("${env:SECRET}", **{"env.param.allowlist.pattern": "^SEC.*"}) == "s3cret"
    assert _resolved("${env:HOME}", **{"env.param.allowlist.pattern": "^SEC.*"}) == "${env:HOME}"
    assert _resolved("${env:SECRET}", **{"env.param.allowlist.pattern": "SEC"}) == "${env:SECRET}"


def test_a_path_with_dots_is_the_path_that_it_means() -> None:
    """Apache Kafka 4.3.1 gives these values; one that stays `${...}` would be a wrong password."""
    climbing = "${file:/etc/kafka/../../secrets/store.properties:password}"
    files = {**FILES, "/etc/kafka/../../secrets/store.properties": FILES["/secrets/store.properties"]}
    for allowed in ({}, {"config.providers.file.param.allowed.paths": "/etc/kafka,/secrets"}):
        assert resolve({**ALL, **allowed, "x": climbing}, {}, files.get)["x"] == "secret"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("env.param.allowlist.pattern", "[", "not a regular expression"),
        ("file.param.allowed.paths", "secrets", "the path is not absolute"),
    ],
)
def test_limits_that_mean_nothing_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"config\.providers\.{name}=.*{reason}"):
        _resolved("no variable", **{name: value})


def test_a_file_that_cannot_be_read_and_an_unknown_class_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot read /nowhere"):
        _resolved("${file:/nowhere:key}")
    with pytest.raises(
        ConfigError, match=r"config\.providers\.v\.class=com\.example\.Vault: Java classes cannot be loaded"
    ):
        resolve({"config.providers": "v", "config.providers.v.class": "com.example.Vault"}, {}, FILES.get)
