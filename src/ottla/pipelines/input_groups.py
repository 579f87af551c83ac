"""Where each query stands in its inputs, as a consumer group with the query's name: lag is there for every Kafka tool.

The positions come from Spark's progress events and are committed after each batch. Nothing reads them: a query goes on at
its checkpoint. Unchanged positions are committed again every hour, so that brokers do not expire them.

Our own client commits, in a thread of its own. The admin client of librdkafka (2.16.0) has ended a driver by a failed
assertion, when a broker died between requests and the requests timed out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets
from ottla.connect.clients import librdkafka_settings, quiet
from ottla.env.logging import get_logger
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines.positions import RESERVED_KEY
from ottla.tables.topics import settings_from

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
        self._cluster: Cluster | None = None
        """Used by the thread of `_sender` only."""
        self._sender: ThreadPoolExecutor | None = None
        self._committed: dict[str, tuple[dict[TopicPartition, int], float]] = {}
        self._answers: dict[str, Future[None]] = {}
        self._refused: set[str] = set()

    def commit(self, group: str, progress: Mapping[str, Any]) -> None:
        """Sends the positions if they changed. A failure is logged once for each group: the query itself goes on."""
        answer = self._answers.get(group)
        if answer is not None and not answer.done():
            return  # the next call has newer positions
        self._check(group, 0)
        positions = positions_of(progress)
        before, at = self._committed.get(group, ({}, 0.0))
        if not positions or (positions == before and self._clock() - at < _KEEP_S):
            return
        self._committed[group] = positions, self._clock()
        if self._sender is None:
            self._sender = ThreadPoolExecutor(1, thread_name_prefix="ottla-input-groups")
        self._answers[group] = self._sender.submit(self._send, group, positions)

    def close(self) -> None:
        """Waits for the answers that are on their way, no longer than a single call may last."""
        deadline = time.monotonic() + _TIMEOUT_S
        for group in list(self._answers):
            self._check(group, max(0.0, deadline - time.monotonic()))
        if self._sender is not None:
            self._sender.submit(self._hang_up)
            self._sender.shutdown(wait=False)
            self._sender = None

    def _send(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        if self._cluster is None:
            settings = settings_from(self._client, "ottla-pipelines")
            self._cluster = Cluster(replace(settings, api_timeout_ms=int(_TIMEOUT_S * 1000)))
        commit_offsets(self._cluster, group, {(topic, number): at for (topic, number), at in positions.items()})

    def _hang_up(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _check(self, group: str, patience_s: float) -> None:
        answer = self._answers.pop(group, None)
        if answer is None:
            return
        try:
            answer.result(patience_s)
        except (KafkaError, UserError, TimeoutError) as problem:
            answer.cancel()  # of a call that has not begun
            self._committed.pop(group, None)
            if group not in self._refused:
                self._refused.add(group)
                _log.warning("input_positions.not_committed", group=group, reason=str(problem))


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
