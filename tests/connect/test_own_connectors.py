"""Connectors of one's own, as the examples have them: a class of at most 30 lines, run by `ottla connect`."""

from __future__ import annotations

import ast
import json
import mailbox
from email.message import EmailMessage
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.tables.query import topic_table
from ottla.testing import Broker

EXAMPLES = Path(__file__).parents[2] / "examples" / "connectors"
pytestmark = pytest.mark.timeout(180)


def mails(path: Path, numbers: range) -> None:
    box = mailbox.mbox(path)
    for n in numbers:
        message = EmailMessage()
        message["From"], message["Subject"], message["Message-ID"] = "ada@example.org", f"number {n}", f"<{n}@x>"
        message.set_content(f"text {n}")
        box.add(message)
    box.close()


@pytest.mark.parametrize("name", ["mailbox_source", "lines_sink"])
def test_the_class_is_short(name):
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    made = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    assert made.end_lineno - made.lineno + 1 <= 30


def test_mail_becomes_records_and_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    source, sink = tmp_path / "source.yaml", tmp_path / "sink.yaml"
    source.write_text(
        f"name: mail\nconnector.class: mailbox_source:MailboxSource\nfile: {tmp_path / 'box'}\ntopic: mail\n"
    )
    sink.write_text(
        f"name: files\nconnector.class: lines_sink:LinesSink\ntopics: mail\nflush.size: 4\nfolder: {tmp_path / 'out'}\n"
    )
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        servers = broker.bootstrap_servers

        def run(config: Path) -> str:
            done = CliRunner().invoke(ottla, ["connect", "run", str(config), "-b", servers, "--once"])
            assert done.exit_code == 0, done.output
            return done.output

        mails(tmp_path / "box", range(5))
        assert run(source) == "mail: 5 records\n"
        mails(tmp_path / "box", range(5, 7))
        assert run(source) == "mail: 2 records\n"
        assert run(source) == "mail: 0 records\n"
        rows = topic_table({"bootstrap.servers": servers}, "mail").to_pylist()
        assert [row["key"] for row in rows] == [f"<{n}@x>".encode() for n in range(7)]
        assert run(sink) == "files: 7 records\n"
    lines = [json.loads(line) for file in sorted((tmp_path / "out").iterdir()) for line in file.open()]
    assert [line["subject"] for line in lines] == [f"number {n}" for n in range(7)]
