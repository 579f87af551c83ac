"""Requests of share groups that need the share coordinator: an event of the group, a request, an event of the group.

The group's first event writes a record of the planned change. A coordinator that dies between the two events leaves
that record, and the next coordinator continues from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ottla.coordinator.decisions import GroupDecision, Waiter
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.machine import GroupMachine
from ottla.coordinator.groups.share.heartbeat import Beat, validate_heartbeat
from ottla.coordinator.groups.share.initialization import Indexes, StateRequest
from ottla.coordinator.groups.share.offsets import OffsetAlteration, OffsetDeletion
from ottla.coordinator.groups.share.persister import SharePersister
from ottla.coordinator.shards import Shards
from ottla.coordinator.share.records import SharePartitionKey
from ottla.env.logging import get_logger
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from ottla.protocol.generated.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from ottla.protocol.generated.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from ottla.protocol.generated.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest

log = get_logger(__name__)

Errors = dict[tuple[Uuid, int], KafkaError]
Operation = Callable[[GroupMachine], GroupDecision]


class ShareCoordination:
    def __init__(
        self, shards: Shards[GroupMachine], persister: SharePersister, image: Callable[[], MetadataImage]
    ) -> None:
        self._shards = shards
        self._persister = persister
        self._image = image

    def heartbeat(self, caller: Caller, request: ShareGroupHeartbeatRequest, waiter: Waiter) -> None:
        try:
            validate_heartbeat(request)
        except KafkaError as error:
            waiter(error)
            return

        def answered(beat: Beat | KafkaError) -> None:
            if isinstance(beat, KafkaError):
                waiter(beat)
                return
            waiter(beat.response)
            if beat.state_request is not None:
                self._initialize(beat.state_request, lambda _errors: None)

        self._shards.run(request.group_id, lambda machine: machine.share.heartbeat(caller, request, answered), answered)

    def describe(self, group_id: str, waiter: Waiter) -> None:
        self._shards.run(group_id, lambda machine: machine.share.describe(group_id, waiter), waiter)

    def initialized_partitions(self, group_id: str, waiter: Waiter) -> None:
        self._shards.run(
            group_id, lambda machine: machine.share.offsets.initialized_partitions(group_id, waiter), waiter
        )

    # Altering

    def alter(self, request: AlterShareGroupOffsetsRequest, waiter: Waiter) -> None:
        def answered(alteration: OffsetAlteration | KafkaError) -> None:
            if isinstance(alteration, KafkaError):
                waiter(alteration)
            else:
                self._initialize(alteration.state_request, partial(finish, alteration.response))

        def finish(response: AlterShareGroupOffsetsResponse, errors: Errors) -> None:
            for topic in response.responses:
                for row in topic.partitions:
                    error = errors.get((topic.topic_id, row.partition_index))
                    if error is not None:
                        row.error_code, row.error_message = error.code, error.code.message
            waiter(response)

        self._shards.run(request.group_id, lambda machine: machine.share.offsets.alter(request, answered), answered)

    def _initialize(self, request: StateRequest, done: Callable[[Errors], None]) -> None:
        """Initialize the state of every partition, then run an event of the group with the outcome.

        One failure fails the whole request: the next heartbeat asks for all partitions again.
        """
        group_id = request.group_id
        partitions = {topic_id: frozenset(offsets) for topic_id, offsets in request.start_offsets.items()}

        def finish(errors: Errors) -> None:
            if errors:
                reason = next(iter(errors.values())).message
                log.warning("share_state.not_initialized", group=group_id, reason=reason)

            def outcome(machine: GroupMachine) -> GroupDecision:
                offsets = machine.share.offsets
                act = offsets.uninitialized if errors else offsets.initialized
                return act(group_id, partitions, lambda _answer: done(errors))

            self._shards.run(group_id, outcome, lambda _error: done(errors))

        def ask(key: SharePartitionKey, waiter: Waiter) -> None:
            start_offset = request.start_offsets[key.topic_id][key.partition]
            self._persister.initialize(key, request.state_epoch, start_offset, waiter)

        _ask_all(group_id, partitions, ask, finish)

    # Deleting

    def delete(self, request: DeleteShareGroupOffsetsRequest, waiter: Waiter) -> None:
        def answered(deletion: OffsetDeletion | KafkaError) -> None:
            if isinstance(deletion, KafkaError):
                waiter(deletion)
            else:
                _ask_all(request.group_id, deletion.partitions, self._persister.delete, partial(finish, deletion))

        def finish(deletion: OffsetDeletion, errors: Errors) -> None:
            failed = {topic_id: error.code for (topic_id, _), error in errors.items()}
            deleted_ids = [topic_id for topic_id in deletion.partitions if topic_id not in failed]
            rows = list(deletion.refused)
            for topic_id in deletion.partitions:
                code = failed.get(topic_id, ErrorCode.NONE)
                rows.append(
                    DeleteShareGroupOffsetsResponseTopic(
                        self._name(topic_id), topic_id, code, code.message if topic_id in failed else None
                    )
                )
            response = DeleteShareGroupOffsetsResponse(responses=rows)
            self._shards.run(
                request.group_id,
                lambda machine: machine.share.offsets.deleted(
                    request.group_id, deleted_ids, lambda _none: waiter(response)
                ),
                waiter,
            )

        self._shards.run(request.group_id, lambda machine: machine.share.offsets.delete(request, answered), answered)

    def finish_deletion(
        self, group_id: str, waiter: Waiter, partitions: Mapping[Uuid, frozenset[int]] | KafkaError
    ) -> None:
        """The states first, then the group: a half-deleted group can be deleted again."""

        def finish(errors: Errors) -> None:
            if errors:
                waiter(next(iter(errors.values())))
            else:
                self._shards.run(group_id, lambda machine: machine.listing.delete(group_id, waiter), waiter)

        if isinstance(partitions, KafkaError):
            waiter(partitions)
        else:
            _ask_all(group_id, partitions, self._persister.delete, finish)

    def _name(self, topic_id: Uuid) -> str:
        topic = self._image().topics_by_id.get(topic_id)
        return "" if topic is None else topic.name


def _ask_all(
    group_id: str,
    partitions: Indexes,
    ask: Callable[[SharePartitionKey, Waiter], None],
    done: Callable[[Errors], None],
) -> None:
    """Ask for every share-partition; `done` gets the errors once all have answered."""
    keys = [SharePartitionKey(group_id, topic_id, index) for topic_id in partitions for index in partitions[topic_id]]
    errors: Errors = {}
    unanswered = len(keys)
    if not keys:
        done(errors)

    def answered(key: SharePartitionKey, answer: object) -> None:
        nonlocal unanswered
        if isinstance(answer, KafkaError):
            errors[key.topic_id, key.partition] = answer
        unanswered -= 1
        if unanswered == 0:
            done(errors)

    for key in keys:
        ask(key, partial(answered, key))
