"""`python -m bench`: measure Ottla and Apache Kafka in one run, write the results, and say what is met."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tests.support.kafka_jars import Unavailable, fetch

from bench import machine, report
from bench.bed import Bed, make_folder
from bench.measure import ROLES, SUBJECT, YARDSTICK
from bench.plan import FULL, QUICK, Sizes
from bench.run import LOADS, run
from bench.servers import KINDS

_HERE = Path(__file__).resolve().parent


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and one round: a check, not a measurement")
    parser.add_argument("--rows", default=",".join(LOADS), help="loads to run, by comma (default: %(default)s)")
    parser.add_argument("--only", metavar="TEXT", help="of those, only rows whose label contains TEXT")
    parser.add_argument("--rounds", type=int, help="rounds of each row (default 3)")
    parser.add_argument("--bytes", type=int, help="payload bytes of one produce run (1 KB rows)")
    parser.add_argument("--consume-bytes", type=int, help="payload bytes of the topic that is read")
    parser.add_argument("--seconds", type=float, help="seconds of one run of raw frames")
    parser.add_argument("--partitions", help="points of the growth in partitions, by comma (multiples of ten)")
    parser.add_argument("--connections", help="points of the growth in connections, by comma")
    parser.add_argument(
        "--subject", choices=sorted(KINDS), default="ottla", help="`kafka` shows the noise of the method"
    )
    parser.add_argument("--yardstick", choices=sorted(KINDS), default="kafka")
    parser.add_argument("--dir", type=Path, help="where the data directories are made (default: the temporary folder)")
    parser.add_argument("--results", type=Path, default=_HERE / "results", help="folder of the result files")
    parser.add_argument(
        "--docs", action=argparse.BooleanOptionalAction, help="rewrite docs/benchmarks.md and its plots"
    )
    parser.add_argument(
        "--from", dest="stored", nargs="+", type=Path, metavar="FILE", help="measure nothing, report these"
    )
    parser.add_argument(
        "--floor", type=Path, metavar="FILE", help="with --from: a result of --subject writing, as one more column"
    )
    return parser


def _sizes(arguments: argparse.Namespace) -> Sizes:
    sizes = QUICK if arguments.quick else FULL
    points = {name: getattr(arguments, name) for name in ("partitions", "connections") if getattr(arguments, name)}
    given = {
        "rounds": arguments.rounds,
        "produce_bytes": arguments.bytes,
        "consume_bytes": arguments.consume_bytes,
        "seconds": arguments.seconds,
        **{name: tuple(int(point) for point in text.split(",")) for name, text in points.items()},
    }
    if any(point % 10 for point in given.get("partitions") or ()):
        raise SystemExit("bench: the points of --partitions must be multiples of ten")
    return replace(sizes, **{name: value for name, value in given.items() if value is not None})


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    kinds = {SUBJECT: KINDS[arguments.subject], YARDSTICK: KINDS[arguments.yardstick]}
    sizes, loads = _sizes(arguments), [name.strip() for name in arguments.rows.split(",")]
    bed = Bed(kinds, sizes, make_folder(arguments.dir))
    began, load_before = time.time(), machine.load_average()
    try:
        table = run(bed, loads, arguments.only)
        versions = {role: kinds[role](bed.folder).version() for role in ROLES}
    finally:
        bed.close()
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "minutes": round((time.time() - began) / 60, 1),
        "quick": arguments.quick,
        "machine": {**machine.facts(), "load_at_start": load_before, "load_at_end": machine.load_average()},
        "servers": {role: {"name": kinds[role].name, "version": versions[role]} for role in ROLES},
        "sizes": sizes.to_json(),
        "rows": [row.to_json() for row in table.rows],
    }


def _interrupted(*_: object) -> NoReturn:
    # SIGTERM must unwind like Ctrl-C does, or the servers and their data would stay behind.
    raise KeyboardInterrupt


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    unknown = {name.strip() for name in arguments.rows.split(",")} - set(LOADS)
    if unknown:
        parser.error(f"no such rows: {', '.join(sorted(unknown))} (there are: {', '.join(LOADS)})")
    if arguments.stored:
        result = report.merge([json.loads(path.read_text()) for path in arguments.stored])
        if arguments.floor:
            result = report.with_floor(result, json.loads(arguments.floor.read_text()))
    else:
        signal.signal(signal.SIGTERM, _interrupted)
        machine.raise_open_files()
        try:
            fetch()
            result = _measure(arguments)
        except Unavailable as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("bench: interrupted; servers ended, data removed, nothing written", file=sys.stderr)
            return 130
        print(f"wrote {report.write_json(result, arguments.results)}", file=sys.stderr)
    # A quick, partial or self-against-self run must not replace the published table unless it is asked for.
    whole = not (arguments.quick or arguments.only or set(LOADS) - set(arguments.rows.split(",")))
    if (
        arguments.docs
        if arguments.docs is not None
        else bool(arguments.stored) or (whole and arguments.subject == "ottla")
    ):
        report.write_docs(result, _HERE.parent / "docs")
    print(report.summary(result))
    return 1 if report.failed(result) and not arguments.stored else 0


if __name__ == "__main__":
    sys.exit(main())
