"""`-o json` of every verb that ends by itself: the standard output is JSON. A new verb needs a call here, or a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.client.schema_registry import RegistryClient
from ottla.testing import Broker
from tests.registry.instances import RegistryThread

WITHOUT = {
    "completion": "prints a script",
    "connect run": "runs until it is stopped; `pipeline status` shows it",
    "console": "a server",
    "pipeline backfill": "runs a pipeline; `pipeline status` shows it",
    "pipeline run": "runs until it is stopped; `pipeline status` shows it",
    "pipeline serve": "a server",
    "registry": "a server",
    "server start": "a server",
    "example": "runs until its summary: what people watch",
    "shims": "writes files",
    "top": "a screen; `cluster status` and `group list` have the values",
    "up": "servers",
}
SPARK = {"pipeline backfill", "pipeline repartition", "pipeline reset", "pipeline start", "pipeline switch"}
"""Need Spark: `tests/pipelines` runs them."""
SIMULATED = {"simulate"}
"""Needs no cluster: `test_simulate.py` runs the verb."""
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
CALLS = {
    "acl allow": "User:a topic t read",
    "acl deny": "User:b topic t read",
    "acl list": "",
    "acl remove": "User:a topic t read",
    "audit export": "--to file:audit.log --topic t --once",
    "backup create": "backups",
    "backup list": "backups",
    "backup restore": "backups",
    "backup verify": "backups",
    "bench": "-n 100 -s 10",
    "cluster balance": "",
    "cluster drain": "7",
    "cluster quorum": "",
    "cluster reassign": "t --cancel",
    "cluster status": "",
    "config set": "topic t retention.ms=-1",
    "config show": "topic t",
    "config unset": "topic t retention.ms",
    "consume": "t -e",
    "doctor": "",
    "export": "t t.jsonl",
    "group delete": "g",
    "group describe": "g",
    "group list": "",
    "group reset": "g t --to beginning --execute",
    "import": "t.jsonl t",
    "pipeline graph": "pipe.py",
    "pipeline list": "--state state",
    "pipeline status": "none --state state",
    "pipeline stop": "none --state state",
    "pipeline validate": "pipe.py --no-plans",
    "produce": "t x",
    "profile delete": "p",
    "profile list": "",
    "profile set": "p -b 127.0.0.1:1",
    "profile use": "p",
    "schema check": "s-value s.avsc",
    "schema delete": "s-value 1 --yes",
    "schema diff": "s-value 1 1",
    "schema get": "s-value",
    "schema list": "",
    "schema register": "s-value s.avsc",
    "sql": "select_1",
    "storage format": "-t MkU3OEVBNTcwNTJENDM2Qg -c server.properties --standalone",
    "storage info": "-c server.properties",
    "storage random-uuid": "",
    "topic alter": "t --partitions 2",
    "topic create": "t --partitions 1 --replicas 1",
    "topic delete": "t --yes",
    "topic describe": "t",
    "topic forget": "t --key k --yes --wait 0",
    "topic list": "",
    "txn describe": "none",
    "txn list": "",
    "txn terminate": "none",
    "user add": "u --password secret",
    "user list": "",
    "user remove": "u --mechanism SCRAM-SHA-512",
}
REFUSED = {
    "backup restore",
    "cluster drain",
    "pipeline status",
    "pipeline stop",
    "topic forget",
    "txn describe",
    "txn terminate",
}
"""Calls that end with a refusal here: nothing on the standard output."""
ORDER = ["topic create", "produce", "group reset", "export", "import", "acl allow", "user add", "schema register",
         "profile set", "storage format"]  # fmt: skip
LAST = ["group delete", "acl remove", "user remove", "schema delete", "profile delete", "topic alter", "topic delete"]


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


VERBS = dict(leaves(ottla))


def test_every_verb_has_a_call_or_a_reason() -> None:
    assert set(VERBS) == {*CALLS, *WITHOUT, *SPARK, *SIMULATED}


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - WITHOUT.keys()))
def test_every_verb_has_the_option(verb: str) -> None:
    formats = [option.type for option in VERBS[verb].params if "-o" in option.opts]
    assert formats, "no -o"
    assert isinstance(formats[0], click.Choice)
    assert "json" in formats[0].choices


def documents(text: str) -> list[object]:
    """One document, or one on each line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def test_the_output_is_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "s.avsc").write_text(SCHEMA)
    (tmp_path / "pipe.py").write_text(
        "from ottla.pipelines import Pipeline, topic\n"
        "pipeline = Pipeline('p')\n\n\n"
        "@pipeline.step(reads={'rows': topic('a')}, writes=topic('b'))\ndef copy(rows):\n    return rows\n"
    )
    (tmp_path / "server.properties").write_text(
        f"process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:2\nlog.dirs={tmp_path}/data\n"
    )
    with (
        Broker(properties={"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}) as broker,
        RegistryThread(broker.bootstrap_servers, topic="_schemas_json") as registry,
    ):
        monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        monkeypatch.setenv("OTTLA_REGISTRY", registry.url)
        assert RegistryClient(registry.url).subjects() == []
        between = sorted(CALLS.keys() - {*ORDER, *LAST})
        problems = [problem for verb in [*ORDER, *between, *LAST] if (problem := problem_of(verb))]
    assert not problems, "\n".join(problems)


def problem_of(verb: str) -> str:
    words = [word.replace("select_1", "select 1 as n") for word in CALLS[verb].split()]
    done = CliRunner().invoke(ottla, [*verb.split(), *words, "-o", "json"])
    try:
        shown = documents(done.stdout)
    except ValueError:
        return f"{verb}: not JSON: {done.stdout!r}"
    if verb in REFUSED and not shown:
        return ""
    return (
        ""
        if shown and done.exit_code == 0
        else f"{verb}: exit code {done.exit_code}: {done.output!r} {done.exception!r}"
    )
