"""Another Kafka or Ottla cluster as a sink: each piece is one transaction there, with its marker (exactly_once)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar

from ottla.connect.clients import quiet
from ottla.connect.connector import RecordSink
from ottla.connect.exactly_once import ExactlyOnce
from ottla.connect.remote_topics import RemoteTopics, cluster_settings, ensure_topic
from ottla.connect.sender import Outgoing
from ottla.connect.sinks.base import Work
from ottla.connect.topic_settings import TopicSettingsSync
from ottla.model.marker_groups import connector_writer
from ottla.tables.topics import check_reachable


class ClusterSink(RecordSink):
    """target.cluster.bootstrap.servers (and further target.cluster.* client settings), topics or topics.regex,
    source.cluster.alias, replication.policy.class, sync.topic.configs.enabled and what else topic_settings reads."""

    raw_records: ClassVar[bool] = True

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._client = quiet(cluster_settings(config, "target"))
        self._writer = connector_writer(config.get("name", ""))
        self._topics = RemoteTopics(config)
        self._topic_settings = TopicSettingsSync(config)
        self._source: Mapping[str, str] = {}
        self._attempts: dict[str, ExactlyOnce] = {}
        self._made: dict[str, int] = {}
        self._open = ExitStack()

    def begin(self, source: Mapping[str, str]) -> None:
        self._source = source
        check_reachable(self._client)

    def topic(self, name: str, partitions: int) -> str:
        target = self._topics.name(name)
        if self._made.get(name) != partitions:
            ensure_topic(self._client, target, partitions, lambda: self._topic_settings.of(self._source, name))
            self._made[name] = partitions
        return target

    def put_records(self, records: Sequence[Outgoing], work: Work) -> None:
        if self._topic_settings.is_due():
            self._topic_settings.sync(
                self._source, self._client, {topic: self._topics.name(topic) for topic in self._made}
            )
        attempt = self._attempt(work.application)
        attempt.version = work.version
        if attempt.done() is None:
            attempt.write(records)

    def reached(self, application: str) -> int | None:
        return self._attempt(application).reached()

    def keep(self) -> None:
        for attempt in self._attempts.values():
            attempt.keep()

    def close(self) -> None:
        self._open.close()

    def _attempt(self, application: str) -> ExactlyOnce:
        """One transactional producer for each partition that is read: a new worker fences the one before."""
        if application not in self._attempts:
            attempt = ExactlyOnce(self._client, application, 0, -1, None, writer=self._writer)
            self._attempts[application] = self._open.enter_context(attempt)
        return self._attempts[application]
