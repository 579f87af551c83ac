"""AlterClientQuotas: limits of users, client ids and addresses as records of the metadata log."""

from __future__ import annotations

import ipaddress

from ottla.controller.outcome import OK, ApiError
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.records import ClientQuotaRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.generated import client_quota_record as quota_records
from ottla.protocol.generated.alter_client_quotas_request import AlterClientQuotasRequest, EntryData
from ottla.protocol.generated.alter_client_quotas_response import AlterClientQuotasResponse, EntityData
from ottla.protocol.generated.alter_client_quotas_response import EntryData as EntryResult
from ottla.protocol.primitives import Message

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_LONG_MAX = float(1 << 63)
_INT_MAX = float((1 << 31) - 1)
CLIENT_KEYS = {
    "producer_byte_rate": "LONG",
    "consumer_byte_rate": "LONG",
    "request_percentage": "DOUBLE",
    "controller_mutation_rate": "DOUBLE",
}
IP_KEYS = {"connection_creation_rate": "INT"}

Entity = dict[str, str | None]


def alter_client_quotas(
    state: ControllerState, request: AlterClientQuotasRequest, _context: ControllerRequestContext
) -> Decision[Message, AlterClientQuotasResponse]:
    records: list[Message] = []
    results: dict[tuple[tuple[str, str | None], ...], ApiError] = {}
    for entry in paced(request.entries, 15):
        key = tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity))
        if key in results:
            results[key] = _invalid(f"Ignoring duplicate entity {_shown(entry)}")
            continue
        made, results[key] = _alter(state, entry, key)
        records += made
    entries = [
        EntryResult(error.code, error.message, [EntityData(kind, name) for kind, name in key])
        for key, error in paced(results.items(), 3)
    ]
    return Decision(AlterClientQuotasResponse(entries=entries), [] if request.validate_only else records)


def _alter(
    state: ControllerState, entry: EntryData, key: tuple[tuple[str, str | None], ...]
) -> tuple[list[Message], ApiError]:
    if len({op.key for op in entry.ops}) != len(entry.ops):
        twice = next(op.key for op in entry.ops if sum(other.key == op.key for other in entry.ops) > 1)
        return [], _invalid(f"Duplicate quota key {twice} not updating quota for this entity {_shown(entry)}")
    error = _check_entity(entry)
    if error.failed:
        return [], error
    keys = IP_KEYS if key[0][0] == IP else CLIENT_KEYS
    current = state.image.client_quotas.get(key, {})
    records: list[Message] = []
    for op in entry.ops:
        entity = [quota_records.EntityData(kind, name) for kind, name in key]
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(entity, op.key, 0.0, True))
            continue
        error = _check_value(keys, op.key, op.value)
        if error.failed:
            return [], error
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity, op.key, op.value))
    return records, OK


def _check_entity(entry: EntryData) -> ApiError:
    if not entry.entity:
        return _invalid("Invalid empty client quota entity")
    seen: set[str] = set()
    for part in entry.entity:
        if part.entity_type in seen:
            return _invalid(f"Invalid client quota entity, duplicate entity entry {part.entity_type}")
        if part.entity_type not in (USER, CLIENT_ID, IP):
            return _invalid(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name is not None and not part.entity_name:
            return _invalid(f"Empty {part.entity_type} not supported")
        seen.add(part.entity_type)
    if IP in seen and len(seen) > 1:
        return _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    if IP in seen and not _is_address(entry.entity[0].entity_name):
        return _invalid(f"{entry.entity[0].entity_name} is not a valid IP or resolvable host.")
    return OK


def _is_address(text: str | None) -> bool:
    """Names are not looked up: a controller's decision must not wait for a name server."""
    if text is None:
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return True


def _check_value(keys: dict[str, str], key: str, value: float) -> ApiError:
    kind = keys.get(key)
    if kind is None:
        return _invalid(f"Invalid configuration key {key}")
    if value <= 0.0:
        return _invalid(f"Quota {key} must be greater than 0")
    if kind == "INT" and value > _INT_MAX:
        return _invalid(f"Proposed value for {key} is too large for an INT.")
    if kind == "LONG" and value > _LONG_MAX:
        return _invalid(f"Proposed value for {key} is too large for a LONG.")
    if kind != "DOUBLE" and abs(value % 1.0) > 1e-6:
        return _invalid(f"{key} cannot be a fractional value.")
    return OK


def _shown(entry: EntryData) -> str:
    inner = ", ".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity)
    return f"ClientQuotaEntity(entries={{{inner}}})"


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
