"""Whether a checkpoint belongs to this pipeline and this cluster: checked before anything is written or created.

Topic ids decide. Where a topic has none (Spark's own Kafka source, clusters before topic ids), the cluster's id decides.
Checkpoints of earlier versions without a note take the cluster of the moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import Checkpoint
from ottla.pipelines.pipeline import Pipeline, Step
from ottla.pipelines.ports import Topic, TopicTable
from ottla.pipelines.positions import Positions
from ottla.tables.fetch import recreated_error
from ottla.tables.topics import ClusterTopics

_RESTART = "restart"


def check_identity(pipeline: Pipeline, checkpoint: Checkpoint, present: ClusterTopics) -> None:
    """UserError if the stored positions belong to a different pipeline or to a different cluster."""
    noted_cluster = checkpoint.note().get("cluster")
    way_out = f"use other --checkpoints, or forget them with `ottla pipeline reset {pipeline.name}`"
    for query, step, positions in _stored(pipeline, checkpoint):
        ports = {port.name: port for port in _topics_of(step)}
        topics = {partition.topic for partition in positions.offsets} | set(positions.topic_ids)
        if topics and not topics & set(ports) and not _has_other_inputs(step, checkpoint, query):
            raise UserError(
                f"the checkpoint {checkpoint.folder} belongs to a different pipeline: its step {step.name} read "
                f"{', '.join(sorted(topics))}, and now reads {', '.join(sorted(ports))}; {way_out}"
            )
        for topic in sorted(topics & set(ports) & set(present.topic_ids)):
            if ports[topic].options.get("onTopicRecreated", "").lower() == _RESTART:
                continue
            stored_id, present_id = positions.topic_ids.get(topic), present.topic_ids[topic]
            changed = stored_id != present_id if stored_id else noted_cluster not in (None, present.cluster_id)
            if not changed:
                continue
            if noted_cluster not in (None, present.cluster_id):
                raise UserError(
                    f"the checkpoint {checkpoint.folder} belongs to the cluster {noted_cluster}, and this is the cluster "
                    f"{present.cluster_id}: its positions in {topic} mean nothing here; {way_out}"
                )
            raise recreated_error(topic, stored_id or "", present_id)


def _stored(pipeline: Pipeline, checkpoint: Checkpoint) -> Iterator[tuple[str, Step, Positions]]:
    for query in checkpoint.queries():
        step = next((step for step in pipeline.steps if _is_of(query, step)), None)
        if step is not None:
            for offsets in checkpoint.last_offsets(query):
                if _is_topics(offsets):
                    yield query, step, Positions.from_json(offsets)


def _has_other_inputs(step: Step, checkpoint: Checkpoint, query: str) -> bool:
    """A step with more or fewer inputs than before, one of them the same: Spark refuses it, and reasons.py has the words."""
    sources = checkpoint.last_offsets(query)
    ports = step.reads.values()
    streams = [port for port in ports if isinstance(port, Topic) or (isinstance(port, TopicTable) and port.changes)]
    names = {port.name for port in _topics_of(step)}
    return len(sources) != len(streams) and any(names & set(offsets) for offsets in sources)


def _is_of(query: str, step: Step) -> bool:
    """Queries are named STEP, STEP.BRANCH and TOPIC~DEAD_LETTER (version 0.1: STEP.INPUT.dead-letters)."""
    topic, tilde, _ = query.partition("~")
    if tilde:
        return any(port.name == topic for port in _topics_of(step))
    return query == step.name or query.startswith(f"{step.name}.")


def _is_topics(offsets: dict[str, Any]) -> bool:
    """Whether the offsets are those of topics; other kinds of sources store offsets of a different shape."""
    return all(isinstance(partitions, dict) for partitions in offsets.values())


def _topics_of(step: Step) -> Iterable[Topic]:
    for port in step.reads.values():
        if isinstance(port, TopicTable):
            yield port.topic
        elif isinstance(port, Topic):
            yield port
