"""A log line that cannot be written is lost; whoever wrote it goes on."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from ottla.env import logging


@pytest.fixture(autouse=True)
def as_it_was() -> object:
    before = logging._sink
    yield
    logging._sink = before


def test_a_pipe_that_nobody_reads() -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    logging.configure(stream)
    logging.get_logger("t").error("thing.happened", exc_info=ValueError("x"))
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_full_disk() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    stream = Path("/dev/full").open("w")  # noqa: SIM115 - closed below, where it must fail
    logging.configure(stream)
    logging.get_logger("t").info("thing.happened")
    with pytest.raises(OSError, match="No space"):
        stream.close()


def test_a_file_that_is_closed() -> None:
    stream = io.StringIO()
    logging.configure(stream)
    logging.get_logger("t").info("thing.happened", n=1)
    assert "thing.happened n=1" in stream.getvalue()
    stream.close()
    logging.get_logger("t").info("thing.happened")


def test_a_guest_has_no_say_where_the_host_had_one() -> None:
    logging.configure(io.StringIO(), level="info")
    logging.configure_if_nobody_did("error")
    assert logging._sink.level == 20
    logging._sink = logging._FIRST
    logging.configure_if_nobody_did("error")
    assert logging._sink.level == 40
