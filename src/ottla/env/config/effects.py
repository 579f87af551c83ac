"""Why a setting of Kafka's does nothing here. Each is the line that a start prints beside the name."""

from __future__ import annotations

from typing import Final

from .settings import no_effect

NO_THREADS: Final = no_effect("one event loop does this work; there are no thread pools")
NO_PURGATORY: Final = no_effect("a waiting request is dropped as soon as it is answered; nothing is purged")
NO_JAVA: Final = no_effect("Java classes and providers cannot be loaded")
NO_BUFFERS: Final = no_effect("the operating system sizes socket buffers")
NO_REPORTERS: Final = no_effect("metrics are counters at /metrics, without reporters or sampling")
NO_TIERS: Final = no_effect("there is no tiered storage")
NO_KERBEROS: Final = no_effect("Kerberos (GSSAPI) is not supported")
