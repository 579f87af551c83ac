"""kcat, librdkafka's command-line client."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.debian import debian_command
from tests.support.kafka_jars import Unavailable


def kcat() -> str:
    """The kcat command; Unavailable says why there is none."""
    return debian_command("kcat", "kcat")


def run_kcat(
    *args: str,
    input: str | None = None,  # noqa: A002 - as subprocess.run
    timeout: float = 30,
    library: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """`library`: the folder of a librdkafka.so.1 that takes the place of the system's."""
    own = {} if library is None else {"LD_LIBRARY_PATH": str(library)}
    return subprocess.run(
        [kcat(), *args],
        input=input or "", env=os.environ | own, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def library_of_confluent_kafka(folder: Path) -> Path:
    """The folder, with the librdkafka that the wheel of confluent-kafka brings; Unavailable if the wheel brings none."""
    import confluent_kafka

    wheel = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    libraries = sorted(wheel.glob("librdkafka-*.so.1"))
    if not libraries:
        raise Unavailable(f"{wheel} has no librdkafka")
    (folder / "librdkafka.so.1").symlink_to(libraries[0])
    return folder
