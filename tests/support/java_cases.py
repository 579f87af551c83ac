"""Random cases answered by a class of Apache Kafka's own: a small Java program reads a line each and prints a line each."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.support.class_archives import kafka_options
from tests.support.kafka_jars import classpath, java


def java_answers(source: str, main_class: str, lines: Iterable[str], folder: Path) -> list[str]:
    """What `main_class` of the file `source` beside this one prints; it is compiled into `folder`."""
    path = str(Path(__file__).with_name(source))
    subprocess.run(["javac", "-cp", classpath(), "-d", str(folder), path], check=True, capture_output=True, timeout=60)
    done = subprocess.run(
        [java(), "-Xmx128m", *kafka_options(), "-cp", f"{classpath()}:{folder}", main_class],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()
