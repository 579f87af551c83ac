"""The settings of the share coordinator, by Kafka's names, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorSettings:
    """Each field is the broker property of the same name with dots for underscores."""

    share_coordinator_state_topic_num_partitions: int = 50
    share_coordinator_state_topic_replication_factor: int = 3
    share_coordinator_state_topic_min_isr: int = 2
    share_coordinator_state_topic_segment_bytes: int = 100 * 1024 * 1024
    share_coordinator_state_topic_compression_codec: int = 0
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_load_buffer_size: int = 5 * 1024 * 1024
    share_coordinator_write_timeout_ms: int = 5_000
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300_000
    share_coordinator_state_topic_prune_interval_ms: int = 300_000

    @classmethod
    def from_config(cls, config: Any) -> ShareCoordinatorSettings:
        """The same-named attributes of a BrokerConfig."""
        return cls(**{f.name: getattr(config, f.name) for f in fields(cls) if hasattr(config, f.name)})
