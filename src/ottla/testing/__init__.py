"""A broker for tests and notebooks: in this process, on a free port, in a temporary folder.

from ottla.testing import Broker

with Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.frames.records import DecodedRecord
    from ottla.testing.broker import Broker
    from ottla.testing.faults import Fault
    from ottla.testing.groups import WaitError
    from ottla.testing.names import Namespace
    from ottla.testing.step_test import DeadLetter, QuarantinedRow, StepTest
    from ottla.testing.unittest_mixin import BrokerMixin

__all__ = [
    "Broker",
    "BrokerMixin",
    "DeadLetter",
    "DecodedRecord",
    "Fault",
    "Namespace",
    "QuarantinedRow",
    "StepTest",
    "WaitError",
]

_MODULES = {
    "Broker": "ottla.testing.broker",
    "BrokerMixin": "ottla.testing.unittest_mixin",
    "DeadLetter": "ottla.testing.step_test",
    "QuarantinedRow": "ottla.testing.step_test",
    "StepTest": "ottla.testing.step_test",
    "Fault": "ottla.testing.faults",
    "Namespace": "ottla.testing.names",
    "DecodedRecord": "ottla.frames.records",
    "WaitError": "ottla.testing.groups",
}


def __getattr__(name: str) -> Any:
    """Imports the node with the first use of a name: every run of pytest imports this package for the plugin."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
