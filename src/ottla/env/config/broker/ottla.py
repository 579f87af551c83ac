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
        "OpenSSL's security level: 0 takes chains signed with SHA-1 and short keys, -1 the library's own.",
        undeclared=True,
    )
    ottla_sasl_oauthbearer_allowed_urls: tuple[str, ...] = setting(
        LIST, (), list_of(),
        "Addresses that sasl.oauthbearer.jwks.endpoint.url may name; none other is ever opened.", undeclared=True,
    )
    ottla_sasl_oauthbearer_unsecured_enable: bool = setting(
        BOOLEAN, False, None,
        "Take OAUTHBEARER tokens that nobody signed, for development: any client can name itself.", undeclared=True,
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
        "Command that prints the master keys, as in the file; run at start and again as refresh.ms says.",
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
        "HOST:PORT where the node tells its metrics, health and lineage over HTTP; empty: nowhere.", undeclared=True,
    )
    ottla_http_users_file: str | None = setting(
        STRING, None, None,
        "Who may read metrics and lineage over HTTP: a users file, NAME:ROLE:HASH a line; health stays open.",
        undeclared=True,
    )
    ottla_http_tls_certificate: str | None = setting(
        STRING, None, None, "PEM file with the certificate chain, for HTTPS on ottla.http.listener.", undeclared=True
    )
    ottla_http_tls_key: str | None = setting(
        STRING, None, None, "PEM file with the key of the certificate, where it is not in the same file.",
        undeclared=True,
    )
    ottla_http_tls_client_ca: str | None = setting(
        STRING, None, None, "PEM file with the authorities whose certificates HTTPS clients must show.", undeclared=True
    )
    ottla_http_allowed_hosts: tuple[str, ...] = setting(
        LIST, (), list_of(),
        "Further host names for ottla.http.listener; loopback, addresses and the advertised names are known.",
        undeclared=True,
    )
    ottla_http_max_connections: int = setting(
        INT, 64, at_least(1), "HTTP connections at once; the one that has been idle longest makes room for a new one.",
        undeclared=True,
    )
    ottla_http_request_timeout_ms: int = setting(
        INT, 10_000, at_least(1), "How long an HTTP connection may take from its beginning to the end of its answer.",
        undeclared=True,
    )
    ottla_allow_open: bool = setting(
        BOOLEAN, False, None,
        "Let ottla.http.listener serve an address other than loopback without a login.", undeclared=True,
    )
    ottla_busy_poll_us: int = setting(
        INT, 200, between(0, 10_000),
        "How long to look for the next request before sleeping, while small ones come one upon the other.",
        undeclared=True,
    )
    ottla_traces_endpoint: str = setting(
        STRING, "", http_address,
        "OpenTelemetry collector, http://HOST:4318/v1/traces, that gets a span for each request; empty: none.",
        undeclared=True,
    )
    ottla_traces_sample_ratio: float = setting(
        DOUBLE, 1.0, between(0, 1), "The part of the requests that become spans.", undeclared=True
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
        "Whether records inside of produced batches are read and refused as by Apache Kafka, on all topics.",
        mode=CLUSTER, undeclared=True,
    )
    ottla_request_max_elements: int = setting(
        INT, 1_000_000, at_least(1000),
        "Elements (topics, groups, ...) that one request may have; a larger one closes its connection.",
        undeclared=True,
    )
    ottla_request_max_changes: int = setting(
        INT, 10_000, at_least(1000),
        "Elements of one request that changes groups, topics, settings or ACLs, which is done in one step.",
        undeclared=True,
    )
    ottla_response_max_elements: int = setting(
        INT, 4_000_000, at_least(1000),
        "Elements that are built and written for one answer; a request for more closes its connection.",
        undeclared=True,
    )
    ottla_response_max_queued_bytes: int = setting(
        LONG, 268_435_456, at_least(1_048_576),
        "Memory of answers that clients have not read; above it the oldest one loses its connection.",
        undeclared=True,
    )
    ottla_schema_registry_url: str | None = setting(
        STRING, None, None, "The schema registry that ottla.schema.validation of topics asks.", undeclared=True
    )
    ottla_schema_validation_max_schemas: int = setting(
        INT, 1000, at_least(1), "Schemas that are kept ready to check records with.", undeclared=True
    )
    ottla_schema_validation_max_record_bytes: int = setting(
        INT, 4 * 1024 * 1024, at_least(1), "The largest key or value that is checked against a schema; larger ones are refused.",
        undeclared=True,
    )
    ottla_schema_validation_max_ms: int = setting(
        INT, 5000, at_least(1),
        "How long the records of one batch may take to be checked; then the batch is refused.",
        undeclared=True,
    )
    ottla_schema_registry_timeout_ms: int = setting(
        INT, 5000, at_least(1), "How long a produce waits for a schema that is not known yet.", undeclared=True
    )
# fmt: on
