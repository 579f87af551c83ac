"""Conversion between registration records and registration values, for brokers and controllers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ottla.metadata.features import Range
from ottla.metadata.image import BrokerRegistration, ControllerRegistration, RegisteredEndpoint
from ottla.metadata.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord, RegisterControllerRecord
from ottla.protocol.generated.register_broker_record import BrokerEndpoint, BrokerFeature
from ottla.protocol.generated.register_controller_record import ControllerEndpoint, ControllerFeature

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1


def broker_registration(record: RegisterBrokerRecord) -> BrokerRegistration:
    return BrokerRegistration(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        listeners=_endpoints(record.end_points),
        features=_ranges(record.features),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(record.log_dirs),
        cordoned_directories=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
    )


def changed_registration(broker: BrokerRegistration, record: BrokerRegistrationChangeRecord) -> BrokerRegistration:
    changes: dict[str, Any] = {}
    if record.fenced:
        changes["fenced"] = record.fenced == FENCE
    if record.in_controlled_shutdown:
        changes["in_controlled_shutdown"] = True
    if record.log_dirs:
        changes["directories"] = tuple(record.log_dirs)
    if record.cordoned_log_dirs is not None:
        changes["cordoned_directories"] = tuple(record.cordoned_log_dirs)
    return replace(broker, **changes) if changes else broker


def controller_registration(record: RegisterControllerRecord) -> ControllerRegistration:
    return ControllerRegistration(
        id=record.controller_id,
        incarnation_id=record.incarnation_id,
        listeners=_endpoints(record.end_points),
        features=_ranges(record.features),
    )


def broker_record(broker: BrokerRegistration) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[BrokerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in broker.listeners.values()],
        features=[BrokerFeature(name, low, high) for name, (low, high) in broker.features.items()],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if broker.cordoned_directories is None else list(broker.cordoned_directories),
    )


def controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        end_points=[
            ControllerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in controller.listeners.values()
        ],
        features=[ControllerFeature(name, low, high) for name, (low, high) in controller.features.items()],
    )


def _endpoints(listeners: Iterable[Any]) -> dict[str, RegisteredEndpoint]:
    return {e.name: RegisteredEndpoint(e.name, e.host, e.port, e.security_protocol) for e in listeners}


def _ranges(features: Iterable[Any]) -> dict[str, Range]:
    return {f.name: Range(f.min_supported_version, f.max_supported_version) for f in features}
