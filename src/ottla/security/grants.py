"""Which role a user has, and on which topics, subjects and consumer groups. Values only; nothing here reads a file.

- A grant without a resource list holds everywhere. A grant with one holds on the resources that the list names, and on
  nothing else: no other topic, no page about the whole cluster.
- A name in a list is exact, or a prefix when it ends with `*`.
- A user has the sum of the grants that name the user, one of the user's groups, or the role of the users file.
- Without a matching grant a user has no right at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.security.web_users import WebUser

TOPIC, SUBJECT, CONSUMER_GROUP = "topic", "subject", "consumer group"
RANK = {"read": 0, "viewer": 0, "write": 1, "operator": 1, "admin": 2}


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether a name is in a list of names and prefixes."""
    return any(name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    role: str
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """Roles of the users file or of a bearer token."""
    resources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind of resource -> names and prefixes; empty: everywhere."""

    @property
    def limited(self) -> bool:
        return bool(self.resources)

    def applies(self, name: str, groups: Iterable[str], role: str) -> bool:
        return (
            matches(self.users, name)
            or any(matches(self.groups, group) for group in groups)
            or any(RANK.get(role, -1) == RANK[grant_role] for grant_role in self.roles)
        )

    def covers(self, kind: str | None, name: str) -> bool:
        return not self.limited or (kind is not None and matches(self.resources.get(kind, ()), name))


@dataclass(frozen=True, slots=True)
class Rights:
    grants: tuple[Grant, ...]

    @property
    def limited(self) -> bool:
        """Whether the user has no right on the cluster as a whole."""
        return all(grant.limited for grant in self.grants)

    @property
    def highest_role(self) -> str:
        return max((grant.role for grant in self.grants), key=RANK.__getitem__, default="read")

    def may(self, role: str, kind: str | None = None, name: str = "") -> bool:
        """Whether the user has the role on the resource; without a kind, on the whole cluster."""
        return any(RANK[grant.role] >= RANK[role] and grant.covers(kind, name) for grant in self.grants)

    def sees(self, kind: str, name: str) -> bool:
        return self.may("read", kind, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedUser(WebUser):
    """`role` is the highest of the grants: the role that the user has somewhere. `rights` has the exact answer."""

    rights: Rights
    authenticated: bool = True


def everywhere(user: WebUser, *, authenticated: bool = True) -> GrantedUser:
    """A user with the same role on every resource; no grants apply."""
    rights = Rights((Grant(role=user.role),))
    return GrantedUser(user.name, user.role, user.groups, rights=rights, authenticated=authenticated)


def granted(grants: Iterable[Grant], name: str, groups: Iterable[str], role: str = "") -> GrantedUser | None:
    """None if no grant names the user. Then the user has no right, not even to log in."""
    groups = tuple(groups)
    rights = Rights(tuple(grant for grant in grants if grant.applies(name, groups, role)))
    return GrantedUser(name, rights.highest_role, groups, rights=rights) if rights.grants else None
