"""Logging in at an OpenID provider: authorization code with PKCE (S256). Synchronous; `ProviderCalls` has the threads.

- The discovery document, the keys and the token answers are read with a time-out, up to 1 MiB, without redirects.
- Their addresses must be HTTPS; only an address of this machine may be HTTP.
- An id_token counts when its signature is one of the provider's keys with an asymmetric algorithm, and issuer, audience,
  authorised party, expiry and nonce are ours. The console uses neither `userinfo` nor the access token.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request

from ottla.console.errors import ConsoleError
from ottla.console.login_attempt import Attempt
from ottla.env.http_answer import HTTPException
from ottla.env.http_request import NoRedirect
from ottla.env.logging import get_logger
from ottla.security.access_rules import OidcRules, check_address
from ottla.security.http_deadline import whole_answer
from ottla.security.jwks import JwksError, parse_keys
from ottla.security.oauthbearer import TokenRefused, TokenRules, claimed_groups, token_claims

log = get_logger(__name__)
TIMEOUT_S = 10.0
MAX_ANSWER = 1024 * 1024
_KEEP_METADATA_S = 3600.0
_KEYS_AGAIN_S = 30.0
"""A token signed by a key that is not known has the keys fetched again, at most this often."""
_MAX_NAME = 255
_THREADS = 4
_MAX_WAITING = 64
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The user that the provider has logged in; valid until `fresh_until` (seconds since 1970)."""

    name: str
    groups: tuple[str, ...]
    subject: str
    fresh_until: float
    id_token: str
    refresh_token: str | None


class ProviderCalls:
    """Threads for questions to the provider, few and apart from those of the pages: strangers may cause such questions."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="oidc")
        self._running = 0

    async def run(self, work: Callable[[], Result]) -> Result:
        if self._running >= _MAX_WAITING:
            raise ConsoleError("too many logins are on their way to the provider; try again in a minute", status=503)
        self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._running -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Keys:
    """The provider's signing keys. A token that names an unknown key has them fetched again, not more than twice a minute."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.fetched = 0.0
        self.refresh_due = True

    def current(self) -> Any:
        return self.keys

    def ask_again(self, kid: str | None = None) -> None:
        del kid
        self.refresh_due = True


class Provider:
    def __init__(self, rules: OidcRules) -> None:
        self._rules = rules
        self._tls = ssl.create_default_context(cafile=rules.ca_file)
        self._lock = threading.Lock()
        self._metadata: dict[str, Any] = {}
        self._metadata_at = 0.0
        self._keys = _Keys()

    # The browser's way

    def login_url(self, attempt: Attempt) -> str:
        """Where the browser goes to log in."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        return _with_query(
            self._endpoint("authorization_endpoint"),
            response_type="code",
            client_id=self._rules.client_id,
            redirect_uri=attempt.redirect_uri,
            scope=" ".join(self._rules.scopes),
            state=attempt.state,
            nonce=attempt.nonce,
            code_challenge=challenge,
            code_challenge_method="S256",
        )

    def logout_url(self, id_token: str, back: str) -> str | None:
        """Where the browser logs out of the provider too; None when the provider has no such page."""
        if not self._discovered().get("end_session_endpoint"):
            return None
        return _with_query(
            self._endpoint("end_session_endpoint"),
            id_token_hint=id_token,
            client_id=self._rules.client_id,
            post_logout_redirect_uri=back,
        )

    def check_answer(self, attempt: Attempt, parameters: Mapping[str, str]) -> str:
        """The code of the browser's return; ConsoleError when the answer is not to our question (RFC 6749, RFC 9207)."""
        if not hmac.compare_digest(parameters.get("state", "").encode(), attempt.state.encode()):
            raise ConsoleError("this login was not begun here; log in again", status=403)
        issuer = parameters.get("iss")
        if issuer is None and self._discovered().get("authorization_response_iss_parameter_supported") is True:
            raise ConsoleError("the provider's answer does not name its issuer; log in again", status=403)
        if issuer is not None and issuer != self._rules.issuer:
            raise ConsoleError("the answer comes from another provider; log in again", status=403)
        if "error" in parameters:
            description = parameters.get("error_description") or parameters["error"]
            raise ConsoleError(f"the provider refused the login: {description[:200]}", status=403)
        if not parameters.get("code"):
            raise ConsoleError("the provider's answer has no code; log in again", status=403)
        return parameters["code"]

    # The console's own way

    def exchange(self, attempt: Attempt, code: str) -> Identity:
        answer = self._token(
            grant_type="authorization_code", code=code, redirect_uri=attempt.redirect_uri, code_verifier=attempt.verifier
        )  # fmt: skip
        return self._identity(answer, nonce=attempt.nonce, subject=None, refresh_token=None)

    def refresh(self, identity: Identity) -> Identity:
        """Asks the provider again: groups may have changed. Raises ConsoleError if the user must log in again."""
        if identity.refresh_token is None:
            raise ConsoleError("the login has expired", status=401)
        answer = self._token(grant_type="refresh_token", refresh_token=identity.refresh_token)
        return self._identity(answer, nonce=None, subject=identity.subject, refresh_token=identity.refresh_token)

    def _token(self, **fields: str) -> dict[str, Any]:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        rules = self._rules
        if rules.client_secret is None:
            fields["client_id"] = rules.client_id
        else:
            login = f"{quote(rules.client_id, safe='')}:{quote(rules.client_secret, safe='')}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(login).decode()
        return self._get(self._endpoint("token_endpoint"), urlencode(fields).encode(), headers)

    def _identity(
        self, answer: Mapping[str, Any], *, nonce: str | None, subject: str | None, refresh_token: str | None
    ) -> Identity:
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise ConsoleError("the provider gave no id_token; ask for the scope openid", status=502)
        claims = self._claims(token)
        rules = self._rules
        if nonce is not None and not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise ConsoleError("the id_token belongs to another login; log in again", status=403)
        audience = claims.get("aud")
        party = claims.get("azp")
        if party != rules.client_id and (party is not None or (isinstance(audience, list) and len(audience) > 1)):
            raise ConsoleError("the id_token was given to another client; log in again", status=403)
        if subject is not None and claims["sub"] != subject:
            raise ConsoleError("the provider renewed the login of another user; log in again", status=403)
        name = claims.get(rules.user_claim)
        if (
            not isinstance(name, str)
            or not 0 < len(name) <= _MAX_NAME
            or not name.isprintable()
            or name != name.strip()
        ):
            raise ConsoleError(f"the id_token has no usable claim {rules.user_claim}", status=403)
        if rules.user_claim == "email" and claims.get("email_verified") is not True:
            raise ConsoleError("the provider has not verified this e-mail address", status=403)
        renewed = answer.get("refresh_token")
        return Identity(
            name=name,
            groups=claimed_groups(claims, rules.groups_claim),
            subject=str(claims["sub"]),
            fresh_until=float(claims["exp"]),
            id_token=token,
            refresh_token=renewed if isinstance(renewed, str) else refresh_token,
        )

    def _claims(self, token: str) -> dict[str, Any]:
        rules = TokenRules(keys=self._keys, issuer=self._rules.issuer, audience=(self._rules.client_id,))
        self._fetch_keys()
        try:
            try:
                return token_claims(token, rules, int(time.time() * 1000))
            except TokenRefused:
                if not (self._keys.refresh_due and self._fetch_keys()):
                    raise
                return token_claims(token, rules, int(time.time() * 1000))
        except TokenRefused as error:
            log.warning("oidc.token_refused", reason=str(error))
            raise ConsoleError(f"the provider's id_token is not good: {error}", status=403) from None

    def _fetch_keys(self) -> bool:
        """Whether the keys were fetched now."""
        with self._lock:
            keys, now = self._keys, time.monotonic()
            age = now - keys.fetched
            if keys.keys is not None and age < (_KEYS_AGAIN_S if keys.refresh_due else _KEEP_METADATA_S):
                return False
            keys.fetched = now
            document = json.dumps(self._get(self._endpoint("jwks_uri"))).encode()
            try:
                keys.keys, keys.refresh_due = parse_keys(document), False
            except JwksError as error:
                raise ConsoleError(f"the provider's keys cannot be used: {error}", status=502) from None
            return True

    def _discovered(self) -> dict[str, Any]:
        if not self._metadata or time.monotonic() - self._metadata_at > _KEEP_METADATA_S:
            metadata = self._get(self._rules.issuer.rstrip("/") + "/.well-known/openid-configuration")
            if metadata.get("issuer") != self._rules.issuer:
                raise ConsoleError(
                    f"the provider calls itself {metadata.get('issuer')!r}, not {self._rules.issuer!r}", status=502
                )
            methods = metadata.get("code_challenge_methods_supported")
            if isinstance(methods, list) and "S256" not in methods:
                raise ConsoleError("the provider does not support PKCE with S256", status=502)
            self._metadata, self._metadata_at = metadata, time.monotonic()
        return self._metadata

    def _endpoint(self, name: str) -> str:
        url = str(self._discovered().get(name) or "")
        try:
            check_address(url, f"the provider's {name}")
        except ValueError as error:
            raise ConsoleError(str(error), status=502) from None
        return url

    def _get(self, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        request = Request(url, data=data, headers={"Accept": "application/json", **(headers or {})})  # noqa: S310 - checked addresses only
        try:
            document = json.loads(whole_answer(request, MAX_ANSWER, TIMEOUT_S, NoRedirect(), tls=self._tls))
        except HTTPError as error:
            raise ConsoleError(f"the provider answered {error.code}: {_reason(error)}", status=403) from None
        except (URLError, OSError, HTTPException, ValueError, RecursionError) as error:
            reason = getattr(error, "reason", error)
            raise ConsoleError(f"the provider {self._rules.issuer} does not answer: {reason}", status=503) from None
        if not isinstance(document, dict):
            raise ConsoleError("the answer of the provider is not a JSON object", status=502)
        return document


def _reason(error: HTTPError) -> str:
    try:
        error_body = json.loads(error.read(4096))
        return str(error_body.get("error_description") or error_body.get("error"))[:200]
    except (ValueError, OSError, HTTPException, AttributeError, RecursionError):
        return error.reason


def _with_query(url: str, **fields: str) -> str:
    return url + ("&" if "?" in url else "?") + urlencode(fields)
