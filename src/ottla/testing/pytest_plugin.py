"""The pytest fixture `ottla_broker`: one broker for the session, on a free port, in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Import Ottla's modules as outside of pytest.

    pytest rewrites the assertions of every package that has a plugin. Ottla has no assertions, and its modules would be
    parsed again in the thread of a node that runs already. pytest has no public call for that, so without the
    attribute this function does nothing.
    """
    marked = getattr(pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked -= {name for name in marked if name == "ottla" or name.startswith("pyspark_ottla")}


@pytest.fixture(scope="session")
def ottla_broker() -> Iterator[Broker]:
    """A running broker; `ottla_broker.bootstrap_servers` is what clients need."""
    from ottla.testing.broker import Broker

    with Broker() as broker:
        yield broker
