"""No flag of Kafka's tools is missing: `flags.txt` has every one of them with how many values it takes.

The file is what Kafka's own tools print as their help (read again here where its jars are) and what ours must print.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.flags import flags
from tests.cli.tools import JAVA, javas, ours

RECORDED = Path(__file__).with_name("flags.txt")
OURS_ALONE = {
    "metadata-shell": {"--directory 1", "-d 1"},  # Kafka took the folder of a running node until 3.x
    "replica-verification": {
        "--bootstrap-server 1",  # as every other tool calls it
        "--command-config 1",  # Kafka's cannot speak TLS or SASL at all
        "--rounds 1",  # Kafka's never ends
    },
    "transactions": {"forceTerminateTransaction --transactional-id 1"},  # as the other sub-commands spell it
}


def recorded() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in RECORDED.read_text().splitlines():
        tool, _, flag = line.partition(" ")
        found.setdefault(tool, set()).add(flag)
    return found


def test_every_tool_is_recorded() -> None:
    assert set(recorded()) == set(JAVA)


@pytest.mark.parametrize("tool", sorted(JAVA))
def test_our_flags(tool: str) -> None:
    assert set(flags(ours, tool)) - OURS_ALONE.get(tool, set()) == recorded()[tool]


@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
def test_what_is_recorded_is_what_kafka_prints() -> None:
    """To write the file anew: `python -m tests.cli.flags`."""
    assert {tool: set(flags(javas, tool)) for tool in sorted(JAVA)} == recorded()
