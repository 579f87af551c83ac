"""The classic group protocol: join, sync, heartbeat, leave, and what each refuses."""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.exchanges import exchange
from tests.interop.differential.pair import Pair, Side

SESSION_MS = 600_000
"""Longer than all exchanges: a group that one leaves behind is still the same when another lists the groups."""
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000".replace(" ", ""))
_GROUP_INSTANCE_FROM = 5


def await_coordinator(pair: Pair) -> None:
    """Until the offsets topic exists and is loaded: a list of groups leaves out what is not loaded yet."""
    request = FindCoordinatorRequest("any", 0)
    pair.wait(request, 3, lambda answer: answer.error_code == 0)
    pair.wait(HeartbeatRequest("any", 1, "any"), 4, lambda answer: answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID)


def joining(
    group: str, member: str = "", *, protocols: tuple[str, ...] = ("range",), kind: str = "consumer", **options: object
) -> JoinGroupRequest:
    request = JoinGroupRequest(group, SESSION_MS, SESSION_MS, member, None, kind)
    request.protocols = [JoinGroupRequestProtocol(name, SUBSCRIPTION) for name in protocols]
    for name, value in options.items():
        setattr(request, name, value)
    return request


def join(pair: Pair, group: str, version: int, name: str = "member", **options: object) -> None:
    """Join as a dynamic member, with the round for an id where the version has it; remembers id and generation."""
    pair.send(joining(group, **options), version)  # type: ignore[arg-type]
    pair.remember(name, lambda answer: answer.member_id)
    if version >= 4 and options.get("group_instance_id") is None:
        pair.send(lambda side: joining(group, side.memory[name], **options), version)  # type: ignore[arg-type]
    pair.remember(f"{name}.generation", lambda answer: answer.generation_id)


def syncing(side: Side, group: str, name: str = "member", *, assign: bytes | None = b"all") -> SyncGroupRequest:
    assignments = [] if assign is None else [SyncGroupRequestAssignment(side.memory[name], assign)]
    generation = side.memory[f"{name}.generation"]
    return SyncGroupRequest(group, generation, side.memory[name], None, "consumer", "range", assignments)


@exchange(FindCoordinatorRequest)
def find_coordinator(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    for key_type in (0, 2, 7):
        for key in ("group", ""):
            pair.send(FindCoordinatorRequest(key, key_type, [key, "other"] if version >= 4 else []), version)
    pair.send(FindCoordinatorRequest("", 0, []), version)


@exchange(JoinGroupRequest)
def join_refused(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    group = pair.name("g")
    pair.send(joining(""), version)
    pair.send(joining(group, session_timeout_ms=999), version)
    pair.send(joining(group, session_timeout_ms=1_800_001), version)
    pair.send(joining(group, "ghost"), version)
    pair.send(joining(group, kind=""), version)
    pair.send(joining(group, protocols=()), version)
    join(pair, group, version)
    pair.send(joining(group, "ghost"), version)
    pair.send(joining(group, protocols=("other",)), version)
    pair.send(joining(group, kind="connect"), version)
    if version >= _GROUP_INSTANCE_FROM:
        pair.send(joining(group, "ghost", group_instance_id="one"), version)
        pair.send(lambda side: joining(group, side.memory["member"], group_instance_id="one"), version)


@exchange(JoinGroupRequest)
def join_and_rejoin(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    group = pair.name("g")
    join(pair, group, version)
    pair.send(lambda side: joining(group, side.memory["member"]), version)
    pair.send(lambda side: syncing(side, group), 5)
    pair.send(DescribeGroupsRequest([group]), 5)
    pair.send(lambda side: joining(group, side.memory["member"]), version)
    pair.send(lambda side: joining(group, side.memory["member"], protocols=("range", "sticky")), version)


@exchange(JoinGroupRequest, versions=range(5, 10))
def static_member_returns(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    group = pair.name("g")
    join(pair, group, version, group_instance_id="one")
    pair.remember("old", lambda answer: answer.member_id)
    pair.send(lambda side: syncing(side, group), 5)
    pair.send(joining(group, group_instance_id="one"), version)
    pair.remember("member", lambda answer: answer.member_id)
    pair.send(lambda side: syncing(side, group, assign=None), 5)
    for instance in ("one", "two", None):
        pair.send(lambda side, i=instance: HeartbeatRequest(group, 1, side.memory["old"], i), 4)  # type: ignore[misc]
        pair.send(lambda side, i=instance: HeartbeatRequest(group, 1, side.memory["member"], i), 4)  # type: ignore[misc]
    pair.send(lambda side: joining(group, side.memory["old"], group_instance_id="one"), version)
    pair.send(DescribeGroupsRequest([group]), 5)
    pair.send(LeaveGroupRequest(group, members=[MemberIdentity("", "one"), MemberIdentity("", "two")]), 5)


@exchange(SyncGroupRequest)
def sync_group(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    group = pair.name("g")
    pair.send(SyncGroupRequest("", 1, "m", None, "consumer", "range"), version)
    pair.send(SyncGroupRequest(group, 1, "m", None, "consumer", "range"), version)
    join(pair, group, 9)
    pair.send(SyncGroupRequest(group, 1, "m", None, "consumer", "range"), version)

    def sync_request(side: Side, generation: int, kind: str | None, protocol: str | None) -> SyncGroupRequest:
        return SyncGroupRequest(group, generation, side.memory["member"], None, kind, protocol)

    pair.send(lambda side: sync_request(side, 7, "consumer", "range"), version)
    if version >= 5:
        pair.send(lambda side: sync_request(side, 1, "connect", "range"), version)
        pair.send(lambda side: sync_request(side, 1, "consumer", "sticky"), version)
        pair.send(lambda side: sync_request(side, 1, None, None), version)
    pair.send(lambda side: syncing(side, group), version)
    pair.send(lambda side: syncing(side, group, assign=b"ignored"), version)


def await_state(pair: Pair, group: str, state: str) -> None:
    pair.wait(DescribeGroupsRequest([group]), 6, lambda answer: answer.groups[0].group_state == state)


@exchange(HeartbeatRequest)
def heartbeat(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    group = pair.name("g")
    pair.send(HeartbeatRequest("", 1, "m"), version)
    pair.send(HeartbeatRequest(group, 1, "m"), version)
    join(pair, group, 9)
    pair.send(HeartbeatRequest(group, 1, "m"), version)
    pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["member"]), version)
    pair.send(lambda side: HeartbeatRequest(group, 2, side.memory["member"]), version)
    pair.send(lambda side: syncing(side, group), 5)
    pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["member"]), version)
    other = pair.another()
    other.send(joining(group), 9)
    other.remember("other", lambda answer: answer.member_id)
    pending = other.start(lambda side: joining(group, side.memory["other"]), 9)
    await_state(pair, group, "PreparingRebalance")
    pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["member"]), version)
    pair.send(lambda side: LeaveGroupRequest(group, members=[MemberIdentity(side.memory["member"])]), 5)
    pending.finish()
    pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["member"]), version)
    pair.send(lambda side: HeartbeatRequest(group, 2, side.memory["other"]), version)


@exchange(LeaveGroupRequest)
def leave_group(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    group = pair.name("g")

    def leaving(group_id: str, *members: MemberIdentity) -> LeaveGroupRequest:
        request = LeaveGroupRequest(group_id, members[0].member_id if members else "")
        request.members = list(members) if version >= 3 else []
        return request

    pair.send(leaving("", MemberIdentity("m")), version)
    pair.send(leaving(group, MemberIdentity("m")), version)
    join(pair, group, 9)
    pair.send(leaving(group, MemberIdentity("m")), version)
    if version >= 3:
        pair.send(leaving(group), version)
        pair.send(leaving(group, MemberIdentity("", "one"), MemberIdentity("m", "one")), version)
    pair.send(lambda side: leaving(group, MemberIdentity(side.memory["member"])), version)
    pair.send(lambda side: leaving(group, MemberIdentity(side.memory["member"])), version)
    pair.send(joining(group), 9)
    pair.remember("pending", lambda answer: answer.member_id)
    pair.send(lambda side: leaving(group, MemberIdentity(side.memory["pending"])), version)
    pair.send(DescribeGroupsRequest([group]), 5)
