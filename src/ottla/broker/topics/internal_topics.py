"""The topics that coordinators keep their state in: created at the first use, with Kafka's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.model.topic_names import OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane
    from ottla.coordinator.runtime import MachineT
    from ottla.coordinator.shards import Shards
    from ottla.coordinator.share.settings import ShareCoordinatorSettings
    from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings

log = get_logger(__name__)

TIMEOUT_MS = 30_000


async def create_topic(broker: ControlPlane, shards: Shards[MachineT], topic: CreatableTopic) -> None:
    """Create a coordinator's topic unless its creation is under way. A failure is logged; the next call retries."""
    if shards.creating_topic:
        return
    shards.creating_topic = True
    try:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        # As the broker itself, not for the client: it needs no right to create topics.
        response = await broker.controller.submit(request, None)
    finally:
        shards.creating_topic = False
    for answer in response.topics:
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.warning("topic.not_created", topic=answer.name, reason=answer.error_message)


def offsets_topic(settings: GroupCoordinatorSettings) -> CreatableTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
    return _topic(
        OFFSETS_TOPIC, settings.offsets_topic_num_partitions, settings.offsets_topic_replication_factor, configs
    )


def transaction_state_topic(settings: TransactionCoordinatorSettings) -> CreatableTopic:
    configs = {
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": str(settings.transaction_state_log_min_isr),
        "segment.bytes": str(settings.transaction_state_log_segment_bytes),
    }
    return _topic(
        TRANSACTION_STATE_TOPIC,
        settings.transaction_state_log_num_partitions,
        settings.transaction_state_log_replication_factor,
        configs,
    )


def share_state_topic(settings: ShareCoordinatorSettings) -> CreatableTopic:
    """Never compacted: what is older than all snapshots is deleted by the coordinator itself."""
    configs = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
        "retention.ms": "-1",
        "min.insync.replicas": str(settings.share_coordinator_state_topic_min_isr),
    }
    return _topic(
        SHARE_GROUP_STATE_TOPIC,
        settings.share_coordinator_state_topic_num_partitions,
        settings.share_coordinator_state_topic_replication_factor,
        configs,
    )


def _topic(name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> CreatableTopic:
    settings = [CreatableTopicConfig(key, value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, replication_factor, configs=settings)
