"""`python -m tools.demo`: what `make demo` runs. With `--prepare` it makes Spark's class archive, which set-up needs once.

On the archive a JVM maps its classes instead of parsing the jars, so Spark starts with half of the CPU time. Without the
archive the demo runs in the ordinary way.
"""

from __future__ import annotations

import os
import sys

from tests.support.class_archives import make_spark_archive, spark_archive, spark_environment
from tests.support.kafka_jars import Unavailable

from ottla.demo.__main__ import main as demo


def prepare() -> None:
    try:
        make_spark_archive()
    except Unavailable as reason:
        print(f"Spark's class archive is not made: {reason}; the demo runs without the archive")


def main() -> int:
    if sys.argv[1:] == ["--prepare"]:
        prepare()
        return 0
    try:
        if spark_archive().exists():
            os.environ.update(spark_environment())
    except Unavailable:
        pass  # the demo brings a Java of its own
    return demo()


if __name__ == "__main__":
    sys.exit(main())
