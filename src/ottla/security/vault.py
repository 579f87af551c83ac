"""Master keys from a key server with Vault's HTTP API: unwrapped by its transit engine, or read from its key-value
store.

With `ottla.encryption.master.key.wrapped.file` the key server never reveals its own key. The file holds lines of
`ID:vault:v1:...`, and each is decrypted at `.url` (`https://HOST:8200/v1/transit/decrypt/NAME`). Without that file
`.url` is a secret with a field `keys` (`https://HOST:8200/v1/secret/data/NAME`).

The token comes from a file, which is read again each time. The token is renewed (`auth/token/renew-self`) before two
thirds of its lease are over. Redirects are not followed, answers of more than 64 KiB are refused, and plain http is for
loopback only. Any other answer of the server raises KeyStoreError; the renewal then retries.
"""

from __future__ import annotations

import json
import ssl
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.http_answer import HTTPException
from ottla.env.http_request import NoRedirect
from ottla.security.hosts import is_loopback
from ottla.security.http_deadline import whole_answer
from ottla.security.key_sources import KeyStoreError

_MAX_BYTES = 64 * 1024
_MAX_LINES = 100
_TIMEOUT_S = 10.0
_SHORTEST_WAIT_S = 1.0
_LONGEST_LEASE_S = 1e9
_SETTING = "ottla.encryption.master.key.url"


class VaultSource:
    renewed = True

    def __init__(self, config: BrokerConfig) -> None:
        self._url = config.ottla_encryption_master_key_url or ""
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "/v1/" not in parts.path:
            raise KeyStoreError(f"{_SETTING}: {self._url} is not https://HOST:PORT/v1/...")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise KeyStoreError(f"{_SETTING}: {self._url} would send keys and token unencrypted: use https")
        self._base = self._url.partition("/v1/")[0]
        self._token_file = config.ottla_encryption_master_key_token_file
        self._wrapped_file = config.ottla_encryption_master_key_wrapped_file
        self._tls = ssl.create_default_context(cafile=config.ottla_encryption_master_key_ca_file)
        self._lease_s = 0.0
        """The token's lease from the last renewal; 0 if the token does not expire or is not renewable."""

    def wait_s(self, refresh_s: float) -> float:
        return min(refresh_s, max(self._lease_s / 3, _SHORTEST_WAIT_S)) if self._lease_s else refresh_s

    def fetch(self) -> str:
        token = self._token()
        self._renew(token)
        if self._wrapped_file is not None:
            return self._unwrapped(token, _text("ottla.encryption.master.key.wrapped.file", self._wrapped_file))
        return self._secret(self._call(self._url, token))

    def _token(self) -> str:
        if self._token_file is None:
            return ""
        setting = "ottla.encryption.master.key.token.file"
        token = _text(setting, self._token_file).strip()
        if not token.isprintable():
            raise KeyStoreError(f"{setting}={self._token_file}: a token is one line of printable characters")
        return token

    def _renew(self, token: str) -> None:
        """A token that cannot be renewed stays in use, until the file has a new token or the server refuses a call."""
        if not token:
            return
        try:
            answer = self._call(f"{self._base}/v1/auth/token/renew-self", token, {})
        except _RefusedError:
            self._lease_s = 0.0
            return
        auth = _object(answer, "auth")
        lease = auth.get("lease_duration") if auth.get("renewable") else None
        self._lease_s = float(lease) if isinstance(lease, (int, float)) and 0 < lease < _LONGEST_LEASE_S else 0.0

    def _unwrapped(self, token: str, text: str) -> str:
        lines = []
        for number, line in enumerate(filter(None, (part.strip() for part in text.splitlines())), 1):
            name, _, wrapped = line.partition(":")
            if number > _MAX_LINES or not name or not wrapped:
                raise KeyStoreError(
                    f"{self._wrapped_file}: line {number} is not ID:vault:v1:... of at most {_MAX_LINES}"
                )
            answer = self._call(self._url, token, {"ciphertext": wrapped})
            lines.append(f"{name}:{_object(answer, 'data').get('plaintext', '')}")
        return "\n".join(lines)

    def _secret(self, answer: dict[str, Any]) -> str:
        data = _object(answer, "data")
        keys = (_object(data, "data") or data).get("keys")
        if not isinstance(keys, str):
            raise KeyStoreError(f"{_SETTING}: the secret has no field `keys` with lines of ID:BASE64")
        return keys

    def _call(self, url: str, token: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "X-Vault-Request": "true"} | (
            {"X-Vault-Token": token} if token else {}
        )
        data = None if body is None else json.dumps(body).encode()
        request = Request(url, data=data, headers=headers)  # noqa: S310 - http and https only, checked above
        try:
            answer = whole_answer(request, _MAX_BYTES, _TIMEOUT_S, ProxyHandler({}), NoRedirect(), tls=self._tls)
            document = json.loads(answer)
        except HTTPError as error:
            error.close()
            kind = _RefusedError if error.code in (400, 401, 403) else KeyStoreError
            raise kind(f"{_SETTING}: {urlsplit(url).path} answered {error.code}") from None
        except (URLError, OSError, HTTPException, ValueError, RecursionError) as error:
            raise KeyStoreError(f"{_SETTING}: {self._base} does not answer: {error}") from None
        if not isinstance(document, dict):
            raise KeyStoreError(f"{_SETTING}: {urlsplit(url).path} did not answer with a JSON object")
        return document


class _RefusedError(KeyStoreError):
    """The key server answered, and the answer is no."""


def _object(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """A field that should be an object; an empty object if the field has a different type."""
    field = answer.get(name)
    return field if isinstance(field, dict) else {}


def _text(setting: str, path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(_MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise KeyStoreError(f"{setting}={path}: {error}") from None
