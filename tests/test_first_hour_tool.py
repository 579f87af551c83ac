"""The first test of a newcomer: from the wheel, in an empty environment, within a minute after the installation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools import first_hour


def test_a_failed_step_shows_its_command_and_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('seen'); sys.exit('reason')"]
    with pytest.raises(first_hour.FirstHourError, match=r"(?s)-c import sys.*seen.*reason"):
        first_hour._timed(command, tmp_path, dict(os.environ))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_test_with_a_broker_within_a_minute(tmp_path: Path) -> None:
    """Downloads the packages of the core. Prints the times; the installation counts apart."""
    measured = first_hour.measure(tmp_path)
    print(measured)
    assert measured.first_test_s <= first_hour.TARGET_S
