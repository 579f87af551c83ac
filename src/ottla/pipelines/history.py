"""Whether a stored position still names the same records: compares topic ids, leader epochs and ends.

A position whose history is gone is an error. With `onTopicRecreated=restart` a topic that was created again begins at its
earliest offset. With `failOnDataLoss=false` a log that was cut goes on at the cut. Nothing is skipped without one of these
options.
"""

from __future__ import annotations

from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines.logs import Log
from ottla.pipelines.options import Bounds, ReadOptions
from ottla.pipelines.positions import Positions
from ottla.tables.fetch import recreated_error


def new_beginnings(log: Log, options: ReadOptions, before: Positions, latest: Positions) -> Bounds:
    """Where partitions begin that cannot go on at `before`: new partitions, new topics and logs that were cut."""
    recreated = _recreated(before, latest)
    for topic in recreated:
        if not options.restart_recreated:
            raise recreated_error(topic, before.topic_ids[topic], latest.topic_ids[topic])
    new = [partition for partition in latest.offsets if partition not in before.offsets or partition.topic in recreated]
    begins = dict(log.earliest(new)) if new else {}
    same = {partition: offset for partition, offset in before.offsets.items() if partition.topic not in recreated}
    lost = _cut(log, same, before, latest)
    gone = [partition for partition in same if partition not in latest.offsets]
    if (gone or lost) and options.fail_on_data_loss:
        raise UserError(
            f"{', '.join(map(str, sorted([*gone, *lost])))}: the log ends before what was already read: it lost records or "
            "was cut by a new leader. Start with a new checkpoint, or set failOnDataLoss to false"
        )
    return begins | lost


def kept(before: Positions, latest: Positions) -> Bounds:
    """The offsets of `before` that belong to the topics of `latest`, and to topics that are not there now."""
    recreated = _recreated(before, latest)
    return {partition: offset for partition, offset in before.offsets.items() if partition.topic not in recreated}


def _recreated(before: Positions, latest: Positions) -> set[str]:
    """Topics with a new id. A topic that one side has no id for takes the id of the moment."""
    return {topic for topic, topic_id in latest.topic_ids.items() if before.topic_ids.get(topic, topic_id) != topic_id}


def _cut(log: Log, same: Bounds, before: Positions, latest: Positions) -> Bounds:
    """Partitions whose log no longer has what was read, and the offset behind the last record that is still the same.

    After a leader change the leader returns where the epoch of the position ends (KIP-320).
    """
    changed = {
        partition: before.leader_epochs[partition]
        for partition in same
        if partition in before.leader_epochs
        and partition in latest.leader_epochs
        and before.leader_epochs[partition] != latest.leader_epochs[partition]
    }
    ends = log.epoch_ends(changed) if changed else {}
    cut: Bounds = {}
    for partition, offset in same.items():
        end = latest.offsets.get(partition)
        if end is None:
            continue
        if 0 <= ends.get(partition, -1) < offset:
            cut[partition] = ends[partition]
        elif end < offset or _is_older(partition, changed, latest):
            cut[partition] = min(offset, end)
    return cut


def _is_older(partition: TopicPartition, changed: Bounds, latest: Positions) -> bool:
    """Epochs never fall: a lower epoch is a cluster that was restored from an older state."""
    return partition in changed and latest.leader_epochs[partition] < changed[partition]
