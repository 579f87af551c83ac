"""The commands of the pages, run as they are written, by a shell, on a node (ottla up has its own tests)."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.verbs.shims import write_shims
from ottla.testing import Broker
from tests.support.schema_registry import schema_registry

ROOT = Path(__file__).resolve().parent.parent
ORDERS = "".join(f'{{"amount": {number}, "page": "/a", "id": {number}}}\n' for number in range(120))
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
# Servers, which have tests of their own, and words that stand for something else.
NOT_HERE = re.compile(r"make |ottla up|ottla registry |ottla cluster (drain|balance|reassign)|\. \.venv")
WAITS = re.compile(r"ottla consume .*--from -10m|console-share-consumer")


class Terminal:
    def __init__(self, servers: str, registry: str, folder: Path) -> None:
        self.servers = servers
        self.folder = folder
        path = f"{folder / 'kafka/bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        given = {"OTTLA_BOOTSTRAP_SERVERS": servers, "OTTLA_REGISTRY": registry, "HOME": str(folder), "PATH": path}
        self.environment = {**os.environ, **given}

    def run(self, line: str) -> str:
        line = re.sub(r"HOST:PORT|localhost:9092", self.servers, line)
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}" if WAITS.search(line) else line],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            first = ""
            if WAITS.search(line) and process.stdout is not None:
                first = process.stdout.readline()
                process.send_signal(signal.SIGINT)
            out = first + process.communicate(timeout=60)[0]
        finally:
            process.kill()
        assert process.returncode in ({0, 130} if first else {0}), f"{line}\n{out}"
        assert "Traceback" not in out, f"{line}\n{out}"
        return out


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("home")
    (folder / "order.avsc").write_text(SCHEMA)
    (folder / "orders.txt").write_text(ORDERS)
    (folder / "plan.json").write_text("{}")
    write_shims(folder / "kafka/bin")
    with Broker() as broker, schema_registry(broker.bootstrap_servers) as registry:
        made = Terminal(broker.bootstrap_servers, registry, folder)
        made.run("ottla produce orders -k de < orders.txt")
        made.run("ottla produce hits < orders.txt")
        made.run("ottla produce work job")
        yield made


def commands(page: str) -> list[str]:
    """The lines of fenced blocks without a language, and of indented ones."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    bare = [re.sub(r"\s+# .*", "", line.strip()) for line in lines]
    bare += [" ".join(sql.split()) for sql in re.findall(r"`(ottla sql \"[^`]+)`", text)]
    return [line for line in bare if re.match(r"(bin/)?(ottla|kafka-|export )", line) and not NOT_HERE.match(line)]


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("README.md", 4),
        ("docs/cli.md", 8),
        ("docs/cluster.md", 2),
        ("docs/groups.md", 1),
        ("docs/pipeline-operation.md", 1),
        ("docs/registry.md", 1),
        ("docs/share-groups.md", 3),
        ("docs/streams.md", 1),
        ("docs/tutorial.md", 10),
    ],
)
def test_every_command_of_a_page_works(terminal: Terminal, page: str, least: int) -> None:
    found = commands(page)
    assert len(found) >= least, found
    for line in found:
        terminal.run(line)


def test_the_python_of_the_readme(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert re.fullmatch(r"127\.0\.0\.1:\d+\n", done.stdout), done.stderr


def _text(page: str) -> str:
    return (ROOT / f"docs/{page}.md").read_text()


def test_the_pipelines_and_the_connector_of_their_pages(terminal: Terminal) -> None:
    pipeline, tables, lake = (
        block
        for page in ("pipelines", "pipeline-tables", "pipeline-object-store")
        for block in re.findall(r"^```python\n(.*?)^```", _text(page), re.MULTILINE | re.DOTALL)
        if "Pipeline(" in block
    )
    (connector,) = re.findall(r"^```yaml\n(.*?)^```", _text("connectors"), re.MULTILINE | re.DOTALL)
    (terminal.folder / "shop.py").write_text(pipeline)
    assert "2 steps, in order: large, totals" in terminal.run("ottla pipeline validate shop.py")
    (terminal.folder / "tables.py").write_text(tables)
    assert "3 steps, in order: seen, people, located" in terminal.run("ottla pipeline validate tables.py")
    (terminal.folder / "lake.py").write_text(lake)
    checked = "env ORDERS_TABLE=tables/orders ottla pipeline validate lake.py"
    assert "1 steps, in order: orders" in terminal.run(checked)
    database = terminal.folder / "shop.db"
    (terminal.folder / "orders.yaml").write_text(
        connector.replace("postgresql://app@localhost/shop", f"sqlite:///{database}")
    )
    assert "orders-to-postgres: 120 records" in terminal.run("ottla connect run orders.yaml --once")
    opened = sqlite3.connect(database)
    assert opened.execute("select count(*), max(id), max(seen_at) from shop_orders").fetchall() == [(120, 119, 119)]
    opened.close()
