"""A broker for tests and notebooks: in this process, on a free port, in a temporary folder.

from ottla.testing import Broker

with Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from __future__ import annotations

from ottla.testing.broker import Broker

__all__ = ["Broker"]
