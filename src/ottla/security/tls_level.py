"""OpenSSL's security level: which keys and signatures a TLS context accepts (level 2: no SHA-1, RSA from 2,048 bits).

Java 17 accepts a chain that is signed with SHA-1; OpenSSL refuses it at its usual level. `ottla.ssl.security.level`
lowers the level of one listener or client; nothing else about the context changes.
"""

from __future__ import annotations

import ssl

LEVEL_SETTING = "ottla.ssl.security.level"
UNCHANGED = -1
"""The level that the TLS library has by itself."""
_WEAK_REASONS = frozenset({"CA_MD_TOO_WEAK", "EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "KEY_TOO_SMALL"})
_WEAK_VERIFY_CODES = frozenset({66, 67, 68})
"""X509_V_ERR_EE_KEY_TOO_SMALL, X509_V_ERR_CA_KEY_TOO_SMALL, X509_V_ERR_CA_MD_TOO_WEAK."""


def set_security_level(context: ssl.SSLContext, level: int) -> None:
    """Before keys are loaded: the library checks the level then. The ciphers stay those of the context."""
    if level == UNCHANGED:
        return
    old = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    context.set_ciphers(f"{':'.join(old)}:@SECLEVEL={level}")


def lowers_level(level: int) -> bool:
    return level not in {UNCHANGED, *range(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).security_level, 6)}


def weakness(error: Exception) -> str | None:
    """What to do about a certificate that is too weak for the level; None for an error of a different kind."""
    too_weak = getattr(error, "reason", None) in _WEAK_REASONS or (
        isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _WEAK_VERIFY_CODES
    )
    if not too_weak:
        return None
    detail = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    return (
        f"a certificate of the chain is signed with SHA-1 or MD5, or has a short key ({detail}): issue the "
        f"certificate again with SHA-256 and 2,048 bits or more. To allow such certificates, set "
        f"{LEVEL_SETTING}=0 (listener.name.<listener>.{LEVEL_SETTING} for one "
        "listener)"
    )
