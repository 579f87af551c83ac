"""SASL/OAUTHBEARER (RFC 7628): a signed token shows who the client is.

Signature, issuer, audience, expiry and not-before are checked, with `sasl.oauthbearer.clock.skew.seconds` of grace. A
token without a signature is accepted only with `ottla.sasl.oauthbearer.unsecured.enable`, for development. A refused
client first gets RFC 7628's JSON challenge. The reason follows after the client's dummy answer, as from Kafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.security.sasl import SaslFailure

_MESSAGE = re.compile(
    rb"n,(?:a=(?P<authzid>(?:[^=,\x00\x01]|=2C|=3D)+))?,\x01auth=(?P<scheme>[A-Za-z]+) (?P<token>[-_.~+/A-Za-z0-9]+=*)"
    rb"(?P<extensions>(?:\x01[A-Za-z]+=[\x20-\x7e\t\r\n]*)*)\x01\x01"
)
_DUMMY = b"\x01"
MAX_GROUPS = 1_000
"""The most groups of one token that are used."""
_ALGORITHMS = ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"]
"""Asymmetric only: with a shared secret in a JWKS, every reader of the JWKS could sign."""


class TokenRefused(Exception):
    """A token is refused. The message is the reason and never holds the token."""


class KeySet(Protocol):
    """The signing keys (`ottla.security.jwks`)."""

    def current(self) -> Any:
        """The key set, as joserfc reads it; None while there is none."""
        ...

    def ask_again(self, kid: str | None = None) -> None:
        """Report a token that could not be verified. `kid` is the key that the token names, if any."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    keys: KeySet | None
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    clock_skew_ms: int = 30_000
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    unsecured: bool = False


class BearerToken:
    __slots__ = ("expires_at_ms", "name")

    def __init__(self, name: str, expires_at_ms: int) -> None:
        self.name = name
        self.expires_at_ms = expires_at_ms


def validate_token(text: str, rules: TokenRules, now_ms: int) -> BearerToken:
    claims = token_claims(text, rules, now_ms)
    return BearerToken(claims[rules.subject_claim], int(claims["exp"] * 1000))


def token_claims(text: str, rules: TokenRules, now_ms: int) -> dict[str, Any]:
    """The claims of a valid token. Raises TokenRefused with the reason for an invalid token."""
    claims = _claims(text, rules)
    expires = _seconds(claims, "exp")
    if expires is None:
        raise TokenRefused("the token has no expiry")
    expires_at_ms = int(expires * 1000)
    if now_ms >= expires_at_ms + rules.clock_skew_ms:
        raise TokenRefused("the token has expired")
    for name in ("nbf", "iat"):
        moment = _seconds(claims, name)
        if moment is not None and now_ms < moment * 1000 - rules.clock_skew_ms:
            raise TokenRefused("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("the token comes from a different issuer")
    if rules.audience:
        audience_claim = claims.get("aud")
        audiences = audience_claim if isinstance(audience_claim, list) else [audience_claim]
        if not any(audience in rules.audience for audience in audiences):
            raise TokenRefused("the token is for a different audience")
    if not {*rules.required_scope} <= _scopes(claims.get(rules.scope_claim)):
        raise TokenRefused("the token lacks a scope that is required")
    subject: object = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject:
        raise TokenRefused(f"the token has no claim {rules.subject_claim}")
    return claims


def claimed_groups(claims: Mapping[str, Any], claim: str = "groups") -> tuple[str, ...]:
    """The groups that a token names; `claim` may be a path, such as realm_access.roles."""
    group_claim: Any = claims.get(claim)
    if group_claim is None:
        group_claim = claims
        for step in claim.split("."):
            group_claim = group_claim.get(step) if isinstance(group_claim, dict) else None
    if isinstance(group_claim, str):
        return (group_claim,)
    if not isinstance(group_claim, list):
        return ()
    return tuple(group for group in group_claim[:MAX_GROUPS] if isinstance(group, str))


def _scopes(claim: object) -> set[str]:
    """A list, or text with blanks between the scopes."""
    if isinstance(claim, str):
        return set(claim.split())
    return {scope for scope in claim if isinstance(scope, str)} if isinstance(claim, list) else set()


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e11 < value < 1e11:
        raise TokenRefused(f"claim {name} is not a time")
    return float(value)


def _claims(text: str, rules: TokenRules) -> dict[str, Any]:
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.util import urlsafe_b64decode

    parts = text.split(".")
    if len(parts) != 3:
        raise TokenRefused("not a signed token")
    header: Any = None
    try:
        header = json.loads(urlsafe_b64decode(parts[0].encode()))
        if rules.unsecured and isinstance(header, dict) and header.get("alg") == "none" and not parts[2]:
            payload = urlsafe_b64decode(parts[1].encode())
        else:
            keys = rules.keys.current() if rules.keys is not None else None
            if keys is None:
                raise TokenRefused("there are no signing keys to check a token with")
            payload = jws.deserialize_compact(text, keys, algorithms=_ALGORITHMS).payload
        claims = json.loads(payload)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if rules.keys is not None and isinstance(header, dict):  # text that is no token gives no reason to fetch keys
            kid = header.get("kid")
            rules.keys.ask_again(kid if isinstance(kid, str) else None)
        raise TokenRefused(f"the token cannot be verified ({type(error).__name__})") from None
    if not isinstance(claims, dict):
        raise TokenRefused("the token holds no claims")
    return claims


class OAuthBearerServer:
    def __init__(self, validate: Callable[[str], BearerToken], on_refused: Callable[[str], None]) -> None:
        self._validate = validate
        self._on_refused = on_refused
        self._challenge: bytes | None = None
        self.complete = False
        self.name = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def evaluate(self, response: bytes) -> bytes:
        if self._challenge is not None:
            # The login fails whatever the client answers: RFC 7628 requires one dummy byte after the challenge.
            raise SaslFailure(self._challenge.decode() if response == _DUMMY else None)
        match = _MESSAGE.fullmatch(response)
        if match is None or match["scheme"].lower() != b"bearer":
            raise SaslFailure
        try:
            token = self._validate(match["token"].decode())
        except TokenRefused as reason:
            self._on_refused(str(reason))
            self._challenge = b'{"status":"invalid_token"}'
            return self._challenge
        authorization_id = (match["authzid"] or b"").decode("utf-8", "replace").replace("=2C", ",").replace("=3D", "=")
        if authorization_id and authorization_id != token.name:
            raise SaslFailure(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({token.name})"
            )
        self.name = token.name
        self.expires_at_ms = token.expires_at_ms
        self.complete = True
        return b""


def client_message(token: str) -> bytes:
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
