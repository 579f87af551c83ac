"""Variants of meta.properties: Apache Kafka and Ottla start on the same ones, but for those that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.ottla_server import OttlaServer
from tests.metadata.meta_variants import VARIANTS, write
from tests.support.apache_kafka import CLUSTER_ID, ApacheKafka
from tests.support.kafka_tools import StorageTool, run_tool


def starts(kind: type[ApacheKafka], directory: Path, name: str) -> bool:
    directories = directory / "a", directory / "b"
    server = kind(directory, properties={"log.dirs": ",".join(map(str, directories))})
    config = directory / "server.properties"
    directory.mkdir()
    config.write_text("".join(f"{key}={value}\n" for key, value in server.properties.items()))
    done = run_tool(StorageTool, "format", "-t", CLUSTER_ID, "-c", str(config))
    assert done.returncode == 0, done.stdout + done.stderr
    write(directories, VARIANTS[name])
    try:
        server.start()
    except RuntimeError as error:
        if "ended while starting" not in str(error):
            raise
        return False
    finally:
        server.kill()
    return True


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", VARIANTS)
def test_both_start_or_both_refuse(tmp_path: Path, name: str) -> None:
    found = {kind.__name__: starts(kind, tmp_path / kind.__name__, name) for kind in (ApacheKafka, OttlaServer)}
    variant = VARIANTS[name]
    expected = {"ApacheKafka": variant.starts, "OttlaServer": variant.starts and not variant.refused_here}
    assert found == expected
