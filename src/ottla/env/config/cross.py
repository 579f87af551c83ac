"""Checks between settings, each in Kafka's words. All of them are reported, not only the first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .broker.config import BrokerConfig
from .listeners import ListenerError
from .problems import Problem
from .roles import listener_problems

_HOST: Final = r"[0-9a-zA-Z\-%._:]+"
_BUILT_IN_ASSIGNORS: Final = {"group.consumer.assignors": ("uniform", "range"), "group.share.assignors": ("simple",)}
_MIB: Final = 1 << 20

_AT_MOST: Final = (
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    ("group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    ("group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
    ("group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.share.min.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", "group.share.max.delivery.count.limit"),
    ("group.share.min.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", "group.share.max.partition.max.record.locks"),
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"),
    ("group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"),
    ("group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"),
)
"""The second must be greater than or equal to the first."""

_BOUNDED: Final = tuple(
    f"group.{kind}.{{}}{what}"
    for kind in ("consumer", "share", "streams")
    for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
)
"""Settings with a min. and a max. of their own name."""


def cross_problems(config: BrokerConfig) -> Iterator[Problem]:
    yield from _node(config)
    yield from _log(config)
    yield from _replication(config)
    yield from _groups(config)
    yield from _network(config)
    yield from _quorum(config)
    try:
        _ = config.endpoints
    except ListenerError as error:
        yield Problem(error.name, str(error))
    else:
        yield from listener_problems(config)


def _node(config: BrokerConfig) -> Iterator[Problem]:
    if config.node_id != config.broker_id:
        yield Problem("broker.id", "You must set `node.id` to the same value as `broker.id`.")


def _log(config: BrokerConfig) -> Iterator[Problem]:
    defaults = config.topic_defaults
    if defaults.segment_ms < 1:
        yield Problem("log.roll.ms", "log.roll.ms must be greater than or equal to 1", requirement=True)
    if defaults.segment_jitter_ms < 0:
        yield Problem("log.roll.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0", requirement=True)
    if defaults.retention_ms == 0:
        yield Problem(
            "log.retention.ms",
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
            requirement=True,
        )
    cordoned = config.cordoned_log_dirs or ()
    if "*" in cordoned and len(cordoned) > 1:
        yield Problem(
            "cordoned.log.dirs",
            "When cordoned.log.dirs is set to *, it must not contain other values",
            requirement=True,
        )
    elif missing := [path for path in cordoned if path != "*" and path not in config.data_dirs]:
        yield Problem(
            "cordoned.log.dirs",
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
            + ", ".join(missing),
            requirement=True,
        )
    if config.log_cleaner_threads == 0:
        yield Problem("log.cleaner.threads", "log.cleaner.threads must be at least 1")
    elif config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads <= _MIB:
        yield Problem(
            "log.cleaner.dedupe.buffer.size",
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
            requirement=True,
        )


def _replication(config: BrokerConfig) -> Iterator[Problem]:
    if config.replica_fetch_wait_max_ms > config.replica_socket_timeout_ms:
        yield Problem(
            "replica.socket.timeout.ms",
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
            "socket timeouts",
            requirement=True,
        )
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        yield Problem(
            "replica.fetch.wait.max.ms",
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent "
            "frequent changes in ISR",
            requirement=True,
        )


def _groups(config: BrokerConfig) -> Iterator[Problem]:
    def value(name: str) -> int:
        return int(getattr(config, name.replace(".", "_")))

    for low, high in _AT_MOST:
        if value(low) > value(high):
            yield Problem(high, f"{high} must be greater than or equal to {low}")
    for template in _BOUNDED:
        name, low, high = template.format(""), template.format("min."), template.format("max.")
        if value(name) < value(low):
            yield Problem(name, f"{name} must be greater than or equal to {low}")
        if value(name) > value(high):
            yield Problem(name, f"{name} must be less than or equal to {high}")
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if value(heartbeat) >= value(session):
            yield Problem(heartbeat, f"{heartbeat} must be less than {session}")
    if config.group_streams_num_standby_replicas > config.group_streams_max_standby_replicas:
        name = "group.streams.num.standby.replicas"
        yield Problem(name, f"{name} must be less than or equal to group.streams.max.standby.replicas")
    if "classic" not in config.group_coordinator_rebalance_protocols:
        yield Problem("group.coordinator.rebalance.protocols", "Disabling the 'classic' protocol is not supported.")
    yield from _assignors(config)


def _assignors(config: BrokerConfig) -> Iterator[Problem]:
    for name, built_in in _BUILT_IN_ASSIGNORS.items():
        assignors = getattr(config, name.replace(".", "_"))
        for assignor in assignors:
            if assignor not in built_in:
                yield Problem(name, f"Class {assignor} cannot be found; the assignors here are {', '.join(built_in)}")
    if (count := len(config.group_share_assignors)) != 1:
        name = "group.share.assignors"
        yield Problem(name, f"{name} must contain exactly one assignor, but found {count}")


def _network(config: BrokerConfig) -> Iterator[Problem]:
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        yield Problem(
            "queued.max.request.bytes",
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
            requirement=True,
        )
    yield from _connection_limits(config)
    delay, idle = config.connection_failed_authentication_delay_ms, config.connections_max_idle_ms
    if 0 <= idle <= delay:
        yield Problem(
            "connection.failed.authentication.delay.ms",
            f"connection.failed.authentication.delay.ms={delay} should always be less than "
            f"connections.max.idle.ms={idle} to prevent failed authentication responses from timing out",
            requirement=True,
        )


def _connection_limits(config: BrokerConfig) -> Iterator[Problem]:
    name = "max.connections.per.ip.overrides"
    try:
        limits = config.connection_limits
    except ListenerError as error:
        yield Problem(name, str(error))
        return
    except ValueError:
        yield Problem(name, f"{config.max_connections_per_ip_overrides}: a limit is not a number; give host:number,...")
        return
    if config.max_connections_per_ip == 0 and not limits:
        yield Problem(
            "max.connections.per.ip",
            f"max.connections.per.ip can be set to zero only if {name} property is set.",
            requirement=True,
        )
    if bad := [host for host in limits if not re.fullmatch(_HOST, host)]:
        yield Problem(name, f"{name} contains invalid addresses : {','.join(bad)}")


def _quorum(config: BrokerConfig) -> Iterator[Problem]:
    voters = sorted(config.voters)
    if not voters and not config.controller_quorum_bootstrap_servers:
        yield Problem(
            "controller.quorum.voters",
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers.",
        )
    named = f"voters controller.quorum.voters=Set({', '.join(map(str, voters))})"
    if config.is_controller and voters and config.node_id not in voters:
        yield Problem(
            "controller.quorum.voters",
            f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in the "
            f"set of {named}",
            requirement=True,
        )
    if not config.is_controller and config.node_id in voters:
        yield Problem(
            "controller.quorum.voters",
            f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in "
            f"the set of {named}",
            requirement=True,
        )
    if config.controller_quorum_auto_join_enable and not config.is_controller:
        yield Problem(
            "controller.quorum.auto.join.enable",
            "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.",
            requirement=True,
        )
