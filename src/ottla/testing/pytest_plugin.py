"""The pytest fixture `ottla_broker`: one broker for the session, on a free port, in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker


@pytest.fixture(scope="session")
def ottla_broker() -> Iterator[Broker]:
    """A running broker; `ottla_broker.bootstrap_servers` is what clients need."""
    from ottla.testing.broker import Broker

    with Broker() as broker:
        yield broker
