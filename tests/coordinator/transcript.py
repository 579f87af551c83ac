"""Scenarios that read like a transcript: a line is a command, the indented lines below it are what came of it.

`A join g` sends a JoinGroup for client A; client names stand for member ids everywhere. `OTTLA_REWRITE=1` writes what
came into the file instead of comparing. The commands are the methods `do_*` below.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.loader import Loader
from ottla.coordinator.records import GroupMetadataRecord
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.generated.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.virtual_world import World


def run(path: Path, player: Transcript | None = None) -> str:
    """The transcript with every command's outcome as it is now."""
    player = player or Transcript()
    lines = []
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"  {outcome}" for outcome in player.play(line)]
    return "\n".join(lines) + "\n"


def subscription(topics: list[str], version: int = 1) -> bytes:
    return version.to_bytes(2, "big") + ConsumerProtocolSubscription(topics).to_bytes(version)


class Records:
    """The written records as text."""

    def __init__(self, names: Transcript) -> None:
        self._names = names
        self.lines: list[str] = []

    def replay(self, offset: int, producer_id: int, record: Any) -> None:
        if isinstance(record, GroupMetadataRecord):
            self.lines.append(f"wrote group {record.group_id}: {self._group(record.value)}")
        else:
            value = "tombstone" if record.value is None else str(record.value.offset)
            self.lines.append(f"wrote offset {record.group_id} {record.topic}-{record.partition}: {value}")

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.lines.append(f"wrote end of transaction {producer_id}")

    def _group(self, value: Any) -> str:
        if value is None:
            return "tombstone"
        members = [f"{self._names.name(m.member_id)}={m.assignment.decode() or '-'}" for m in value.members]
        return f"generation {value.generation} protocol {value.protocol} members [{' '.join(members)}]"


class Transcript:
    def __init__(self) -> None:
        self.world = World()
        self.member_ids: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.outcomes: list[str] = []
        self._written = 0

    def play(self, line: str) -> list[str]:
        """`[CLIENT] VERB argument... key=value...`"""
        self.outcomes = []
        words = line.split()
        client = words.pop(0) if words[0][0].isupper() else ""
        verb = words.pop(0)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        getattr(self, f"do_{verb.replace('-', '_')}")(client, arguments, options)
        return self._records() + self.outcomes

    def name(self, member_id: str) -> str:
        if not member_id:
            return "nobody"
        if member_id not in self.aliases:
            client = re.sub(r"-[0-9a-f]{8}-.*", "", member_id)
            used = sum(alias.rstrip("'") == client for alias in self.aliases.values())
            self.aliases[member_id] = client + "'" * used
        return self.aliases[member_id]

    def _records(self) -> list[str]:
        records = self._recorder()
        log = self.world.logs[0]
        loader = Loader(log, records)
        loader._next_offset, self._written = self._written, log.log_end_offset
        while not loader.load_some():
            pass
        return records.lines

    def _recorder(self) -> Records:
        return Records(self)

    def _waiter(self, client: str, verb: str, say: Any) -> Any:
        def take(response: Any) -> None:
            if isinstance(response, KafkaError):
                self.outcomes.append(f"{client}{verb}: {response.code.name}".strip())
            else:
                self.outcomes.append(f"{client}{verb}: {say(response)}".strip())

        return take

    # The world

    def do_settings(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        settings = {"group_initial_rebalance_delay_ms": "0", **{k.replace(".", "_"): v for k, v in options.items()}}
        values: dict[str, Any] = {name: int(value) if value.isdecimal() else value for name, value in settings.items()}
        self.world = World(GroupCoordinatorSettings(**values))

    def do_wait(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.time.advance(int(arguments[0]))

    def do_restart(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.restart()

    def do_resign(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.resign()

    def do_hold_commits(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.partition().hold_commits = True

    def do_commit_all(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.partition().commit()

    def do_fail_appends(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.partition().failure = KafkaError(ErrorCode[arguments[0]]) if arguments else None

    def do_groups(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        for group in self.world.machine().groups.values():
            members = " ".join(self.name(member_id) for member_id in group.members)
            self.outcomes.append(f"{group.group_id}: {group.state.value} generation {group.generation_id} [{members}]")

    # Clients

    def do_join(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        topics = options.get("topics", "t").split(",")
        request = JoinGroupRequest(
            arguments[0],
            int(options.get("session", 10_000)),
            int(options.get("rebalance", 60_000)),
            self._member_id(client, options),
            options.get("instance"),
            options.get("type", "consumer"),
            [JoinGroupRequestProtocol(n, subscription(topics)) for n in options.get("protocols", "range").split(",")],
        )
        waiter = self._waiter(client, " joined", lambda response: self._joined(client, response))
        self.world.coordinator.join(Caller(client, "/host", int(options.get("version", 9))), request, waiter)

    def _member_id(self, client: str, options: dict[str, str]) -> str:
        if "member" not in options:
            return self.member_ids.get(client, "")
        label = options["member"]
        return next((member_id for member_id, alias in self.aliases.items() if alias == label), label)

    def _joined(self, client: str, response: Any) -> str:
        code = ErrorCode(response.error_code)
        if response.member_id:
            self.member_ids[client] = response.member_id
            self.name(response.member_id)
        if code is not ErrorCode.NONE:
            return f"{code.name} as {self.name(response.member_id)}"
        self.generations[client] = response.generation_id
        text = f"generation {response.generation_id} protocol {response.protocol_name}"
        text += f" as {self.name(response.member_id)}, leader {self.name(response.leader)}"
        if response.members:
            text += f" of [{' '.join(self.name(member.member_id) for member in response.members)}]"
        return text + (", skip assignment" if response.skip_assignment else "")

    def do_sync(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        pairs = [pair.split(":") for pair in options.get("assign", "").split(",") if pair]
        assignments = [
            SyncGroupRequestAssignment(self._member_id(name, {"member": name}), self._assignment(value))
            for name, value in pairs
        ]
        request = SyncGroupRequest(
            arguments[0],
            self._generation(client, options),
            self._member_id(client, options),
            options.get("instance"),
            options.get("type", "consumer"),
            options.get("protocol"),
            assignments,
        )
        self.world.coordinator.sync(request, self._waiter(client, " synced", self._synced))

    def _assignment(self, text: str) -> bytes:
        return text.encode()

    def _synced(self, response: Any) -> str:
        return _code(response) if response.error_code else f"{response.assignment.decode() or 'nothing'}"

    def _generation(self, client: str, options: dict[str, str]) -> int:
        return int(options.get("generation", self.generations.get(client, -1)))

    def do_heartbeat(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        request = HeartbeatRequest(
            arguments[0],
            self._generation(client, options),
            self._member_id(client, options),
            options.get("instance"),
        )
        self.world.coordinator.heartbeat(request, self._waiter(client, " beat", _code))

    def do_leave(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        group, *others = arguments
        members = [MemberIdentity(self.member_ids.get(name, name), None) for name in [client, *others] if name]
        if "instance" in options:
            members.append(MemberIdentity("", options["instance"]))
        waiter = self._waiter(client, " left", self._left)
        self.world.coordinator.leave(LeaveGroupRequest(group, members=members), waiter)

    def _left(self, response: Any) -> str:
        parts = [f"{self.name(m.member_id)} {ErrorCode(m.error_code).name}" for m in response.members]
        return ", ".join(parts) or _code(response)

    # Offsets and administration

    def do_commit(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        group = arguments[0]
        partitions = {k: v for k, v in options.items() if re.fullmatch(r".+-\d+", k)}
        request = OffsetCommitRequest(
            group,
            self._generation(client, options),
            self._member_id(client, options),
            options.get("instance"),
            int(options.get("retention", -1)),
            [
                OffsetCommitRequestTopic(
                    topic,
                    partitions=[
                        OffsetCommitRequestPartition(int(index), int(offset), -1, "x" * int(options.get("metadata", 0)))
                    ],
                )
                for (topic, index), offset in ((k.rsplit("-", 1), v) for k, v in partitions.items())
            ],
        )
        version = int(options.get("version", 9))
        waiter = self._waiter(client, " committed", _partition_codes)
        self.world.coordinator.commit_offsets(version, request, waiter)

    def do_fetch(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        group, *partitions = arguments
        topics: list[OffsetFetchRequestTopics] | None = None
        if partitions:
            pairs = [name.rsplit("-", 1) for name in partitions]
            topics = [OffsetFetchRequestTopics(topic, partition_indexes=[int(index)]) for topic, index in pairs]
        request = OffsetFetchRequestGroup(group, topics=topics)
        self.world.coordinator.fetch_offsets(request, self._waiter("", "offsets", _offsets), require_stable=False)

    def do_delete_offsets(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        group, *partitions = arguments
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(int(index))])
            for topic, index in (name.rsplit("-", 1) for name in partitions)
        ]
        request = OffsetDeleteRequest(group, topics)
        self.world.coordinator.delete_offsets(request, self._waiter("", "deleted offsets", _partition_codes))

    def do_delete(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.coordinator.delete_group(arguments[0], self._waiter("", "deleted", _code))

    def do_list(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        states = [state for state in options.get("states", "").split(",") if state]
        types = [name for name in options.get("types", "").split(",") if name]
        self.world.coordinator.list_groups(states, types, self._waiter("", "listed", _listed))

    def do_describe(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        waiter = self._waiter("", "described", self._described)
        self.world.coordinator.describe_group(int(options.get("version", 6)), arguments[0], waiter)

    def _described(self, group: Any) -> str:
        if group.error_code:
            return f"{group.group_state} {ErrorCode(group.error_code).name}"
        members = [f"{self.name(m.member_id)}={m.member_assignment.decode() or '-'}" for m in group.members]
        return (
            f"{group.group_state} type {group.protocol_type!r} protocol {group.protocol_data!r} [{' '.join(members)}]"
        )


def _code(response: Any) -> str:
    return ErrorCode(response.error_code).name


def _partition_codes(response: Any) -> str:
    return ", ".join(
        f"{topic.name}-{item.partition_index} {ErrorCode(item.error_code).name}"
        for topic in response.topics
        for item in topic.partitions
    )


def _offsets(response: Any) -> str:
    pairs = [f"{t.name}-{p.partition_index}={p.committed_offset}" for t in response.topics for p in t.partitions]
    return " ".join(pairs) or "none"


def _listed(groups: Any) -> str:
    return ", ".join(f"{g.group_id} {g.group_state} {g.group_type} {g.protocol_type!r}" for g in groups) or "none"
