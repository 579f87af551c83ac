"""ACLs that change one by one: the decisions of a new table, and the work of the change alone."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from ottla.model.acls import Operation, PatternType, Permission, ResourceType
from ottla.model.ids import Uuid
from ottla.security.acls import Acl, Authorizer

NAMES = ("a", "ab", "abc", "b", "*", "")
PRINCIPALS = ("User:x", "User:y", "User:*")
OPERATIONS = (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL)


def acl_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def some_acl(random: Random) -> Acl:
    return Acl(
        random.choice((ResourceType.TOPIC, ResourceType.GROUP)),
        random.choice(NAMES),
        random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        random.choice(PRINCIPALS),
        random.choice(("*", "127.0.0.1")),
        random.choice(OPERATIONS),
        random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def decisions(authorizer: Authorizer) -> list[bool]:
    where = list(
        product(("User:x", "User:y"), ("127.0.0.1", "::1"), OPERATIONS[:3], (ResourceType.TOPIC, ResourceType.GROUP))
    )
    named = [authorizer.allowed(*facts, name) for facts in where for name in (*NAMES, "abcd", "c")]
    return named + [authorizer.allowed_somewhere(*facts) for facts in where]


@pytest.mark.parametrize("seed", range(5))
def test_changed_tables_decide_as_new_tables(seed: int) -> None:
    random = Random(seed)
    acls: dict[Uuid, Acl] = {}
    changed = Authorizer()
    changed.replace({})
    for _ in range(60):
        changes: dict[Uuid, Acl | None] = {}
        for _ in range(random.randint(1, 4)):
            number = acl_id(random.randrange(12))
            changes[number] = random.choice((some_acl(random), None))
        changed.change(changes)
        acls = {number: acl for number, acl in {**acls, **changes}.items() if acl is not None}
        new = Authorizer()
        new.replace(acls)
        assert decisions(changed) == decisions(new)


def test_a_change_costs_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new ACL built the whole table again: 0.2 s of the loop of every broker with 100,000 ACLs."""
    random = Random(1)
    authorizer = Authorizer()
    authorizer.replace({acl_id(number): some_acl(random) for number in range(2_000)})
    touched: list[Uuid] = []
    table = type(authorizer.table)
    original = table.set

    def counted(self: object, number: Uuid, acl: Acl | None) -> None:
        touched.append(number)
        original(self, number, acl)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(table, "set", counted)
    authorizer.change({acl_id(5): None, acl_id(9_999): some_acl(random)})
    assert touched == [acl_id(5), acl_id(9_999)]


def test_a_question_about_any_resource_looks_at_the_acls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """InitProducerId asks: a principal without rights had every ACL looked at with each request of 30 bytes."""
    random = Random(2)
    authorizer = Authorizer()
    authorizer.replace({acl_id(number): some_acl(random) for number in range(200)})
    walks: list[str] = []
    original = Authorizer._decide_somewhere

    def counted(self: Authorizer, principal: str, host: str, operation: int, resource_type: int) -> bool:
        walks.append(principal)
        return original(self, principal, host, operation, resource_type)

    monkeypatch.setattr(Authorizer, "_decide_somewhere", counted)
    for _ in range(10):
        authorizer.allowed_somewhere("User:nobody", "192.0.2.1", Operation.WRITE, ResourceType.CLUSTER)
    assert walks == ["User:nobody"]
    authorizer.change({})
    authorizer.allowed_somewhere("User:nobody", "192.0.2.1", Operation.WRITE, ResourceType.CLUSTER)
    assert len(walks) == 2
