"""kill -9 of the driver, of Python workers and of the broker in the middle of it: every input once in every output.

`OTTLA_KILL_ROUNDS` sets how many rounds the soak tests take (12 when not given): with a real PostgreSQL, on two executors
with speculation, on local disk and on a real S3 server.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.interop.ottla_server import OttlaServer
from tests.pipelines.conftest import PROPERTIES
from tests.pipelines.round_mutations import PLANTED
from tests.pipelines.rounds import arguments, rounds_of_copies, run
from tests.robustness.edge_mutations import misplaced
from tests.support.kafka_jars import Unavailable


@pytest.mark.timeout(900)
def test_the_driver_is_killed_in_the_middle(tmp_path):
    server = OttlaServer(tmp_path / "server", properties=PROPERTIES)
    server.start()
    try:
        rounds_of_copies(server, tmp_path, 1, seed=4711, rows=600)
    finally:
        server.stop()


def test_every_bug_that_may_be_planted_has_its_place():
    assert [problem for planted in PLANTED for problem in misplaced(planted)] == []


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("place", ["--verdict-every=6", "--s3"])
def test_many_kills(place, tmp_path):
    rounds = os.environ.get("OTTLA_KILL_ROUNDS", "12")
    words = ["--rounds", rounds, "--seed", str(int(time.time())), "--minutes", "60", "--recreate", place]
    try:
        result = run(tmp_path, arguments(words))
    except Unavailable as reason:
        pytest.skip(str(reason))
    print(result)
    assert result["verdict"] == "every input once in every output"
