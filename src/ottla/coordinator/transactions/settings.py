"""The settings of the transaction coordinator, by Kafka's names, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinatorSettings:
    """Each field is the broker property of the same name with dots for underscores, unless its comment names a
    different one."""

    transaction_max_timeout_ms: int = 900_000
    transaction_state_log_load_buffer_size: int = 5 * 1024 * 1024
    transaction_state_log_min_isr: int = 2
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 100 * 1024 * 1024
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = False
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    request_timeout_ms: int = 30_000

    marker_retry_ms: int = 100
    """Not a property: the pause before markers that could not be written are sent again."""

    @classmethod
    def from_config(cls, config: Any) -> TransactionCoordinatorSettings:
        """The same-named attributes of a BrokerConfig."""
        return cls(**{f.name: getattr(config, f.name) for f in fields(cls) if hasattr(config, f.name)})
