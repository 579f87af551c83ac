"""Transcripts of streams groups: the verbs of KIP-1071 beside those of `consumer_transcript` for topics and settings.

A start g                   the first heartbeat of a word count: `lines` -> `again` (repartition) -> a store (`log`);
                            process= sets the process of the thread (default: its own), endpoint=host:port
A beat g                    a heartbeat with only its epoch (epoch= sets a different epoch; shutdown=1 asks for the end)
A has g                     a heartbeat with the owned tasks: those of the last answer (or owned=0_0,1_1)
A exit g                    leaves
show g                      the group: epochs, and each member's epoch, state and tasks; standby tasks in brackets
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.members import StreamsMemberState
from ottla.coordinator.groups.streams.statuses import StatusCode
from ottla.coordinator.records import GroupKindRecord
from ottla.protocol.generated.streams_group_heartbeat_request import Endpoint, StreamsGroupHeartbeatRequest
from tests.coordinator.consumer_transcript import ConsumerTranscript
from tests.coordinator.streams_topologies import beating, task_ids, word_count
from tests.coordinator.transcript import Records

_WORDS = {
    "Metadata": "group",
    "Topology": "topology",
    "MemberMetadata": "member",
    "TargetAssignmentMetadata": "target",
    "TargetAssignmentMember": "target of",
    "CurrentMemberAssignment": "current of",
}


class StreamsRecords(Records):
    def replay(self, offset: int, producer_id: int, record: Any) -> None:
        if not isinstance(record, GroupKindRecord):
            super().replay(offset, producer_id, record)
            return
        key, value = record
        name = type(key).__name__.removeprefix("StreamsGroup").removesuffix("Key")
        who = f" {key.member_id}" if hasattr(key, "member_id") else ""
        self.lines.append(f"wrote {_WORDS[name]}{who}: {'tombstone' if value is None else _said(name, value)}")


def _said(name: str, value: Any) -> str:
    if name == "Metadata":
        return f"epoch {value.epoch} topology {value.validated_topology_epoch}"
    if name == "Topology":
        return f"epoch {value.epoch} of {len(value.subtopologies)}"
    if name == "MemberMetadata":
        return f"of {value.process_id}"
    if name == "TargetAssignmentMetadata":
        return f"epoch {value.assignment_epoch}"
    if name == "TargetAssignmentMember":
        return _tasks(_plain(value.active_tasks), _plain(value.standby_tasks))
    revoked = _tasks(_plain(value.active_tasks_pending_revocation), _plain(value.standby_tasks_pending_revocation))
    text = f"epoch {value.member_epoch} {StreamsMemberState.read(value.state).name} "
    text += _tasks(_plain(value.active_tasks), _plain(value.standby_tasks))
    return text + (f" must give up {revoked}" if revoked != "nothing" else "")


def _plain(listed: Iterable[Any]) -> dict[str, list[int]]:
    return {tasks.subtopology_id: tasks.partitions for tasks in listed}


def _tasks(active: Mapping[str, Iterable[int]], standby: Mapping[str, Iterable[int]]) -> str:
    words = [
        f"{subtopology_id}_{index}" for subtopology_id in sorted(active) for index in sorted(active[subtopology_id])
    ]
    words += [
        f"({subtopology_id}_{index})" for subtopology_id in sorted(standby) for index in sorted(standby[subtopology_id])
    ]
    return " ".join(words) or "nothing"


class StreamsTranscript(ConsumerTranscript):
    def __init__(self) -> None:
        super().__init__()
        self.do_settings("", [], {})
        self.tasks: dict[str, dict[str, dict[str, list[int]]]] = {}

    def do_settings(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        super().do_settings(client, arguments, {"group.streams.initial.rebalance.delay.ms": "0", **options})

    def _recorder(self) -> Records:
        return StreamsRecords(self)

    def do_start(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self.tasks[client] = {"active": {}, "standby": {}}
        request = beating(arguments[0], client, 0, word_count("lines", "again", "log"))
        request.process_id = options.get("process", client)
        if "endpoint" in options:
            host, port = options["endpoint"].split(":")
            request.user_endpoint = Endpoint(host, int(port))
        self._beat(client, request)

    def do_beat(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        request = beating(arguments[0], client, int(options.get("epoch", self.epochs.get(client, 0))))
        request.shutdown_application = "shutdown" in options
        self._beat(client, request)

    def do_has(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        request = beating(arguments[0], client, int(options.get("epoch", self.epochs.get(client, 0))))
        thread_tasks = self.tasks.get(client, {"active": {}, "standby": {}})
        active = thread_tasks["active"]
        if "owned" in options:
            active = {}
            for word in filter(None, options["owned"].split(",")):
                active.setdefault(word[0], []).append(int(word[2:]))
        request.active_tasks, request.standby_tasks = task_ids(active), task_ids(thread_tasks["standby"])
        request.warmup_tasks = []
        self._beat(client, request)

    def do_exit(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        self._beat(client, beating(arguments[0], client, -1))

    def _beat(self, client: str, request: StreamsGroupHeartbeatRequest) -> None:
        waiter = self._waiter(client, "", lambda answer: self._answered(client, answer))
        self.world.coordinator.streams_heartbeat(Caller(client, "/host", 0), request, waiter)

    def _answered(self, client: str, answer: Any) -> str:
        response = answer.response
        self.epochs[client] = response.member_epoch
        text = f"epoch {response.member_epoch}"
        if response.active_tasks is not None:
            self.tasks[client] = {"active": _plain(response.active_tasks), "standby": _plain(response.standby_tasks)}
            text += f" with {_tasks(**self.tasks[client])}"
        for status in response.status:
            text += f", {StatusCode(status.status_code).name}"
        if answer.missing_topics:
            text += f" ({' '.join(f'{topic.name} {topic.partitions}' for topic in answer.missing_topics)})"
        for endpoint_partitions in response.partitions_by_user_endpoint or ():
            at = " ".join(f"{topic.topic}{topic.partitions}" for topic in endpoint_partitions.active_partitions)
            text += f"; {endpoint_partitions.user_endpoint.host} has {at or 'nothing'}"
        return text

    def do_show(self, client: str, arguments: list[str], options: dict[str, str]) -> None:
        group = self.world.machine().groups.get(arguments[0])
        if not isinstance(group, StreamsGroup):
            super().do_show(client, arguments, options)
            return
        self.outcomes.append(f"{group.state_name} epoch {group.group_epoch} target {group.assignment_epoch}")
        for member in sorted(group.members.values(), key=lambda candidate: candidate.member_id):
            tasks = _tasks(member.assigned.active, member.assigned.standby)
            self.outcomes.append(f"{member.member_id} epoch {member.member_epoch} {member.state.name} {tasks}")
