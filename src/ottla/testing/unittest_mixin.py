"""A broker for the tests of a `unittest.TestCase`."""

from __future__ import annotations

from typing import Any, ClassVar

from ottla.testing.broker import Broker


class BrokerMixin:
    """Put it before `unittest.TestCase`, or before Django's test case: a broker for the tests of the class.

    class OrderTest(BrokerMixin, unittest.TestCase):
        broker_options = {"registry": True}

        def test_order(self) -> None:
            topic = self.broker.topic("orders")
    """

    broker_options: ClassVar[dict[str, Any]] = {}
    """What `Broker` is called with."""
    broker: ClassVar[Broker]

    @classmethod
    def setUpClass(cls) -> None:
        cls.broker = Broker(**cls.broker_options).start()
        cls.addClassCleanup(cls.broker.stop)  # type: ignore[attr-defined]  # a method of TestCase
        super().setUpClass()  # type: ignore[misc]  # a method of TestCase

    def tearDown(self) -> None:
        """No fault outlives its test."""
        self.broker.faults.clear()
        super().tearDown()  # type: ignore[misc]  # a method of TestCase
