"""The transaction coordinator of a node, put together on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator


def make_transactions(broker: Broker) -> TransactionCoordinator:
    from ottla.broker.transactions.transaction_markers import BrokerMarkers
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator
    from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings
    from ottla.metadata.features import TRANSACTION_VERSION

    return TransactionCoordinator(
        TransactionCoordinatorSettings.from_config(broker.config),
        broker.clock,
        broker.timers,
        broker.replicas,
        BrokerMarkers(broker),
        broker.producer_ids.take,
        lambda: broker.image.features.get(TRANSACTION_VERSION, 0),
    )
