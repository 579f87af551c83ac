"""docs/simulate.md: its tables are those of the code, and its outputs are those that its commands print."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from tools.simulate_docs import PAGE, commands, keys_text, printed

from ottla.env import logging

TEXT = PAGE.read_text()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    logging.configure(io.StringIO(), level="error")
    yield
    logging._sink = kept


def test_the_page_has_the_tables_of_the_code() -> None:
    assert keys_text() in TEXT, "run `make docs`"


def test_the_page_shows_three_lessons_and_a_frequency() -> None:
    assert [command.split()[2].rpartition("/")[2] for command, _ in commands(TEXT)] == [
        "acks-1.toml", "unclean-election.toml", "min-isr-2.toml", "chance.toml",
    ]  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("command", "output"), list(commands(TEXT)), ids=[command for command, _ in commands(TEXT)])
def test_a_command_of_the_page_prints_what_the_page_shows(command: str, output: str) -> None:
    assert printed(command) == output, "run `make docs`"
