"""Options that do not go together are refused by name, and -X settings win over a verb's defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.commands import ottla
from ottla.cli.kafka.console_consumer import main as console_consumer
from ottla.security.web import WebAccess, WebAccessError
from ottla.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)


def call(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(ottla, list(words), input=stdin)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("consume t -g g -p 0", ("-p", "-g")),
        ("consume t -f %v -o json", ("-f", "-o")),
        ("consume t -e --from stored", ("--from stored", "-g")),
        ("export t t.jsonl --from stored", ("--from stored",)),
        ("produce t v -k a -K :", ("-k", "-K")),
        ("produce t v --subject s", ("--subject", "--value-as schema")),
        ("produce t v --subject s --value-as json", ("--subject", "--value-as schema")),
        ("group reset g t --to stored", ("--to stored",)),
        ("schema get 7 2 --id", ("VERSION", "--id")),
        ("pipeline backfill p.py --from-timestamp 1 --from-offsets {}", ("--from-timestamp", "--from-offsets")),
        ("up --no-registry --registry-port 1", ("--no-registry", "--registry-port")),
        ("up --no-console --console-port 1", ("--no-console", "--console-port")),
        ("registry --alone --group-id g", ("--alone", "--group-id")),
        ("registry --tls-client-ca {file}", ("--tls-client-ca", "--tls-certificate")),
        ("console --tls-client-ca {file}", ("--tls-client-ca", "--tls-certificate")),
        ("console --token-issuer me", ("--token-issuer", "--jwks-url")),
        ("cluster reassign t --file {file}", ("TARGET", "--file")),
    ],
)
def test_refused_by_name(words: str, named: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "any"
    file.write_text("{}")
    done = call(*[word.replace("{file}", str(file)) for word in words.split()])
    assert done.exit_code in {1, 2}, done.output
    for name in named:
        assert name in done.output


def test_web_options_without_their_partner_are_refused() -> None:
    for options in ({"tls_client_ca": "ca.pem"}, {"issuer": "me"}, {"audience": ("us",)}):
        with pytest.raises(WebAccessError, match="no effect without"):
            WebAccess.from_options(**options)  # type: ignore[arg-type]  # one option of each type


def test_properties_of_the_command_line_win_over_defaults(broker: Broker) -> None:
    assert call("topic", "create", "squeezed", "--partitions", "1").exit_code == 0
    lines = "".join(f"{'x' * 200}\n" for _ in range(50))
    done = call("produce", "squeezed", "-X", "compression.type=gzip", "-X", "linger.ms=100", stdin=lines)
    assert done.exit_code == 0, done.output
    assert _codec(broker, "squeezed") == 1
    done = call("produce", "squeezed", "-X", "compression.type=gzip", "-z", "zstd", stdin=lines)
    assert done.exit_code == 0, done.output
    assert _codec(broker, "squeezed") == 4


def _codec(broker: Broker, topic: str) -> int:
    """The compression of the last batch in the log."""
    from ottla.protocol.records_header import iterate_batches

    [segment] = (broker.directory / "data" / f"{topic}-0").glob("*.log")
    *_, (_, header) = iterate_batches(segment.read_bytes())
    return header.attributes & 0x07


@pytest.mark.parametrize(
    ("words", "option"),
    [(["consume", "t", "-e", "-g"], "-g"), (["registry", "--group-id"], "--group-id")],
)
@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_group_is_refused_by_name(words: list[str], option: str, name: str) -> None:
    """As of a shell variable that is not set; librdkafka would end the process with an abort."""
    done = call(*words, name)
    assert done.exit_code == 2
    assert option in done.output
    assert "the name is empty" in done.output


@pytest.mark.parametrize("name", ["", " "])
def test_kafkas_console_consumer_refuses_an_empty_group_as_kafka_does(
    name: str, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console_consumer(["--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group", name]) == 1
    assert "group.id should not be an empty string or whitespace" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["-X", "--property", "--client-property"])
def test_client_properties_have_one_name_and_keep_the_former(name: str) -> None:
    done = CliRunner().invoke(ottla, ["registry", name, "nonsense"])
    assert done.exit_code == 2
    assert "--property 'nonsense' is not NAME=VALUE" in done.output
    for command in (["registry"], ["connect", "run"], ["pipeline", "run"], ["pipeline", "validate"], ["topic", "list"]):
        shown = CliRunner().invoke(ottla, [*command, "--help"]).output
        assert "-X, --property NAME=VALUE" in shown
        assert "--client-property" not in shown
