"""ACLs, SCRAM users and quotas: what the cluster stores about who may do what, how much of it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from ottla.client.cluster import Cluster
from ottla.client.errors import check

RESOURCES = {2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId", 6: "DelegationToken", 7: "User"}
PATTERNS = {3: "literal", 4: "prefixed"}
OPERATIONS = {
    2: "All", 3: "Read", 4: "Write", 5: "Create", 6: "Delete", 7: "Alter", 8: "Describe", 9: "ClusterAction",
    10: "DescribeConfigs", 11: "AlterConfigs", 12: "IdempotentWrite", 13: "CreateTokens", 14: "DescribeTokens",
    15: "TwoPhaseCommit",
}  # fmt: skip
PERMISSIONS = {2: "Deny", 3: "Allow"}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_ANY = 1
_ITERATIONS = 4096


@dataclass(frozen=True, slots=True)
class AclRow:
    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


def list_acls(cluster: Cluster) -> list[AclRow]:
    from ottla.protocol.generated.describe_acls_request import DescribeAclsRequest
    from ottla.protocol.generated.describe_acls_response import DescribeAclsResponse

    request = DescribeAclsRequest(
        resource_type_filter=_ANY, pattern_type_filter=_ANY, operation=_ANY, permission_type=_ANY,
        resource_name_filter=None, principal_filter=None, host_filter=None,
    )  # fmt: skip
    answer = cluster.any_call("describeAcls", request, DescribeAclsResponse)
    check(answer.error_code, answer.error_message)
    return sorted(
        (
            AclRow(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in answer.resources
            for acl in resource.acls
        ),
        key=lambda acl: (acl.resource, acl.name, acl.principal),
    )


def create_acl(cluster: Cluster, acl: AclRow) -> None:
    from ottla.protocol.generated.create_acls_request import AclCreation, CreateAclsRequest
    from ottla.protocol.generated.create_acls_response import CreateAclsResponse

    made = AclCreation(acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)
    answer = cluster.controller_call("createAcls", CreateAclsRequest([made]), CreateAclsResponse)
    check(answer.results[0].error_code, answer.results[0].error_message)


def delete_acl(cluster: Cluster, acl: AclRow) -> int:
    from ottla.protocol.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
    from ottla.protocol.generated.delete_acls_response import DeleteAclsResponse

    exact = DeleteAclsFilter(
        acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission
    )
    answer = cluster.controller_call("deleteAcls", DeleteAclsRequest([exact]), DeleteAclsResponse)
    check(answer.filter_results[0].error_code, answer.filter_results[0].error_message)
    return len(answer.filter_results[0].matching_acls)


def list_users(cluster: Cluster) -> dict[str, list[str]]:
    """User -> its SCRAM mechanisms."""
    from ottla.protocol.generated.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
    from ottla.protocol.generated.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse

    request = DescribeUserScramCredentialsRequest(users=None)
    answer = cluster.any_call("describeUserScramCredentials", request, DescribeUserScramCredentialsResponse)
    check(answer.error_code, answer.error_message)
    return {
        result.user: sorted(MECHANISMS.get(info.mechanism, "?") for info in result.credential_infos)
        for result in sorted(answer.results, key=lambda credential: credential.user)
    }


def set_password(cluster: Cluster, user: str, mechanism: int, password: str) -> None:
    """Only the salted hash leaves this process, as with kafka-configs."""
    from ottla.protocol.generated.alter_user_scram_credentials_request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )
    from ottla.protocol.generated.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse

    salt = secrets.token_bytes(24)
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == 1 else "sha512", password.encode(), salt, _ITERATIONS)
    change = ScramCredentialUpsertion(user, mechanism, _ITERATIONS, salt, salted)
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[change])
    answer = cluster.controller_call("alterUserScramCredentials", request, AlterUserScramCredentialsResponse)
    check(answer.results[0].error_code, answer.results[0].error_message)


def remove_user(cluster: Cluster, user: str, mechanism: int) -> None:
    from ottla.protocol.generated.alter_user_scram_credentials_request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )
    from ottla.protocol.generated.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse

    request = AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, mechanism)], [])
    answer = cluster.controller_call("alterUserScramCredentials", request, AlterUserScramCredentialsResponse)
    check(answer.results[0].error_code, answer.results[0].error_message)


@dataclass(frozen=True, slots=True)
class QuotaRow:
    entity: tuple[tuple[str, str | None], ...]
    """("user", name), ("client-id", None): None stands for the default."""
    values: tuple[tuple[str, float], ...]

    @property
    def who(self) -> str:
        return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in self.entity)


def list_quotas(cluster: Cluster) -> list[QuotaRow]:
    from ottla.protocol.generated.describe_client_quotas_request import DescribeClientQuotasRequest
    from ottla.protocol.generated.describe_client_quotas_response import DescribeClientQuotasResponse

    answer = cluster.any_call(
        "describeClientQuotas", DescribeClientQuotasRequest([], strict=False), DescribeClientQuotasResponse
    )
    check(answer.error_code, answer.error_message)
    return [
        QuotaRow(
            tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)),
            tuple(sorted((value.key, value.value) for value in entry.values)),
        )
        for entry in answer.entries or []
    ]


def set_quota(cluster: Cluster, entity: dict[str, str | None], name: str, value: float | None) -> None:
    """None removes it."""
    from ottla.protocol.generated.alter_client_quotas_request import (
        AlterClientQuotasRequest,
        EntityData,
        EntryData,
        OpData,
    )
    from ottla.protocol.generated.alter_client_quotas_response import AlterClientQuotasResponse

    change = OpData(name, value or 0.0, value is None)
    entry = EntryData([EntityData(kind, who) for kind, who in entity.items()], [change])
    answer = cluster.controller_call(
        "alterClientQuotas", AlterClientQuotasRequest([entry], validate_only=False), AlterClientQuotasResponse
    )
    check(answer.entries[0].error_code, answer.entries[0].error_message)
