"""kill -9 of the driver, of Python workers and of the broker in the middle of it: every input once in every output.

`OTTLA_KILL_ROUNDS` sets how many rounds the soak test takes (50 when not given), on a real PostgreSQL and S3 server.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.interop.ottla_server import OttlaServer
from tests.pipelines.conftest import PROPERTIES
from tests.pipelines.rounds import Outputs, rounds, run_rounds
from tests.support.kafka_jars import Unavailable


@pytest.mark.timeout(900)
def test_the_driver_is_killed_in_the_middle(tmp_path):
    server = OttlaServer(tmp_path / "server", properties=PROPERTIES)
    server.start()
    try:
        rounds(server, tmp_path, Outputs.local(tmp_path / "out"), 1, seed=4711, rows=600)
    finally:
        server.stop()


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.timeout(7200)
def test_many_kills(tmp_path):
    try:
        victims = run_rounds(tmp_path, int(os.environ.get("OTTLA_KILL_ROUNDS", "50")), int(time.time()))
    except Unavailable as reason:
        pytest.skip(str(reason))
    print(f"killed: {dict(victims)}")
