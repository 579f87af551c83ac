"""Settings that Kafka reads but does not list: those of its authorizer, and rates that exist only as dynamic settings."""

from __future__ import annotations

from ottla.env.config.checks import at_least
from ottla.env.config.effects import NO_REPORTERS
from ottla.env.config.settings import BOOLEAN, CLUSTER, LONG, LONG_MAX, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class UndeclaredSettings(Settings):
    __slots__ = ()

    super_users: str = setting(
        STRING, "", None, "Principals to which ACLs do not apply: User:a;User:b.", undeclared=True
    )
    allow_everyone_if_no_acl_found: bool = setting(
        BOOLEAN, False, None, "Whether a resource without any ACL is open to everyone.", undeclared=True
    )
    metrics_jmx_include: str = setting(
        STRING, "", None, "Which metrics the JMX reporter shows.", effect=NO_REPORTERS, undeclared=True
    )
    metrics_jmx_exclude: str = setting(
        STRING, "", None, "Which metrics the JMX reporter hides.", effect=NO_REPORTERS, undeclared=True
    )
    leader_replication_throttled_rate: int = setting(
        LONG, LONG_MAX, at_least(0), "Bytes per second of throttled replication that a leader sends.",
        mode=CLUSTER, undeclared=True,
    )
    follower_replication_throttled_rate: int = setting(
        LONG, LONG_MAX, at_least(0), "Bytes per second of throttled replication that a follower receives.",
        mode=CLUSTER, undeclared=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        LONG, LONG_MAX, at_least(0), "Bytes per second of moves between directories.", mode=CLUSTER, undeclared=True
    )
# fmt: on
