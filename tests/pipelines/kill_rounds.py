"""One run of kill rounds: inputs, batches, victims and verdicts. What is hit is drawn; rounds.py has the command."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.pipelines.conftest import Topics
from tests.pipelines.drivers import Driver, send_signal
from tests.pipelines.round_facts import Progress
from tests.pipelines.round_outputs import CUSTOMERS, Feed, Outputs, verdict
from tests.support.apache_kafka import ApacheKafka
from tests.support.postgresql import PostgreSql
from tests.support.s3 import S3

KINDS = "driver executor worker planner broker database gateway pause recreated-topic second-driver overtaken-driver"
DECK = (
    *("driver",) * 2, *("executor",) * 3, *("worker",) * 3, *("planner",) * 2, *("broker",) * 2, *("database",) * 2,
    *("pause",) * 4, "recreated topic",
)  # fmt: skip
"""What the rounds of everything hit, in an order that the seed draws."""
RARE = ("second driver", "overtaken driver")
AIMS = ("", "staged", "staged", "committed")
"""Where a victim is hit: anywhere, or when a batch is in this phase. QUERY:PHASE means the batch of this query."""
ROUND_S = 150.0
QUERIES = 9
BUSY = "failed to connect back"
"""Spark's words for a Python process that needed more than ten seconds to start: about the machine, and not about a batch."""


class Anomaly(Exception):
    """What must not happen."""


class Rounds:
    def __init__(
        self, server: ApacheKafka, folder: Path, outputs: Outputs, draw: random.Random, driver: Callable[[str], Driver],
        *, progress: Progress, database: PostgreSql | None = None, store: S3 | None = None,
        kinds: Sequence[str] = (), aims: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._server, self._folder, self._outputs, self._draw = server, folder, outputs, draw
        self._new_driver, self._progress, self._database, self._store = driver, progress, database, store
        self._kinds = [kind.replace("-", " ") for kind in kinds]
        self._aims = tuple(aims) or (AIMS if outputs.catalog else ("",))
        self._topics = Topics(server)
        self.feed = Feed(server, draw)
        self.driver = driver("driver.log")
        self._drivers = [self.driver]
        self._deck: list[str] = []
        self.number = 0
        self.victims, self.hit, self.events = Counter[str](), Counter[str](), Counter[str]()
        self.seconds = Counter[str]()
        """What took the time of the run: the first batches, the rounds of each victim, the verdicts."""

    @property
    def everything(self) -> bool:
        return bool(self._outputs.catalog)

    def begin(self, rows: int) -> None:
        begun = time.monotonic()
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
        self._took("begin", begun)

    def round(self, rows: int) -> None:
        """New inputs, some batches, and one victim in the middle of the next."""
        begun = time.monotonic()
        self.number += 1
        self._send(rows)
        self._await_batches(self._draw.choice((1, 1, 2)))
        victim = self._victim()
        in_flight = self._moment()
        self.victims[victim if self._hit(victim) else f"nothing: {victim} was not there"] += 1
        self.hit.update(f"{query}: {phase}" for query, phase in in_flight.items())
        phases = ", ".join(f"{query} {phase}" for query, phase in in_flight.items()) or "nothing"
        self._took(victim, begun)
        self._say(f"round {self.number}: {victim}, in flight: {phases}; {self._progress.done()} batches")

    def _took(self, what: str, begun: float) -> None:
        self.seconds[what] += round(time.monotonic() - begun)

    def _moment(self) -> dict[str, str]:
        """The batches in flight when one of them is where the draw wants it: mostly between its first staged rows and the
        end of its commit."""
        query, _, phase = self._draw.choice(self._aims).rpartition(":")
        time.sleep(self._draw.random())
        deadline = time.monotonic() + (ROUND_S if query else 10)
        while True:
            in_flight = self._progress.in_flight(query)
            if not phase or phase in in_flight.values() or time.monotonic() > deadline:
                return in_flight
            time.sleep(0.05)

    def settle(self, seconds: float) -> None:
        """Waits until every output has everything; Anomaly if that never happens, or if an output has too much."""
        begun = time.monotonic()
        deadline = begun + seconds
        while True:
            if not self.driver.runs:
                self._again()
            result = verdict(self._server, self._outputs, self.feed)
            if result.surplus or (result.lack and time.monotonic() > deadline):
                raise Anomaly(str(result))
            if not result.lack:
                self._took("verdict", begun)
                self._say(f"verdict after {self.number} rounds: {result} ({len(self.feed.rows)} rows)")
                return
            time.sleep(3)

    def hits(self) -> int:
        """Rounds that hit something."""
        return sum(count for victim, count in self.victims.items() if not victim.startswith("nothing"))

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
        """The driver gave up by itself. It may: five failures of a query in a row. Its words are in the results. It may not die
        of a signal that nobody sent, such as the SIGABRT of an assertion in a library."""
        reason = self.driver.error() or self.driver.last_words(400)
        self._say(f"the driver ended: {reason}")
        if self.driver.process.returncode < 0:
            raise Anomaly(
                f"the driver died of signal {-self.driver.process.returncode}: {self.driver.last_words(1500)}"
            )
        self.events[f"driver ended: {last_line(reason)}"] += 1
        self.driver.kill()
        self.driver.start()

    def _victim(self) -> str:
        if not self.everything:
            return self._draw.choice(("driver", "worker", "broker")) if self.number > 1 else "driver"
        if not self._deck:
            self._deck = list(self._kinds) or [
                *DECK,
                self._draw.choice(RARE),
                *(("gateway",) * 2 if self._store else ()),
            ]
            self._draw.shuffle(self._deck)
        return self._deck.pop()

    def _hit(self, victim: str) -> bool:
        return bool(getattr(self, f"_hit_{victim.replace(' ', '_')}")())

    def _hit_driver(self) -> bool:
        self.driver.kill_driver()
        self.driver.start()
        return True

    def _hit_executor(self) -> bool:
        return self._kill_one(self.driver.executors())

    def _hit_worker(self) -> bool:
        """A Python process of a task; on local[2] all are below the driver's JVM."""
        return self._kill_one(self.driver.python_workers(*self.driver.executors()))

    def _hit_planner(self) -> bool:
        """A Python process of the driver's JVM: it plans sources, checks outputs, or commits."""
        return self._kill_one(self.driver.python_workers(*self.driver.jvm()))

    def _kill_one(self, pids: list[int]) -> bool:
        if pids:
            send_signal([self._draw.choice(sorted(pids))], signal.SIGKILL)
        return bool(pids)

    def _hit_broker(self) -> bool:
        self._server.kill()
        time.sleep(self._draw.random() * 2)
        self._server.start()
        return True

    def _hit_database(self) -> bool:
        self._database.kill()
        time.sleep(self._draw.random() * 2)
        self._database.start()
        return True

    def _hit_gateway(self) -> bool:
        self._store.kill()
        time.sleep(self._draw.random() * 2)
        self._store.start()
        return True

    def _hit_pause(self) -> bool:
        """An executor stands still, with its Python processes or without, and goes on after its tasks have run elsewhere."""
        executors = self.driver.executors()
        if not executors:
            return False
        executor = [self._draw.choice(sorted(executors))]
        workers = self.driver.python_workers(*executor)
        paused = self._draw.choice((executor, workers, [*executor, *workers]))
        send_signal(paused, signal.SIGSTOP)
        time.sleep(6 + 8 * self._draw.random())
        send_signal(paused, signal.SIGCONT)
        return True

    def _hit_recreated_topic(self) -> bool:
        """All of the old topic was read. The new one has the same name and a different id, and is read from its beginning."""
        deadline = time.monotonic() + ROUND_S
        while any("created again" in problem for problem in verdict(self._server, self._outputs, self.feed).lack):
            if time.monotonic() > deadline:
                return False
            if not self.driver.runs:
                self._again()
            time.sleep(1)
        self._topics.delete("extra")
        self._topics.make("extra", 2)
        self.feed.send_extra(3)
        return True

    def _hit_second_driver(self) -> bool:
        """It must be refused, in one sentence, while the first one goes on."""
        self._await_lock(self.driver)
        second = self._new_driver(f"second-{self.number}.log")
        self._drivers.append(second)
        second.start("--master", "local[1]")
        self._await("a second driver ends", lambda: not second.runs, 2)
        if "is in use by" not in second.last_words():
            raise Anomaly(f"a second driver was not refused: {second.last_words()}")
        second.remove()
        return True

    def _hit_overtaken_driver(self) -> bool:
        """The first driver stands still, as on a machine that swaps. A second one, which takes it for a driver on another
        machine, hears no heartbeat and takes over. The first one goes on, at once or when its batch was written by the
        second: it must end by itself."""
        self._await_lock(self.driver)
        first, second = self.driver, self._new_driver(f"driver-{self.number}.log")
        self._drivers.append(second)
        standing = (
            first.processes() if self._draw.random() < 0.5 else first.processes("-m\0ottla.cli.main", "SparkSubmit")
        )
        send_signal(standing, signal.SIGSTOP)
        staged = {query for query, phase in self._progress.in_flight().items() if phase == "staged"}
        holder = self._progress.holder()
        self._progress.write_holder(holder | {"host": "a-different-machine"})
        second.start()
        self.driver = second
        try:
            self._await("a second driver takes over", lambda: self._progress.holder().get("pid") != holder["pid"], 2)
            if staged and self._draw.random() < 0.6:
                self._await("", lambda: not staged <= self._still_staged(), 1)
            else:
                time.sleep(3 * self._draw.random())
        finally:
            send_signal(standing, signal.SIGCONT)
        self._await("a driver that was overtaken ends", lambda: not first.runs, 1)
        self.events[f"overtaken driver: {last_line(first.error() or first.last_words(300))}"] += 1
        first.remove()
        return True

    def _still_staged(self) -> set[str]:
        return {query for query, phase in self._progress.in_flight().items() if phase in {"staged", "planned"}}

    def _await(self, what: str, condition: Callable[[], bool], rounds: float) -> None:
        """Anomaly if it does not come true; without words the wait just ends."""
        deadline = time.monotonic() + rounds * ROUND_S
        while not condition():
            if time.monotonic() > deadline:
                if what:
                    raise Anomaly(
                        f"within {rounds * ROUND_S:.0f} s it did not happen that {what}: {self.driver.last_words(500)}"
                    )
                return
            time.sleep(0.1)

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
        while time.monotonic() < deadline:
            if not self.driver.runs and BUSY not in (self.driver.error() or self.driver.last_words()):
                break
            if not self.driver.runs:
                self._again()
            time.sleep(0.5)
        words = self.driver.error() or self.driver.last_words()
        if self.driver.runs or "created again" not in words:
            raise Anomaly(f"a topic was created again, and the driver says: {words}")
        self.events[f"topic created again: {last_line(words)}"] += 1

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:160] if text.strip() else "?"
