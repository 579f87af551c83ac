"""ACLs as Kafka's StandardAuthorizer reads them: who may do what to which resource, and from where.

Deny overrides allow. READ, WRITE, DELETE and ALTER also allow DESCRIBE, and ALTER_CONFIGS also allows
DESCRIBE_CONFIGS; a deny implies nothing else. A resource without any ACL is closed, or open with
`allow.everyone.if.no.acl.found`. Before the ACLs are loaded, only super users have access: an empty table means nothing
then. Answers are cached until an ACL changes: a request that was allowed before costs one
look-up in a dict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.model.acls import Operation, Permission
from ottla.model.acls import PatternType as Pattern
from ottla.model.acls import ResourceType as Resource
from ottla.model.ids import Uuid
from ottla.security.hosts import plain_address

CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
ANY_USER: Final = "User:*"
_DESCRIBE: Final = frozenset(
    {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
)
_DESCRIBE_CONFIGS: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL})
_REMEMBERED: Final = 20_000

SUPPORTED: Final[dict[int, tuple[Operation, ...]]] = {
    Resource.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE, Operation.ALTER, Operation.DESCRIBE,
    ),
}  # fmt: skip
"""The operations that "authorized operations" in Metadata, DescribeCluster and DescribeGroups can report."""


class Acl(NamedTuple):
    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    @classmethod
    def of(cls, record: Any) -> Acl:
        """From an AccessControlEntryRecord."""
        return cls(
            record.resource_type, record.resource_name, record.pattern_type, record.principal, record.host,
            record.operation, record.permission_type,
        )  # fmt: skip


class AclFilter(NamedTuple):
    """The filter of DescribeAcls and DeleteAcls; None matches everything."""

    resource_type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (Resource.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern != Pattern.MATCH:
            return self.name == acl.name
        if acl.pattern == Pattern.LITERAL:
            return acl.name in (self.name, WILDCARD)
        return self.name.startswith(acl.name)


class AclTable:
    """All ACLs by id, found by resource. A change costs as much as the ACLs that change, however many there are."""

    def __init__(self, acls: Mapping[Uuid, Acl]) -> None:
        self.by_id: dict[Uuid, Acl] = {}
        self._literal: dict[tuple[int, str], dict[Uuid, Acl]] = {}
        self._prefixed: dict[tuple[int, str], dict[Uuid, Acl]] = {}
        self._lengths: dict[int, Counter[int]] = {}
        """Of the prefixes of a resource type: how many resources have each length."""
        for acl_id, acl in acls.items():
            self.set(acl_id, acl)

    def set(self, acl_id: Uuid, acl: Acl | None) -> None:
        """`acl` None removes the ACL."""
        former = self.by_id.pop(acl_id, None)
        if former is not None:
            self._remove(acl_id, former)
        if acl is None:
            return
        self.by_id[acl_id] = acl
        key = (acl.resource_type, acl.name)
        if acl.pattern == Pattern.PREFIXED:
            if key not in self._prefixed:
                self._lengths.setdefault(acl.resource_type, Counter())[len(acl.name)] += 1
            self._prefixed.setdefault(key, {})[acl_id] = acl
        else:
            self._literal.setdefault(key, {})[acl_id] = acl

    def _remove(self, acl_id: Uuid, acl: Acl) -> None:
        key = (acl.resource_type, acl.name)
        prefixed = acl.pattern == Pattern.PREFIXED
        resources = self._prefixed if prefixed else self._literal
        del resources[key][acl_id]
        if resources[key]:
            return
        del resources[key]
        if prefixed:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def of_resource(self, resource_type: int, name: str) -> list[Acl]:
        acls = [*self._literal.get((resource_type, name), {}).values()]
        if name != WILDCARD:
            acls += self._literal.get((resource_type, WILDCARD), {}).values()
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                acls += self._prefixed.get((resource_type, name[:length]), {}).values()
        return acls


class Authorizer:
    def __init__(self, *, super_users: str = "", allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(part.strip() for part in super_users.split(";") if part.strip())
        self._allow_if_no_acl = allow_if_no_acl
        self.table = AclTable({})
        self.loaded = False
        """Whether `table` is that of the metadata, even if it has no ACL."""
        self._decisions: dict[tuple[str, str, int, int, str | None], bool] = {}
        """The name None is any resource of the type."""

    def configure(self, *, super_users: str, allow_if_no_acl: bool) -> None:
        self._super_users = frozenset(part.strip() for part in super_users.split(";") if part.strip())
        self._allow_if_no_acl = allow_if_no_acl
        self._decisions.clear()

    def replace(self, acls: Mapping[Uuid, Acl]) -> None:
        self.table = AclTable(acls)
        self.loaded = True
        self._decisions.clear()

    def change(self, changes: Mapping[Uuid, Acl | None]) -> None:
        """ACLs that are new; None for an ACL that is gone."""
        for acl_id, acl in changes.items():
            self.table.set(acl_id, acl)
        self._decisions.clear()

    def allowed(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        key = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._remember(key, principal in self._super_users or self._decide(*key))
        return decision

    def _remember(self, key: tuple[str, str, int, int, str | None], decision: bool) -> bool:  # noqa: FBT001 - the value that is stored
        if len(self._decisions) >= _REMEMBERED:
            self._decisions.clear()
        self._decisions[key] = decision
        return decision

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        acls = self.table.of_resource(resource_type, name)
        if not acls:
            return self.loaded and self._allow_if_no_acl
        allowed = False
        for acl in acls:
            if not _concerns(acl, principal, host):
                continue
            if acl.permission == Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return False
            elif _allows(acl.operation, operation):
                allowed = True
        return allowed

    def allowed_somewhere(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is any resource of the type that the principal may do this to (KIP-679)."""
        if self.allowed(principal, host, operation, resource_type, "hardcode"):
            return True
        key = (principal, host, operation, resource_type, None)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._remember(key, self._decide_somewhere(principal, host, operation, resource_type))
        return decision

    def _decide_somewhere(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Looks at every ACL."""
        denied: set[tuple[int, str]] = set()
        granted: set[tuple[int, str]] = set()
        for acl in self.table.by_id.values():
            if acl.resource_type != resource_type or not _concerns(acl, principal, host):
                continue
            if acl.operation not in (operation, Operation.ALL):
                continue
            (denied if acl.permission == Permission.DENY else granted).add((acl.pattern, acl.name))
        if (Pattern.LITERAL, WILDCARD) in denied:
            return False
        return any(
            (pattern, name) == (Pattern.LITERAL, WILDCARD) or not _dominated(pattern, name, denied)
            for pattern, name in granted
        )

    def operations(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """The operations that the principal may do to the resource, as a bit field."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.allowed(principal, host, operation, resource_type, name)
        )


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    if acl.principal not in (principal, ANY_USER):
        return False
    return acl.host in (host, WILDCARD) or (":" in acl.host and plain_address(acl.host) == plain_address(host))


def _allows(granted: int, operation: int) -> bool:
    if operation == Operation.DESCRIBE:
        return granted in _DESCRIBE
    if operation == Operation.DESCRIBE_CONFIGS:
        return granted in _DESCRIBE_CONFIGS
    return granted in (operation, Operation.ALL)


def _dominated(pattern: int, name: str, denied: set[tuple[int, str]]) -> bool:
    """Whether everything that a grant covers is denied."""
    if pattern == Pattern.LITERAL and (Pattern.LITERAL, name) in denied:
        return True
    return any((Pattern.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
