"""Rounds of kill -9 over `copy_pipeline.py`: what is hit is drawn from a seed, and every input must be once in every output.

    python -m tests.pipelines.rounds --rounds 50 --seed 50 --minutes 15 --add-to rounds.json [--s3]

runs on `local-cluster[2,1,900]` with speculation, a real PostgreSQL and, with --s3, checkpoints and outputs in a real S3
server. The results of all runs add up in the file. A run ends by itself: no round begins after --minutes, and the last
verdict waits at most --settle minutes. `seconds_of` in the results has what the time went to: on a quiet machine of two cores a
round takes 12 s, and a round behind a killed driver a minute (2026-11-19). `round_mutations.py` plants bugs that the rounds find.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.interop.ottla_server import OttlaServer
from tests.pipelines.conftest import PROPERTIES
from tests.pipelines.drivers import Driver, is_cluster, remove_work_folders, small_jvm
from tests.pipelines.kill_rounds import KINDS, Rounds
from tests.pipelines.round_facts import Progress, add_to, speculation
from tests.pipelines.round_outputs import Outputs, in_environment, s3_keys
from tests.support.apache_kafka import ApacheKafka
from tests.support.class_archives import make_spark_archive
from tests.support.kafka_jars import Unavailable, cache_dir, fetch_artifacts
from tests.support.postgresql import postgresql_server
from tests.support.s3 import S3, s3_server

CLUSTER = "local-cluster[2,1,900]"


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
def rounds_of_everything(
    folder: Path, seed: int, master: str, conf: list[str], *, s3: bool, kinds: Sequence[str] = (),
    aims: Sequence[str] = (),
) -> Iterator[Rounds]:  # fmt: skip
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

        work = Rounds(
            server,
            folder,
            outputs,
            draw,
            driver,
            progress=progress,
            database=database,
            store=store,
            kinds=kinds,
            aims=aims,
        )
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
            "spark.speculation.multiplier=1.2",
            "spark.speculation.interval=200ms",
            "spark.speculation.minTaskRuntime=500ms",
            "spark.speculation.task.duration.threshold=4s",
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
    with rounds_of_everything(
        folder, options.seed, options.master, options.conf, s3=options.s3, kinds=options.hit, aims=options.aim
    ) as work:
        try:
            work.begin(options.rows)
            while work.number < options.rounds and time.monotonic() < last:
                work.round(options.rows)
                if work.number % options.verdict_every == 0:
                    work.settle(options.settle * 60)
            work.settle(options.settle * 60)
            if options.recreate:
                work.topic_created_again_is_an_error(options.settle * 60)
            result = "every input once in every output"
        except Exception as problem:  # noqa: BLE001 - whatever it was: the results of the run are kept
            traceback.print_exc()
            result = f"{type(problem).__name__}: {problem}"
        finally:
            work.end()
    remove_work_folders(path.name.removesuffix(".inprogress") for path in (folder / "events").glob("*"))
    return {
        "seed": options.seed, "master": options.master, "s3": options.s3, "rounds": work.hits(),
        "rows": len(work.feed.rows), "batches": work._progress.done(), "seconds": round(time.monotonic() - begun),
        "seconds_of": work.seconds, "victims": work.victims, "hit": work.hit, "events": work.events, "speculation": speculation(folder / "events"),
        "verdict": result,
    }  # fmt: skip


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument(
        "--hit", action="append", default=[], choices=KINDS.split(), help="Hit only these; may be repeated."
    )
    parser.add_argument(
        "--aim", action="append", default=[], metavar="QUERY:PHASE",
        help="Hit when the batch of this query is planned, staged or committed; may be repeated.",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, default=60, help="Rows that a round sends (default: 60).")
    parser.add_argument("--master", default=CLUSTER)
    parser.add_argument("--conf", action="append", default=[], help="NAME=VALUE of Spark; may be repeated.")
    parser.add_argument("--s3", action="store_true", help="Checkpoints and outputs in a real S3 server.")
    parser.add_argument("--minutes", type=float, default=12, help="No round begins later (default: 12).")
    parser.add_argument("--settle", type=float, default=6, help="Most minutes for a verdict (default: 6).")
    parser.add_argument("--verdict-every", type=int, default=16, help="Rounds between verdicts (default: 16).")
    parser.add_argument("--recreate", action="store_true", help="End with a topic that is created again: an error.")
    parser.add_argument("--add-to", type=Path, help="JSON file that collects the results of all runs.")
    parser.add_argument("--keep", type=Path, help="Folder for logs and outputs, which stay there.")
    return parser.parse_args(words)


def main(options: argparse.Namespace) -> int:
    with suppress(
        Unavailable, subprocess.TimeoutExpired
    ):  # without the archive of its classes, a JVM needs twice the time to start
        make_spark_archive()
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
