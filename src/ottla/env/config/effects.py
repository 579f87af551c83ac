"""Why a setting of Kafka's does nothing here. Each is the line that a start prints beside the name."""

from __future__ import annotations

from typing import Final

from .settings import no_effect

NO_THREADS: Final = no_effect("one event loop does this work; there are no thread pools")
NO_PURGATORY: Final = no_effect("a waiting request is removed as soon as it is answered, so no purge is needed")
NO_JAVA: Final = no_effect("Java classes and providers cannot be loaded")
NO_BUFFERS: Final = no_effect("the operating system sizes socket buffers")
NO_REPORTERS: Final = no_effect("metrics are counters at /metrics, without reporters or sampling")
NO_TIERS: Final = no_effect("there is no tiered storage")
NO_KERBEROS: Final = no_effect("Kerberos (GSSAPI) is not supported")
NO_BACKLOG: Final = no_effect("up to 1,024 connections wait to be accepted, as far as the system allows")
NO_QUEUE: Final = no_effect("a connection processes one request at a time; waiting requests stay in its socket")
NO_LINGER: Final = no_effect("records are written at once, without a batching delay")
NO_NOOPS: Final = no_effect("no-op records are not written: fetches carry the high watermark")
ONE_TIMEOUT: Final = no_effect("a call between nodes has one time limit, its connection included")
NO_REPORT_LIMIT: Final = no_effect(
    "a failed directory is reported with every heartbeat until the controller acknowledges the report"
)
FIXED_READS: Final = no_effect("reads are 256 KiB at a time")
METADATA_FILES: Final = no_effect(
    "files of the metadata log are deleted as soon as a snapshot replaces them, and a batch is one decision"
)
TLS_VERSIONS: Final = no_effect("ssl.enabled.protocols sets the TLS versions")
NO_LOGIN: Final = no_effect("nodes log in to each other with PLAIN or SCRAM; they fetch no tokens")
NO_SCOPES: Final = no_effect("scopes are ignored; ACLs set the permissions")
NO_JWKS_BACKOFF: Final = no_effect("keys that could not be fetched are requested again at the next refresh")
NO_WINDOWS: Final = no_effect("throttles use a window of 11 seconds, or a token bucket")
