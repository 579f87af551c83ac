"""Settings that only Ottla has; every name begins with `ottla.`, so that none can ever be one of Kafka's."""

from __future__ import annotations

from ottla.env.config.checks import at_least, between, http_address, list_of
from ottla.env.config.settings import BOOLEAN, CLUSTER, DOUBLE, INT, LIST, LONG, PASSWORD, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class OttlaSettings(Settings):
    __slots__ = ()

    ottla_ssl_security_level: int = setting(
        INT, -1, between(-1, 5),
        "OpenSSL's security level: 0 accepts chains with SHA-1 and short keys; -1 is the library's default.",
        undeclared=True,
    )
    ottla_sasl_oauthbearer_allowed_urls: tuple[str, ...] = setting(
        LIST, (), list_of(),
        "Addresses that sasl.oauthbearer.jwks.endpoint.url may name; the node refuses to open others.", undeclared=True,
    )
    ottla_sasl_oauthbearer_unsecured_enable: bool = setting(
        BOOLEAN, False, None,
        "Accept unsigned OAUTHBEARER tokens, for development only: a client can claim any name.", undeclared=True,
    )
    ottla_encryption_master_key_file: str | None = setting(
        STRING, None, None,
        "File with the master keys of encryption at rest, one ID:BASE64 a line, the first in use.", undeclared=True,
    )
    ottla_encryption_master_key_env: str | None = setting(
        STRING, None, None, "Environment variable with the master keys, as in the file.", undeclared=True
    )
    ottla_encryption_master_key_command: str | None = setting(
        PASSWORD, None, None,
        "Command that prints the master keys, as in the file; run at start and every refresh.ms.",
        undeclared=True,
    )
    ottla_encryption_master_key_url: str | None = setting(
        STRING, None, None,
        "Key server with Vault's API: /v1/transit/decrypt/NAME with wrapped.file, else a secret's address.",
        undeclared=True,
    )
    ottla_encryption_master_key_wrapped_file: str | None = setting(
        STRING, None, None,
        "File with master keys that the key server unwraps, one ID:vault:v1:... a line, first in use.", undeclared=True,
    )
    ottla_encryption_master_key_token_file: str | None = setting(
        STRING, None, None, "File with the token for the key server; read again each time.", undeclared=True
    )
    ottla_encryption_master_key_ca_file: str | None = setting(
        STRING, None, None, "PEM file with the authority that signed the key server's certificate.", undeclared=True
    )
    ottla_encryption_master_key_refresh_ms: int = setting(
        INT, 300_000, at_least(100),
        "How often the command or the key server is asked for the master keys while the node runs.", undeclared=True,
    )
    ottla_encryption_refuse_plain: bool = setting(
        BOOLEAN, False, None,
        "With encryption at rest, refuse every plain file of records, also in a directory that lost its mark.",
        undeclared=True,
    )
    ottla_http_listener: str = setting(
        STRING, "", None,
        "HOST:PORT where the node serves metrics, health and lineage over HTTP; empty serves none.", undeclared=True,
    )
    ottla_http_users_file: str | None = setting(
        STRING, None, None,
        "File of users of metrics and lineage over HTTP, one NAME:ROLE:HASH a line; health needs no login.",
        undeclared=True,
    )
    ottla_http_tls_certificate: str | None = setting(
        STRING, None, None, "PEM file with the certificate chain, for HTTPS on ottla.http.listener.", undeclared=True
    )
    ottla_http_tls_key: str | None = setting(
        STRING, None, None, "PEM file with the key of the certificate, if the key is not in the certificate's file.",
        undeclared=True,
    )
    ottla_http_tls_client_ca: str | None = setting(
        STRING, None, None, "PEM file with the authorities whose certificates HTTPS clients must show.", undeclared=True
    )
    ottla_http_allowed_hosts: tuple[str, ...] = setting(
        LIST, (), list_of(),
        "Host names that ottla.http.listener accepts besides loopback, addresses and advertised names.",
        undeclared=True,
    )
    ottla_http_max_connections: int = setting(
        INT, 64, at_least(1), "Most HTTP connections at once; a new connection closes the connection that was idle longest.",
        undeclared=True,
    )
    ottla_http_request_timeout_ms: int = setting(
        INT, 10_000, at_least(1), "Longest time from the start of an HTTP connection to the end of its response.",
        undeclared=True,
    )
    ottla_allow_open: bool = setting(
        BOOLEAN, False, None,
        "Allow ottla.http.listener to serve an address other than loopback without a login.", undeclared=True,
    )
    ottla_busy_poll_us: int = setting(
        INT, 200, between(0, 10_000),
        "How long a busy node polls for the next small request before it sleeps.",
        undeclared=True,
    )
    ottla_loop_stall_ms: int = setting(
        INT, 250, between(0, 60_000),
        "Delay of the event loop from which a node logs loop.stalled with the stack; 0 stops the watch.",
        undeclared=True,
    )
    ottla_traces_endpoint: str = setting(
        STRING, "", http_address,
        "OpenTelemetry collector of a span per request, as http://HOST:4318/v1/traces; empty sends none.",
        undeclared=True,
    )
    ottla_traces_sample_ratio: float = setting(
        DOUBLE, 1.0, between(0, 1), "Share of requests that become spans, from 0 to 1.", undeclared=True
    )
    ottla_audit_enable: bool = setting(
        BOOLEAN, False, None, "Whether logins, refusals and changes are written to __ottla_audit.", undeclared=True
    )
    ottla_audit_queue_max_events: int = setting(
        INT, 10_000, at_least(1), "Audit events that may wait to be written; more are counted and dropped.",
        undeclared=True,
    )
    ottla_validate_records: bool = setting(
        BOOLEAN, False, None,
        "Whether records inside produced batches are validated as in Apache Kafka, on all topics.",
        mode=CLUSTER, undeclared=True,
    )
    ottla_request_max_elements: int = setting(
        INT, 1_000_000, at_least(1000),
        "Most elements (topics, groups, ...) of one request; a larger request closes its connection.",
        undeclared=True,
    )
    ottla_request_max_changes: int = setting(
        INT, 10_000, at_least(1000),
        "Most elements of one request that changes groups, topics, settings or ACLs in one step.",
        undeclared=True,
    )
    ottla_response_max_elements: int = setting(
        INT, 4_000_000, at_least(1000),
        "Most elements of one response; a request for more closes its connection.",
        undeclared=True,
    )
    ottla_response_max_queued_bytes: int = setting(
        LONG, 268_435_456, at_least(1_048_576),
        "Most bytes of unread responses; above this limit the oldest connection is closed.",
        undeclared=True,
    )
    ottla_schema_registry_url: str | None = setting(
        STRING, None, None, "URL of the schema registry that ottla.schema.validation of topics uses.", undeclared=True
    )
    ottla_schema_validation_max_schemas: int = setting(
        INT, 1000, at_least(1), "Most schemas in the cache that checks records.", undeclared=True
    )
    ottla_schema_validation_max_record_bytes: int = setting(
        INT, 4 * 1024 * 1024, at_least(1), "The largest key or value that is checked against a schema; larger ones are refused.",
        undeclared=True,
    )
    ottla_schema_validation_max_ms: int = setting(
        INT, 5000, at_least(1),
        "Longest time to check the records of one batch; a slower batch is refused.",
        undeclared=True,
    )
    ottla_schema_registry_timeout_ms: int = setting(
        INT, 5000, at_least(1), "How long a produce request waits for a schema that is not cached.", undeclared=True
    )
# fmt: on
