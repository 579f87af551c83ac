"""A broker for tests and notebooks: in this process, on a free port, in a temporary folder.

from ottla.testing import Broker

with Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    """Imports the node with the first use of `Broker`: every run of pytest imports this package for the plugin."""
    if name != "Broker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing.broker import Broker

    return Broker
