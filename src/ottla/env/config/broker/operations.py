"""Quotas and metrics."""

from __future__ import annotations

from ottla.env.config.checks import at_least, java_class, list_of
from ottla.env.config.effects import NO_JAVA, NO_REPORTERS, NO_WINDOWS
from ottla.env.config.settings import CLASS, CLUSTER, INT, LIST, LONG, LOW, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class OperationsSettings(Settings):
    __slots__ = ()

    quota_window_num: int = setting(INT, 11, at_least(1), "Samples that a client quota looks back on.", importance=LOW)
    quota_window_size_seconds: int = setting(INT, 1, at_least(1), "Length of a client quota's sample.", importance=LOW)
    controller_quota_window_num: int = setting(
        INT, 11, at_least(1), "Samples that the controller's mutation quota looks back on.", importance=LOW
    )
    controller_quota_window_size_seconds: int = setting(
        INT, 1, at_least(1), "Length of a sample of the controller's mutation quota.", importance=LOW
    )
    replication_quota_window_num: int = setting(
        INT, 11, at_least(1), "Samples that the replication quota looks back on.", importance=LOW, effect=NO_WINDOWS,
    )
    replication_quota_window_size_seconds: int = setting(
        INT, 1, at_least(1), "Length of a sample of the replication quota.", importance=LOW, effect=NO_WINDOWS,
    )
    alter_log_dirs_replication_quota_window_num: int = setting(
        INT, 11, at_least(1), "Samples that the quota on moves between directories looks back on.", importance=LOW, effect=NO_WINDOWS,
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        INT, 1, at_least(1), "Length of a sample of the quota on moves between directories.", importance=LOW, effect=NO_WINDOWS,
    )
    client_quota_callback_class: str | None = setting(
        CLASS, None, java_class(), "Class that computes client quotas.", importance=LOW, effect=NO_JAVA
    )
    metric_reporters: tuple[str, ...] = setting(
        LIST, ("org.apache.kafka.common.metrics.JmxReporter",), list_of(),
        "Classes that report metrics.", importance=LOW, mode=CLUSTER, effect=NO_REPORTERS,
    )
    metrics_num_samples: int = setting(
        INT, 2, at_least(1), "Samples behind a metric.", importance=LOW, effect=NO_REPORTERS
    )
    metrics_recording_level: str = setting(
        STRING, "INFO", None, "Which metrics are recorded.", importance=LOW, effect=NO_REPORTERS
    )
    metrics_sample_window_ms: int = setting(
        LONG, 30_000, at_least(1), "Length of a metric's sample.", importance=LOW, effect=NO_REPORTERS
    )
    kafka_metrics_reporters: tuple[str, ...] = setting(
        LIST, (), list_of(), "Classes that report the older metrics.", importance=LOW, effect=NO_REPORTERS
    )
    kafka_metrics_polling_interval_secs: int = setting(
        INT, 10, at_least(1), "Interval of the older reporters.", importance=LOW, effect=NO_REPORTERS
    )
# fmt: on
