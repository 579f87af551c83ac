"""Where each query stands in its inputs, as a consumer group with the query's name: lag is there for every Kafka tool.

The positions come from Spark's progress events and are committed after each batch. Nothing reads them: a query goes on at
its checkpoint. Unchanged positions are committed again every hour, so that brokers do not expire them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.connect.clients import librdkafka_settings, quiet
from ottla.env.logging import get_logger
from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines.positions import RESERVED_KEY

_KEEP_S = 3600.0
_TIMEOUT_S = 10.0
_log = get_logger(__name__)


def group_of(pipeline: str, query: str) -> str:
    return f"{pipeline}.{query}"


def forget_groups(client: Mapping[str, str], groups: Iterable[str]) -> None:
    """Deletes the positions of queries that do not run. A group that others use as members stays."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    names = sorted(groups)
    admin = AdminClient(librdkafka_settings(quiet(client)))
    for group, deleted in admin.delete_consumer_groups(names).items() if names else ():
        try:
            deleted.result(_TIMEOUT_S)
        except KafkaException as problem:
            if problem.args[0].code() not in (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.NON_EMPTY_GROUP):
                raise UserError(f"the group {group} cannot be deleted: {problem.args[0].str()}") from problem


class InputGroups:
    def __init__(self, client: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._admin: Any = None
        self._committed: dict[str, tuple[dict[TopicPartition, int], float]] = {}
        self._answers: dict[str, Any] = {}
        self._refused: set[str] = set()

    def commit(self, group: str, progress: Mapping[str, Any]) -> None:
        """Sends the positions if they changed. A failure is logged once for each group: the query itself goes on."""
        answer = self._answers.get(group)
        if answer is not None and not answer.done():
            return  # the next call has newer positions
        self._check(group)
        positions = positions_of(progress)
        before, at = self._committed.get(group, ({}, 0.0))
        if not positions or (positions == before and self._clock() - at < _KEEP_S):
            return
        self._committed[group] = positions, self._clock()
        self._answers[group] = self._sent(group, positions)

    def close(self) -> None:
        """Waits for the answers that are on their way."""
        for group in list(self._answers):
            self._check(group)

    def _sent(self, group: str, positions: Mapping[TopicPartition, int]) -> Any:
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka import TopicPartition as Place
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(librdkafka_settings(quiet(self._client)))
        places = [Place(*partition, offset) for partition, offset in sorted(positions.items())]
        request = [ConsumerGroupTopicPartitions(group, places)]
        return self._admin.alter_consumer_group_offsets(request, request_timeout=_TIMEOUT_S)[group]

    def _check(self, group: str) -> None:
        from confluent_kafka import KafkaException

        answer = self._answers.pop(group, None)
        if answer is None:
            return
        try:
            errors = [place.error for place in answer.result(_TIMEOUT_S).topic_partitions if place.error is not None]
        except (KafkaException, TimeoutError) as problem:
            errors = [problem]
        if errors:
            self._committed.pop(group, None)
        if errors and group not in self._refused:
            self._refused.add(group)
            _log.warning("input_positions.not_committed", group=group, reason=str(errors[0]))


def positions_of(progress: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The ends of a batch in all topics. A topic that is read twice stands where the slower reader does."""
    positions: dict[TopicPartition, int] = {}
    for source in progress.get("sources") or ():
        end = source["endOffset"]
        by_topic = _json(end) if isinstance(end, str) else end
        if not isinstance(by_topic, dict):
            continue  # not a topic
        for topic, offsets in by_topic.items():
            if topic == RESERVED_KEY or not isinstance(offsets, dict):
                continue
            for number, offset in offsets.items():
                partition = TopicPartition(topic, int(number))
                positions[partition] = min(int(offset), positions.get(partition, int(offset)))
    return {partition: offset for partition, offset in positions.items() if offset >= 0}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
