"""Transactions and producer ids."""

from __future__ import annotations

from ottla.env.config.checks import at_least
from ottla.env.config.settings import BOOLEAN, CLUSTER, HIGH, INT, LOW, SHORT, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class TransactionSettings(Settings):
    __slots__ = ()

    transaction_max_timeout_ms: int = setting(
        INT, 900_000, at_least(1), "Longest transaction timeout that a producer may request.", importance=HIGH
    )
    transaction_state_log_load_buffer_size: int = setting(
        INT, 5_242_880, at_least(1), "Bytes read at a time when transactions are loaded.", importance=HIGH
    )
    transaction_state_log_min_isr: int = setting(
        INT, 2, at_least(1), "min.insync.replicas of the transaction topic.", importance=HIGH
    )
    transaction_state_log_num_partitions: int = setting(
        INT, 50, at_least(1), "Partitions of the transaction topic; fixed once it exists.", importance=HIGH
    )
    transaction_state_log_replication_factor: int = setting(
        SHORT, 3, at_least(1), "Replicas of the transaction topic.", importance=HIGH
    )
    transaction_state_log_segment_bytes: int = setting(
        INT, 104_857_600, at_least(1), "Segment size of the transaction topic.", importance=HIGH
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        INT, 10_000, at_least(1), "Interval of the search for transactions past their timeout.", importance=LOW
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        INT, 3_600_000, at_least(1), "Interval of the search for expired transactional ids.", importance=LOW
    )
    transaction_partition_verification_enable: bool = setting(
        BOOLEAN, True, None,
        "Check that a partition is in the transaction before writing to it.", importance=LOW, mode=CLUSTER,
    )
    transaction_two_phase_commit_enable: bool = setting(
        BOOLEAN, False, None, "Allow producers to use two-phase commit.", importance=LOW
    )
    transactional_id_expiration_ms: int = setting(
        INT, 604_800_000, at_least(1), "A transactional id that is unused for this long is removed.", importance=HIGH
    )
    producer_id_expiration_ms: int = setting(
        INT, 86_400_000, at_least(1),
        "A partition removes a producer id that writes nothing for this long.", importance=LOW, mode=CLUSTER,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        INT, 600_000, at_least(1), "Interval of the search for expired producer ids.", importance=LOW, internal=True
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        INT, 20, at_least(1), "Pause before a partition is verified with the coordinator again.", importance=HIGH
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        INT, 100, at_least(0), "Longest time of retries of that verification.", importance=HIGH
    )
# fmt: on
