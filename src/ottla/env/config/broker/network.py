"""Listeners, sockets, and the limits on connections, requests and fetches."""

from __future__ import annotations

from ottla.env.config.checks import at_least, list_of, one_of
from ottla.env.config.effects import NO_BACKLOG, NO_BUFFERS, NO_QUEUE, NO_THREADS, ONE_TIMEOUT
from ottla.env.config.settings import (
    CLUSTER,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    PER_BROKER,
    STRING,
    Settings,
    setting,
)


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class NetworkSettings(Settings):
    __slots__ = ()

    listeners: tuple[str, ...] = setting(
        LIST, ("PLAINTEXT://:9092",), list_of(may_be_empty=False),
        "Where the node listens: NAME://host:port,...; an empty host means every interface.",
        importance=HIGH, mode=PER_BROKER,
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        LIST, None, list_of(may_be_empty=False),
        "Addresses that clients connect to, as returned in metadata; listeners unless set.", importance=HIGH,
    )
    listener_security_protocol_map: str = setting(
        STRING, "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None,
        "Security protocol of each listener name: NAME:PLAINTEXT,...", importance=LOW, mode=PER_BROKER,
    )
    inter_broker_listener_name: str | None = setting(
        STRING, None, None, "Name of the listener that brokers use to reach each other."
    )
    security_inter_broker_protocol: str = setting(
        STRING, "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "Protocol among brokers, when inter.broker.listener.name is not set.",
    )
    early_start_listeners: tuple[str, ...] | None = setting(
        LIST, None, list_of(), "Listeners that open before the authorizer is ready.", importance=HIGH
    )
    num_network_threads: int = setting(
        INT, 3, at_least(1),
        "Threads that read and write sockets, per listener.", importance=HIGH, mode=CLUSTER, effect=NO_THREADS,
    )
    socket_send_buffer_bytes: int = setting(
        INT, 102_400, None,
        "Send buffer of a client's socket; -1 leaves it to the system.", importance=HIGH, effect=NO_BUFFERS,
    )
    socket_receive_buffer_bytes: int = setting(
        INT, 102_400, None,
        "Receive buffer of a client's socket; -1 leaves it to the system.", importance=HIGH, effect=NO_BUFFERS,
    )
    socket_listen_backlog_size: int = setting(INT, 50, at_least(1), "Connections that may wait to be accepted.", effect=NO_BACKLOG)
    socket_request_max_bytes: int = setting(
        INT, 104_857_600, at_least(1), "Largest request; a longer frame closes the connection.", importance=HIGH
    )
    socket_connection_setup_timeout_ms: int = setting(
        LONG, 10_000, None, "Wait for a connection to another node, first try.", effect=ONE_TIMEOUT,
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        LONG, 30_000, None, "Longest wait for a connection to another node after failures.", effect=ONE_TIMEOUT,
    )
    connections_max_idle_ms: int = setting(
        LONG, 600_000, None, "A connection without a request this long is closed; -1 never."
    )
    connection_failed_authentication_delay_ms: int = setting(
        INT, 100, at_least(0), "Pause before the connection of a failed login is closed.", importance=LOW
    )
    max_connections: int = setting(
        INT, INT_MAX, at_least(0), "Most connections to this node; also per listener by prefix.", mode=CLUSTER
    )
    max_connections_per_ip: int = setting(INT, INT_MAX, at_least(0), "Most connections from one address.", mode=CLUSTER)
    max_connections_per_ip_overrides: str = setting(
        STRING, "", None, "Limits of connections for single addresses: host:number,...", mode=CLUSTER
    )
    max_connection_creation_rate: int = setting(
        INT, INT_MAX, at_least(0), "Most new connections per second; also per listener by prefix.", mode=CLUSTER
    )
    queued_max_requests: int = setting(
        INT, 500, at_least(1), "Requests that may wait before reading from sockets pauses.", importance=HIGH, effect=NO_QUEUE,
    )
    queued_max_request_bytes: int = setting(
        LONG, -1, None, "Bytes of requests that may wait before reading pauses; -1 sets no limit."
    )
    fetch_max_bytes: int = setting(
        INT, 57_671_680, at_least(1024), "Most bytes in one fetch response; a larger request of a client is reduced."
    )
    max_incremental_fetch_session_cache_slots: int = setting(INT, 1000, at_least(0), "Fetch sessions kept at once.")
# fmt: on
