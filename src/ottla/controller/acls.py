"""CreateAcls and DeleteAcls: ACLs as records of the metadata log. An ACL that is there already makes no record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ottla.controller.outcome import MAX_RECORDS_PER_USER_OP, OK, ApiError, refused
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.model.acls import Operation, Permission
from ottla.model.acls import PatternType as Pattern
from ottla.model.acls import ResourceType as Resource
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.pace import paced
from ottla.protocol.generated.create_acls_request import AclCreation, CreateAclsRequest
from ottla.protocol.generated.create_acls_response import AclCreationResult, CreateAclsResponse
from ottla.protocol.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.generated.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from ottla.protocol.primitives import Message
from ottla.security.acls import CLUSTER_NAME, Acl, AclFilter

MAX_COMPARISONS = 1_000_000
"""Of filters and ACLs in one DeleteAcls: a hundred filters without a name, with 10,000 ACLs."""
EnumT = TypeVar("EnumT", Resource, Operation, Pattern, Permission)


def create_acls(
    state: ControllerState, request: CreateAclsRequest, _context: ControllerRequestContext
) -> Decision[Message, CreateAclsResponse]:
    require_authorizer(state)
    if any(_is_filter(creation) for creation in request.creations):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka, which cannot even make a binding of it
    existing = {Acl.of(record) for record in paced(state.image.acls.values(), 2)}
    records: list[Message] = []
    results = []
    for creation in paced(request.creations, 15):
        acl = Acl(
            creation.resource_type, creation.resource_name, creation.resource_pattern_type, creation.principal,
            creation.host, creation.operation, creation.permission_type,
        )  # fmt: skip
        outcome = OK
        try:
            _check(creation)
            if acl not in existing:
                existing.add(acl)
                records.append(AccessControlEntryRecord(state.new_uuid(), *acl))
        except KafkaError as error:
            outcome = refused(error)
        results.append(_created(outcome))
    if len(records) > MAX_RECORDS_PER_USER_OP:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Too many ACLs in one request")
    return Decision(CreateAclsResponse(results=results), records)


def require_authorizer(state: ControllerState) -> None:
    if not state.rules.static.authorizer_class_name:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _is_filter(creation: AclCreation) -> bool:
    """Whether a creation uses values that only a filter may have: any, match."""
    return (
        creation.resource_type == Resource.ANY
        or creation.resource_pattern_type in (Pattern.ANY, Pattern.MATCH)
        or creation.operation == Operation.ANY
        or creation.permission_type == Permission.ANY
    )


def _created(outcome: ApiError) -> AclCreationResult:
    return AclCreationResult(outcome.code, outcome.message) if outcome.failed else AclCreationResult()


def _enum_member(kind: type[EnumT], code: int) -> EnumT:
    try:
        return kind(code)
    except ValueError:
        return kind.UNKNOWN


def _check(creation: AclCreation) -> None:
    resource = _enum_member(Resource, creation.resource_type)
    if resource is Resource.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise _invalid("Invalid empty resource name")
    if resource in (Resource.UNKNOWN, Resource.ANY):
        raise _invalid(f"Invalid resourceType {resource.name}")
    pattern = _enum_member(Pattern, creation.resource_pattern_type)
    if pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern.name}")
    operation = _enum_member(Operation, creation.operation)
    if operation in (Operation.UNKNOWN, Operation.ANY):
        raise _invalid(f"Invalid operation {operation.name}")
    permission = _enum_member(Permission, creation.permission_type)
    if permission not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {permission.name}")
    kind, colon, _ = creation.principal.partition(":")
    if not colon or not kind:
        raise _invalid(
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def delete_acls(
    state: ControllerState, request: DeleteAclsRequest, _context: ControllerRequestContext
) -> Decision[Message, DeleteAclsResponse]:
    require_authorizer(state)
    removed: dict[bytes, Message] = {}
    results = []
    stored = _StoredAcls(state.image.acls)
    for filter_request in paced(request.filters, 5):
        try:
            matching = stored.matching(acl_filter(filter_request))
        except KafkaError as error:
            results.append(DeleteAclsFilterResult(error.code, error.message))
            continue
        removed.update((bytes(acl_id), RemoveAccessControlEntryRecord(acl_id)) for acl_id, _ in paced(matching))
        matches = [DeleteAclsMatchingAcl(0, None, *acl) for _, acl in paced(matching)]
        results.append(DeleteAclsFilterResult(0, None, matches))
    if len(removed) > MAX_RECORDS_PER_USER_OP:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Cannot remove more than {MAX_RECORDS_PER_USER_OP} acls in a single delete operation.",
        )
    return Decision(DeleteAclsResponse(filter_results=results), list(removed.values()))


class _StoredAcls:
    """The ACLs as filters find them: a filter with a name compares only the ACLs of that name."""

    def __init__(self, acls: Mapping[Uuid, AccessControlEntryRecord]) -> None:
        self._all = [(acl_id, Acl.of(record)) for acl_id, record in paced(acls.items(), 2)]
        self._by_name: dict[str, list[tuple[Uuid, Acl]]] = {}
        for entry in paced(self._all):
            self._by_name.setdefault(entry[1].name, []).append(entry)
        self._comparisons = 0

    def matching(self, acl_pattern: AclFilter) -> list[tuple[Uuid, Acl]]:
        """Raises POLICY_VIOLATION when the filters of one request compare too many ACLs."""
        by_name = acl_pattern.name is not None and acl_pattern.pattern != Pattern.MATCH
        candidates = self._by_name.get(acl_pattern.name or "", []) if by_name else self._all
        self._comparisons += len(candidates)
        if self._comparisons > MAX_COMPARISONS:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The filters of one request may compare {MAX_COMPARISONS} ACLs; name the resources, or send fewer filters.",
            )
        return [entry for entry in paced(candidates) if acl_pattern.matches(entry[1])]


def acl_filter(filter_request: DeleteAclsFilter) -> AclFilter:
    if _enum_member(Resource, filter_request.resource_type_filter) is Resource.UNKNOWN or (
        _enum_member(Pattern, filter_request.pattern_type_filter) is Pattern.UNKNOWN
    ):
        raise _invalid("Unknown patternFilter.")
    if _enum_member(Operation, filter_request.operation) is Operation.UNKNOWN or (
        _enum_member(Permission, filter_request.permission_type) is Permission.UNKNOWN
    ):
        raise _invalid("Unknown entryFilter.")
    return AclFilter(
        filter_request.resource_type_filter,
        filter_request.resource_name_filter,
        filter_request.pattern_type_filter,
        filter_request.principal_filter,
        filter_request.host_filter,
        filter_request.operation,
        filter_request.permission_type,
    )
