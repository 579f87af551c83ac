"""Transcripts of consumer groups: the verbs of the consumer protocol beside those of `transcript`.

topic t 4                   a topic with four partitions (again with more: it grows); drop-topic t
A enter g topics=t          the first heartbeat; also regex= instance= assignor= rebalance=
A beat g                    a heartbeat with only its epoch (epoch= sets a different epoch)
A has g                     a heartbeat with the owned partitions: those of the last answer (or owned=t0,t1)
A exit g, A pause g         leaves; leaves for a while (a static member)
show g                      the group: epochs, and each member's epoch, state and partitions
"""

from __future__ import annotations

from typing import Any

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.consumer import embedded
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.members import ConsumerMemberState
from ottla.coordinator.records import GroupKindRecord
from ottla.model.errors import ErrorCode
from ottla.model.ids import Uuid
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.coordinator.transcript import Records, Transcript


class ConsumerRecords(Records):
    def replay(self, offset: int, producer_id: int, record: Any) -> None:
        if not isinstance(record, GroupKindRecord):
            super().replay(offset, producer_id, record)
            return
        key, value = record
        name = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        who = f" {self._names.name(key.member_id)}" if hasattr(key, "member_id") else ""
        who += f" {key.regular_expression}" if hasattr(key, "regular_expression") else ""
        self.lines.append(f"wrote {_WORDS[name]}{who}: {'tombstone' if value is None else self._say(name, value)}")

    def _group(self, value: Any) -> str:
        if value is None:
            return "tombstone"
        members = [f"{self._names.name(m.member_id)}={said(bytes(m.assignment))}" for m in value.members]
        return f"classic generation {value.generation} protocol {value.protocol} members [{' '.join(members)}]"

    def _say(self, name: str, value: Any) -> str:
        names: ConsumerTranscript = self._names  # type: ignore[assignment]  # the base class knows the base class
        if name == "Metadata":
            return f"epoch {value.epoch}"
        if name == "MemberMetadata":
            wants = " ".join(value.subscribed_topic_names) or value.subscribed_topic_regex or "nothing"
            return f"wants {wants}{' (classic)' if value.classic_member_metadata else ''}"
        if name == "TargetAssignmentMetadata":
            return f"epoch {value.assignment_epoch}"
        if name == "TargetAssignmentMember":
            return names.partitions({topic.topic_id: topic.partitions for topic in value.topic_partitions})
        if name == "RegularExpression":
            return " ".join(value.topics) or "nothing"
        assigned = names.partitions({topic.topic_id: topic.partitions for topic in value.assigned_partitions})
        revoked = names.partitions({topic.topic_id: topic.partitions for topic in value.partitions_pending_revocation})
        text = f"epoch {value.member_epoch} {ConsumerMemberState.read(value.state).name} {assigned}"
        return text + (f" must give up {revoked}" if revoked != "nothing" else "")


_WORDS = {
    "Metadata": "group",
    "MemberMetadata": "member",
    "TargetAssignmentMetadata": "target",
    "TargetAssignmentMember": "target of",
    "CurrentMemberAssignment": "current of",
    "RegularExpression": "expression",
    "PartitionMetadata": "partitions",
}


class ConsumerTranscript(Transcript):
    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[Uuid, list[int]]] = {}

    def _recorder(self) -> Records:
        return ConsumerRecords(self)

    def partitions(self, by_topic: dict[Uuid, Any]) -> str:
        names = {topic.id: topic.name for topic in self.world.topics.values()}
        words = [f"{names.get(topic_id, '?')}{index}" for topic_id in by_topic for index in sorted(by_topic[topic_id])]
        return " ".join(sorted(words)) or "nothing"

    def do_topic(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.set_topic(arguments[0], int(arguments[1]))

    def do_drop_topic(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.drop_topic(arguments[0])

    def do_group_settings(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.world.configure_group(arguments[0], **options)

    def do_enter(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.epochs[client] = 0
        self.owned[client] = {}
        request = self._request(client, arguments[0], 0, options)
        request.rebalance_timeout_ms = int(options.get("rebalance", 60_000))
        request.topic_partitions = []
        self._send(client, request)

    def do_beat(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        epoch = int(options.get("epoch", self.epochs.get(client, 0)))
        self._send(client, self._request(client, arguments[0], epoch, options))

    def do_has(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        epoch = int(options.get("epoch", self.epochs.get(client, 0)))
        request = self._request(client, arguments[0], epoch, options)
        owned = self.owned.get(client, {})
        if "owned" in options:
            owned = {}
            for name in filter(None, options["owned"].split(",")):
                owned.setdefault(self.world.topics[name[:-1]].id, []).append(int(name[-1]))
        request.topic_partitions = [TopicPartitions(topic_id, list(indexes)) for topic_id, indexes in owned.items()]
        self._send(client, request)

    def do_exit(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self._send(client, self._request(client, arguments[0], -1, options))

    def do_pause(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self._send(client, self._request(client, arguments[0], -2, options))

    def _request(self, client: str, group: str, epoch: int, options: dict[str, str]) -> ConsumerGroupHeartbeatRequest:
        self.aliases.setdefault(client, client)
        topics = options["topics"].split(",") if "topics" in options else None
        return ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=options.get("member", client),
            member_epoch=epoch,
            instance_id=options.get("instance"),
            rack_id=None,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=topics,
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=None,
        )

    def _send(self, client: str, request: ConsumerGroupHeartbeatRequest) -> None:
        waiter = self._waiter(client, "", lambda response: self._beaten(client, response))
        self.world.coordinator.consumer_heartbeat(Caller(client, "/host", 1), request, waiter)

    def _beaten(self, client: str, response: Any) -> str:
        self.epochs[client] = response.member_epoch
        if response.assignment is None:
            return f"epoch {response.member_epoch}"
        self.owned[client] = {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}
        return f"epoch {response.member_epoch} with {self.partitions(self.owned[client])}"

    def do_show(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        group = self.world.machine().groups.get(arguments[0])
        if group is None:
            self.outcomes.append("no such group")
        elif isinstance(group, ConsumerGroup):
            self.outcomes.append(f"{group.state_name} epoch {group.group_epoch} target {group.assignment_epoch}")
            for member in sorted(group.members.values(), key=lambda candidate: self.name(candidate.member_id)):
                assigned = self.partitions({k: list(v) for k, v in member.assigned.items()})
                self.outcomes.append(
                    f"{self.name(member.member_id)} epoch {member.member_epoch} {member.state.name} {assigned}"
                )
        else:
            self.outcomes.append(f"classic {group.state_name} generation {group.generation_id}")

    def _synced(self, response: Any) -> str:
        if response.error_code:
            return ErrorCode(response.error_code).name
        return said(response.assignment)

    def _assignment(self, text: str) -> bytes:
        by_topic: dict[Uuid, set[int]] = {}
        for name in text.split("+"):
            by_topic.setdefault(self.world.topics[name[:-1]].id, set()).add(int(name[-1]))
        frozen = {topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()}
        return embedded.write_assignment(frozen, 1, self.world.machine()._context.image)


def said(assignment: bytes) -> str:
    if not assignment:
        return "nothing"
    partitions = embedded.read_assignment(assignment).assigned_partitions
    return "+".join(f"{topic.topic}{index}" for topic in partitions for index in topic.partitions) or "nothing"
