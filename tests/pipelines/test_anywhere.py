"""The same pipeline file on local[*], a standalone cluster and Spark Connect, by both entries: equal results, exactly once.

The Python of executors and of the Connect server has no Ottla installed. Ottla, the package beside the file and a shipped
environment reach them as files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import ottla.pipelines.submit as program
from ottla.connect.sender import Outgoing, Sender
from ottla.connect.sinks.delta import read_delta
from ottla.pipelines.session import _worker_python, use_java
from ottla.tables.query import topic_table
from tests.interop.ottla_server import OttlaServer
from tests.pipelines.conftest import PROPERTIES, Topics
from tests.support.spark_servers import BIN, bare_python, connect_server, packed, standalone_cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]
FILE = Path(__file__).with_name("anywhere_job") / "anywhere.py"
USERS = {"a": "Oslo", "b": "Bern", "c": "Riga"}
HALF, ALL = range(60), range(150)
BAD = 7
SMALL = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OttlaServer]:
    made = OttlaServer(tmp_path / "server", properties=PROPERTIES)
    made.start()
    topics = Topics(made)
    topics.make("orders", 3)
    topics.make("users", 3, cleanup_policy="compact")
    try:
        send(
            made, [Outgoing("users", user.encode(), b'{"city": "%s"}' % city.encode()) for user, city in USERS.items()]
        )
        yield made
    finally:
        made.kill()


def send(server: OttlaServer, records: list[Outgoing]) -> None:
    sender = Sender({"bootstrap.servers": server.bootstrap_servers})
    sender.send(iter(records))
    sender.flush()


def order(n: int) -> Outgoing:
    value = b"{" if n % BAD == 0 else json.dumps({"n": n, "user": "abcd"[n % 4]}).encode()
    return Outgoing("orders", None, value)


@dataclass(frozen=True)
class Site:
    """One place to run at, with the same checkpoint for both entries."""

    server: OttlaServer
    folder: Path
    suffix: str
    words: tuple[str, ...] = ()
    submit: tuple[str, ...] = field(default=(sys.executable, "-m", "ottla.pipelines.submit"))
    archive: bool = False
    bin: Path = Path(sys.executable).parent
    """Where the driver's `python3` is."""

    def run(self) -> None:
        """By the command."""
        words = ["--once", "--quiet", "--state", str(self.folder / "state"), *self._words(), *self._settings()]
        self._call([sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(FILE), *words])

    def submitted(self) -> None:
        """By the program of spark-submit."""
        self._call([*self.submit, str(FILE), "--once", *self._words()])

    def _words(self) -> list[str]:
        return ["-b", self.server.bootstrap_servers, "--checkpoints", f"{self.folder}/checkpoints", *self.words]

    def _settings(self) -> list[str]:
        if "--remote" in self.words:
            return []  # a Spark Connect server has its own
        return [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]

    def _call(self, command: list[str]) -> None:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "OTTLA_"))
        }
        kept.pop("PYTHONPATH", None)
        environment = {
            **kept,
            "PATH": f"{self.bin}:{kept['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "OTTLA_TEST_SUFFIX": self.suffix,
            "OTTLA_TEST_FOLDER": str(self.folder),
            "OTTLA_TEST_ARCHIVE": str(int(self.archive)),
            # Spark starts the Python of one name everywhere: here it has an Ottla, on the cluster it is the bare one.
            "PYSPARK_PYTHON": "python3",
        }
        self.folder.mkdir(exist_ok=True)
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]

    def check(self, numbers: range) -> set[str]:
        """What each output must hold after `numbers`; the Pythons of the tasks."""
        good = [n for n in numbers if n % BAD]
        user = {n: "abcd"[n % 4] for n in good}
        priced = self.rows("priced")
        assert Counter(row["n"] for row in priced) == Counter(good)
        assert all(row["price"] == str(3 * row["n"]) for row in priced)
        assert {row["word"] for row in priced} == ({"shipped"} if self.archive else {""})
        assert len(self.records("orders.bad")) == len(numbers) - len(good)
        stored = read_delta(str(self.folder / "delta"))[0].to_pylist()
        assert Counter((row["n"], row["user"]) for row in stored) == Counter(user.items())
        cities = Counter((n, USERS[user[n]]) for n in good if user[n] in USERS)
        assert Counter((row["n"], row["city"]) for row in self.rows("seen")) == cities
        return {row["python"] for row in priced}

    def rows(self, name: str) -> list[dict]:
        return [json.loads(row["value"]) for row in self.records(name)]

    def records(self, name: str) -> list[dict]:
        return topic_table({"bootstrap.servers": self.server.bootstrap_servers}, name + self.suffix).to_pylist()


def spark_submit(master: str | None = None, **settings: str) -> tuple[str, ...]:
    words = [word for name, value in {**SMALL, **settings}.items() for word in ("--conf", f"{name}={value}")]
    return (str(BIN / "spark-submit"), *(["--master", master] if master else []), *words, program.__file__)


def through_both(site: Site, submitter: Site | None = None) -> set[str]:
    """Half of the orders by the command, the rest by spark-submit on the same checkpoint, and once more for nothing."""
    send(site.server, [order(n) for n in HALF])
    site.run()
    pythons = site.check(HALF)
    send(site.server, [order(n) for n in ALL[len(HALF) :]])
    (submitter or site).submitted()
    pythons |= site.check(ALL)
    return pythons


def test_on_this_machine(server, tmp_path):
    use_java()
    site = Site(server, tmp_path / "local", "-local", submit=spark_submit("local[*]"))
    assert through_both(site) == {f"{sys.prefix} with an Ottla"}
    site.submitted()
    site.check(ALL)


def test_on_a_standalone_cluster_whose_python_has_no_ottla(server, tmp_path):
    bare = bare_python(tmp_path / "bare")
    with standalone_cluster(tmp_path / "cluster", str(bare)) as master:
        site = Site(
            server, tmp_path / "site", "-cluster", words=("--master", master), submit=spark_submit(master),
            bin=Path(_worker_python()).parent,
        )  # fmt: skip
        assert through_both(site) == {str(tmp_path / "bare")}
        assert len(list((tmp_path / "cluster").glob("worker*/app-*"))) == 4, "both workers took part in both runs"


def test_executors_with_the_python_of_an_archive(server, tmp_path):
    """The Python of the cluster's machines has neither Ottla nor the module that the archive has."""
    bare_python(tmp_path / "packed", only_in_the_archive='WORD = "shipped"\n')
    archive = packed(tmp_path / "packed", tmp_path / "environment.tar.gz")
    with standalone_cluster(tmp_path / "cluster", "/nowhere/python3") as master:
        site = Site(
            server, tmp_path / "site", "-archive", archive=True,
            words=("--master", master, "--archive", str(archive)), submit=spark_submit(master),
        )  # fmt: skip
        pythons = through_both(site)
        assert pythons
        assert all("environment" in python and "with" not in python for python in pythons), pythons


def test_spark_connect_whose_server_has_no_ottla(server, tmp_path):
    bare = bare_python(tmp_path / "bare")
    settings = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    with connect_server(tmp_path / "connect", str(bare), ["--master", "local[2]", *settings]) as remote:
        site = Site(server, tmp_path / "site", "-connect", words=("--remote", remote))
        submit = (str(BIN / "spark-submit"), "--remote", remote, program.__file__)
        assert through_both(site, replace(site, words=(), submit=submit)) == {str(tmp_path / "bare")}


def test_spark_connect_with_an_archive(server, tmp_path):
    bare = bare_python(tmp_path / "bare")
    bare_python(tmp_path / "packed", only_in_the_archive='WORD = "shipped"\n')
    archive = packed(tmp_path / "packed", tmp_path / "environment.tar.gz")
    settings = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    words = ["--master", "local-cluster[2,1,900]", *settings]
    with connect_server(tmp_path / "connect", str(bare), words) as remote:
        site = Site(
            server, tmp_path / "site", "-connect", archive=True, words=("--remote", remote, "--archive", str(archive))
        )
        send(server, [order(n) for n in ALL])
        site.submitted()
        pythons = site.check(ALL)
        assert all("environment" in python and "with" not in python for python in pythons), pythons
