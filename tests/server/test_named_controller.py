"""Metadata never names a controller that is not among the brokers it lists."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.broker.handlers.metadata import named_controller


def context(own: int, *brokers: tuple[int, bool, str]) -> SimpleNamespace:
    image = SimpleNamespace(
        brokers={i: SimpleNamespace(id=i, fenced=fenced, listeners={listener: None}) for i, fenced, listener in brokers}
    )
    return SimpleNamespace(broker=SimpleNamespace(node_id=own, image=image), listener="PLAINTEXT")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (context(2, (1, False, "PLAINTEXT"), (2, False, "PLAINTEXT")), 2),
        (context(2, (1, False, "PLAINTEXT"), (2, True, "PLAINTEXT")), 1),
        (context(2, (1, False, "PLAINTEXT")), 1),
        (context(2, (1, False, "OTHER"), (3, False, "PLAINTEXT")), 3),
        (context(2, (2, True, "PLAINTEXT")), -1),
    ],
)
def test_it_is_this_broker_or_one_that_clients_can_reach(asked: SimpleNamespace, named: int) -> None:
    assert named_controller(asked) == named  # type: ignore[arg-type]
