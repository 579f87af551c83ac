"""Rounds of kill -9 over `copy_pipeline.py`: what is hit is drawn from a seed, and every input must be once in every output.

    python -m tests.pipelines.rounds --rounds 50 --seed 50 --minutes 15 --add-to rounds.json [--s3]

runs on `local-cluster[2,1,900]` with speculation, a real PostgreSQL and, with --s3, checkpoints and outputs in a real S3
server. The results of all runs add up in the file. A run ends by itself: no round begins after --minutes, and the last
verdict waits at most --settle minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.interop.ottla_server import OttlaServer
from tests.pipelines.conftest import PROPERTIES, Topics
from tests.pipelines.drivers import Driver, is_cluster, remove_work_folders, send_signal, small_jvm
from tests.pipelines.round_facts import Progress, add_to, speculation
from tests.pipelines.round_outputs import CUSTOMERS, Feed, Outputs, in_environment, s3_keys, verdict
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_jars import cache_dir, fetch_artifacts
from tests.support.postgresql import PostgreSql, postgresql_server
from tests.support.s3 import S3, s3_server

CLUSTER = "local-cluster[2,1,900]"
DECK = (
    *("driver",) * 2, *("executor",) * 3, *("worker",) * 3, *("planner",) * 2, *("broker",) * 2, *("database",) * 2,
    *("pause",) * 4, "recreated topic",
)  # fmt: skip
"""What the rounds of everything hit, in an order that the seed draws."""
RARE = ("second driver", "overtaken driver")
ROUND_S = 150.0
QUERIES = 9


class Anomaly(Exception):
    """What must not happen."""


class Rounds:
    def __init__(
        self, server: ApacheKafka, folder: Path, outputs: Outputs, draw: random.Random, driver: Callable[[str], Driver],
        *, progress: Progress, database: PostgreSql | None = None, store: S3 | None = None,
    ) -> None:  # fmt: skip
        self._server, self._folder, self._outputs, self._draw = server, folder, outputs, draw
        self._new_driver, self._progress, self._database, self._store = driver, progress, database, store
        self._topics = Topics(server)
        self.feed = Feed(server, draw)
        self.driver = driver("driver.log")
        self._drivers = [self.driver]
        self._deck: list[str] = []
        self.number = 0
        self.victims, self.hit, self.events = Counter[str](), Counter[str](), Counter[str]()

    @property
    def everything(self) -> bool:
        return bool(self._outputs.catalog)

    def begin(self, rows: int) -> None:
        for name in (
            "in",
            "out",
            "counts",
            *(("customers", "levels", "extra", "extra-out") if self.everything else ()),
        ):
            self._topics.make(name, 2)
        if self.everything:
            self.feed.send_customers(CUSTOMERS)
            self.feed.send_levels(CUSTOMERS[:4])
            self.feed.send_extra(10)
        self.feed.send_rows(rows)
        self.driver.start()
        deadline = time.monotonic() + 4 * ROUND_S
        while self.everything and self._progress.done() < QUERIES and time.monotonic() < deadline and self.driver.runs:
            time.sleep(0.5)

    def round(self, rows: int) -> None:
        """New inputs, some batches, and one victim in the middle of the next."""
        self.number += 1
        self._send(rows)
        self._await_batches(self._draw.randrange(1, 4))
        victim = self._victim()
        in_flight = self._moment()
        self._hit(victim)
        self.victims[victim] += 1
        self.hit.update(f"{query}: {phase}" for query, phase in in_flight.items())
        phases = ", ".join(f"{query} {phase}" for query, phase in in_flight.items()) or "nothing"
        self._say(f"round {self.number}: {victim}, in flight: {phases}; {self._progress.done()} batches")

    def _moment(self) -> dict[str, str]:
        """The batches in flight when one of them is where the draw wants it: mostly between its first staged rows and the
        end of its commit."""
        aim = self._draw.choice(("", "staged", "staged", "committed")) if self.everything else ""
        time.sleep(self._draw.random())
        deadline = time.monotonic() + 10
        while True:
            in_flight = self._progress.in_flight()
            if not aim or aim in in_flight.values() or time.monotonic() > deadline:
                return in_flight
            time.sleep(0.05)

    def settle(self, seconds: float) -> None:
        """Waits until every output has everything; Anomaly if that never happens, or if an output has too much."""
        deadline = time.monotonic() + seconds
        while True:
            if not self.driver.runs:
                self._again()
            result = verdict(self._server, self._outputs, self.feed)
            if result.surplus or (result.lack and time.monotonic() > deadline):
                raise Anomaly(str(result))
            if not result.lack:
                self._say(f"verdict after {self.number} rounds: {result} ({len(self.feed.rows)} rows)")
                return
            time.sleep(3)

    def finish(self) -> None:
        """Another driver takes all that is there; then every input must be once in every output."""
        self.driver.kill()
        self.driver.finish(600)
        result = verdict(self._server, self._outputs, self.feed)
        assert not result.surplus + result.lack, result

    def end(self) -> None:
        for driver in self._drivers:
            driver.remove()

    def _send(self, rows: int) -> None:
        self.feed.send_rows(rows, bad=self._draw.randrange(4) if self.everything else 0)
        if self.everything:
            self.feed.send_customers(tuple(self._draw.sample(CUSTOMERS, 2)))
            self.feed.send_levels(tuple(self._draw.sample(CUSTOMERS, 2)))
            self.feed.send_extra(3)

    def _await_batches(self, count: int) -> None:
        before, deadline = self._progress.done(), time.monotonic() + ROUND_S
        while self._progress.done() < before + count and time.monotonic() < deadline:
            if not self.driver.runs:
                self._again()
            time.sleep(0.1)
        if self._progress.done() == before:
            self.events["no batch within the time of a round"] += 1

    def _again(self) -> None:
        """The driver gave up by itself. It may: five failures of a query in a row. Its words are in the results."""
        reason = self.driver.error() or self.driver.last_words(400)
        self._say(f"the driver ended: {reason}")
        self.events[f"driver ended: {reason.splitlines()[-1][:200] if reason else '?'}"] += 1
        self.driver.kill()
        self.driver.start()

    def _victim(self) -> str:
        if not self.everything:
            return self._draw.choice(("driver", "worker", "broker")) if self.number > 1 else "driver"
        if not self._deck:
            self._deck = [*DECK, self._draw.choice(RARE), *(("gateway",) * 2 if self._store else ())]
            self._draw.shuffle(self._deck)
        return self._deck.pop()

    def _hit(self, victim: str) -> None:
        getattr(self, f"_hit_{victim.replace(' ', '_')}")()

    def _hit_driver(self) -> None:
        self.driver.kill_driver()
        self.driver.start()

    def _hit_executor(self) -> None:
        self._kill_one(self.driver.executors())

    def _hit_worker(self) -> None:
        """A Python process of a task; on local[2] all are below the driver's JVM."""
        self._kill_one(self.driver.python_workers(*self.driver.executors()))

    def _hit_planner(self) -> None:
        """A Python process of the driver's JVM: it plans sources, checks outputs, or commits."""
        self._kill_one(self.driver.python_workers(*self.driver.jvm()))

    def _kill_one(self, pids: list[int]) -> None:
        if pids:
            send_signal([self._draw.choice(sorted(pids))], signal.SIGKILL)
        else:
            self.events["a victim was not there"] += 1

    def _hit_broker(self) -> None:
        self._server.kill()
        time.sleep(self._draw.random() * 2)
        self._server.start()

    def _hit_database(self) -> None:
        self._database.kill()
        time.sleep(self._draw.random() * 2)
        self._database.start()

    def _hit_gateway(self) -> None:
        self._store.kill()
        time.sleep(self._draw.random() * 2)
        self._store.start()

    def _hit_pause(self) -> None:
        """An executor stands still, with its Python processes or without, and goes on after its tasks have run elsewhere."""
        executors = self.driver.executors()
        if not executors:
            self.events["a victim was not there"] += 1
            return
        executor = [self._draw.choice(sorted(executors))]
        workers = self.driver.python_workers(*executor)
        paused = self._draw.choice((executor, workers, [*executor, *workers]))
        send_signal(paused, signal.SIGSTOP)
        time.sleep(6 + 8 * self._draw.random())
        send_signal(paused, signal.SIGCONT)

    def _hit_recreated_topic(self) -> None:
        """All of the old topic was read. The new one has the same name and a different id, and is read from its beginning."""
        deadline = time.monotonic() + ROUND_S
        while any("created again" in problem for problem in verdict(self._server, self._outputs, self.feed).lack):
            if time.monotonic() > deadline:
                self.events["topic was not created again: it was not read in time"] += 1
                return
            if not self.driver.runs:
                self._again()
            time.sleep(1)
        self._topics.delete("extra")
        self._topics.make("extra", 2)
        self.feed.send_extra(3)

    def _hit_second_driver(self) -> None:
        """It must be refused, in one sentence, while the first one goes on."""
        self._await_lock(self.driver)
        second = self._new_driver("second.log")
        self._drivers.append(second)
        second.start("--master", "local[1]")
        deadline = time.monotonic() + 2 * ROUND_S
        while second.runs and time.monotonic() < deadline:
            time.sleep(0.2)
        if second.runs or "is in use by" not in second.last_words():
            raise Anomaly(f"a second driver was not refused: {second.last_words()}")
        second.remove()

    def _hit_overtaken_driver(self) -> None:
        """The first driver stands still, as a machine that swaps or a network that is cut. A second one, on what it takes
        for another machine, hears no heartbeat and takes over. The first one goes on: it must end by itself."""
        self._await_lock(self.driver)
        first, second = self.driver, self._new_driver(f"driver-{self.number}.log")
        self._drivers.append(second)
        standing = (
            first.processes() if self._draw.random() < 0.5 else first.processes("-m\0ottla.cli.main", "SparkSubmit")
        )
        send_signal(standing, signal.SIGSTOP)
        holder = self._progress.holder()
        first_pid = holder["pid"]
        self._progress.write_holder(holder | {"host": "a-different-machine"})
        second.start()
        self.driver = second
        deadline = time.monotonic() + 2 * ROUND_S
        while self._progress.holder().get("pid") == first_pid and second.runs and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(3 * self._draw.random())
        send_signal(standing, signal.SIGCONT)
        if self._progress.holder().get("pid") == first_pid:
            raise Anomaly(f"a second driver did not take over from one that stands still: {second.last_words()}")
        deadline = time.monotonic() + ROUND_S
        while first.runs and time.monotonic() < deadline:
            time.sleep(0.2)
        if first.runs:
            raise Anomaly("a driver that was overtaken did not end")
        self.events[f"overtaken driver: {(first.error() or first.last_words(300)).splitlines()[-1][:160]}"] += 1
        first.remove()

    def _await_lock(self, driver: Driver) -> None:
        deadline = time.monotonic() + ROUND_S
        while time.monotonic() < deadline and not (
            driver.runs and self._progress.holder().get("pid") == driver.process.pid
        ):
            if not driver.runs:
                self._again()
            time.sleep(0.2)

    def topic_created_again_is_an_error(self, seconds: float) -> None:
        """The last act: the topic `in` has no option, so the driver must end with a sentence about it."""
        self._topics.delete("in")
        self._topics.make("in", 2)
        deadline = time.monotonic() + seconds
        while self.driver.runs and time.monotonic() < deadline:
            time.sleep(0.5)
        words = self.driver.error() or self.driver.last_words()
        if self.driver.runs or "created again" not in words:
            raise Anomaly(f"a topic was created again, and the driver says: {words}")
        self.events[f"topic created again: {words.splitlines()[-1][:160]}"] += 1

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def rounds_of_copies(server: ApacheKafka, folder: Path, count: int, seed: int, rows: int) -> Counter[str]:
    """The small pipeline, on local disk and without a cluster."""
    outputs = Outputs.local(folder / "out")

    def driver(log: str) -> Driver:
        return Driver(server.bootstrap_servers, folder, outputs.variables(), log=log)

    work = Rounds(server, folder, outputs, random.Random(seed), driver, progress=Progress(folder / "checkpoints", {}))
    try:
        work.begin(rows)
        for _ in range(count):
            work.round(rows)
        work.finish()
    finally:
        work.end()
    return work.victims


@contextmanager
def rounds_of_everything(folder: Path, seed: int, master: str, conf: list[str], *, s3: bool) -> Iterator[Rounds]:
    draw = random.Random(seed)
    with ExitStack() as stack:
        store = stack.enter_context(s3_server(folder / "s3")) if s3 else None
        database = stack.enter_context(postgresql_server())
        stack.enter_context(in_environment(s3_keys))
        outputs = Outputs.everything(folder / "out", database.address, store)
        root, checkpoints = folder / "out", None
        settings = [*spark_settings(folder, master), *conf]
        if store is not None:
            root, checkpoints = store.root / "rows", f"s3a://{store.bucket('checkpoints')}/all"
            settings += s3a_settings(store)
        progress = Progress(
            folder / "checkpoints" if store is None else store.root / "checkpoints" / "all",
            {"to-delta": root / "delta", "to-parquet": root / "parquet", "people": root / "people",
             "matched": root / "lake" / "lake" / "matched"},
            database.address,
        )  # fmt: skip
        server = OttlaServer(folder / "server", properties=PROPERTIES)
        server.start()
        stack.callback(server.stop)

        def driver(log: str) -> Driver:
            return Driver(
                server.bootstrap_servers,
                folder,
                outputs.variables(),
                master,
                settings,
                checkpoints=checkpoints,
                log=log,
            )

        work = Rounds(server, folder, outputs, draw, driver, progress=progress, database=database, store=store)
        stack.callback(work.end)
        yield work


def spark_settings(folder: Path, master: str) -> list[str]:
    (folder / "events").mkdir(parents=True)
    settings = [
        "spark.eventLog.enabled=true",
        f"spark.eventLog.dir=file://{folder}/events",
        "spark.eventLog.rolling.enabled=false",
        "spark.eventLog.compress=false",
        "spark.sql.codegen.wholeStage=false",
    ]
    if is_cluster(master):
        settings += [
            "spark.executor.memory=600m",
            f"spark.executor.extraJavaOptions={small_jvm()}",
            "spark.deploy.maxExecutorRetries=-1",
            "spark.speculation=true",
            "spark.speculation.quantile=0.5",
            "spark.speculation.multiplier=2",
            "spark.speculation.interval=200ms",
            "spark.speculation.minTaskRuntime=2s",
            "spark.speculation.task.duration.threshold=6s",
            "spark.task.maxFailures=6",
        ]
    return settings


def s3a_settings(store: S3) -> list[str]:
    jars = fetch_artifacts(
        "Hadoop's S3A", cache_dir().with_name("ottla-hadoop-aws-3.5.0"), ["org.apache.hadoop:hadoop-aws:3.5.0"]
    )
    return [
        f"spark.driver.extraClassPath={jars}/*",
        f"spark.executor.extraClassPath={jars}/*",
        f"spark.hadoop.fs.s3a.endpoint={store.endpoint}",
        f"spark.hadoop.fs.s3a.endpoint.region={s3_keys['AWS_REGION']}",
        "spark.hadoop.fs.s3a.path.style.access=true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled=false",
        f"spark.hadoop.fs.s3a.access.key={s3_keys['AWS_ACCESS_KEY_ID']}",
        f"spark.hadoop.fs.s3a.secret.key={s3_keys['AWS_SECRET_ACCESS_KEY']}",
        "spark.driver.memory=1g",
    ]


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Rounds until their number or the time is reached, with a verdict after every few, and the last acts."""
    begun = time.monotonic()
    last = begun + options.minutes * 60
    with rounds_of_everything(folder, options.seed, options.master, options.conf, s3=options.s3) as work:
        try:
            work.begin(options.rows)
            while work.number < options.rounds and time.monotonic() < last:
                work.round(options.rows)
                if work.number % options.verdict_every == 0:
                    work.settle(options.settle * 60)
            work.settle(options.settle * 60)
            if options.recreate:
                work.topic_created_again_is_an_error(300)
            result = "every input once in every output"
        except (Anomaly, AssertionError, OSError) as problem:
            result = f"{type(problem).__name__}: {problem}"
        finally:
            work.end()
    remove_work_folders(path.name.removesuffix(".inprogress") for path in (folder / "events").glob("*"))
    return {
        "seed": options.seed, "master": options.master, "s3": options.s3, "rounds": work.number,
        "rows": len(work.feed.rows), "batches": work._progress.done(), "seconds": round(time.monotonic() - begun),
        "victims": work.victims, "hit": work.hit, "events": work.events, "speculation": speculation(folder / "events"),
        "verdict": result,
    }  # fmt: skip


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--rows", type=int, default=60, help="Rows that a round sends (default: 60).")
    parser.add_argument("--master", default=CLUSTER)
    parser.add_argument("--conf", action="append", default=[], help="NAME=VALUE of Spark; may be repeated.")
    parser.add_argument("--s3", action="store_true", help="Checkpoints and outputs in a real S3 server.")
    parser.add_argument("--minutes", type=float, default=12, help="No round begins later (default: 12).")
    parser.add_argument("--settle", type=float, default=6, help="Most minutes for a verdict (default: 6).")
    parser.add_argument("--verdict-every", type=int, default=8, help="Rounds between verdicts (default: 8).")
    parser.add_argument("--recreate", action="store_true", help="End with a topic that is created again: an error.")
    parser.add_argument("--add-to", type=Path, help="JSON file that collects the results of all runs.")
    parser.add_argument("--keep", type=Path, help="Folder for logs and outputs, which stay there.")
    return parser.parse_args(words)


def main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="ottla-rounds-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = run(folder, options)
    print(json.dumps(result, indent=1))
    if options.add_to:
        print(json.dumps(add_to(options.add_to, result), indent=1))
    return 0 if result["verdict"] == "every input once in every output" else 1


if __name__ == "__main__":
    sys.exit(main(arguments(sys.argv[1:])))
