"""Which addresses in the election group are other instances: those that are listed, and those that are signed.

Every client that may join the group can name any address there, so an address alone proves nothing. `peers` lists the
addresses (`--peer`). With a shared secret (`--peer-secret-file`) an instance signs its own address: the client id is
`URL#v1.SIGNATURE`, an HMAC-SHA256 of the group and the URL. The version before reads the same id as the URL: it ignores
what follows the `#`.
Credentials leave this instance for a trusted address only; with peers or a secret nothing is sent to any other.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.registry.settings import RegistrySettings, RegistryStartError

_MARK = "#v1."
_MIN_SECRET_BYTES = 16


class RegistryPeer(NamedTuple):
    url: str
    trusted: bool


class RegistryPeers:
    def __init__(self, *, listed: Iterable[str] = (), secret: bytes | None = None, group_id: str = "") -> None:
        self._listed = frozenset(_normal(url) for url in listed)
        self._secret = secret
        self._group_id = group_id

    @classmethod
    def of(cls, settings: RegistrySettings) -> RegistryPeers:
        """Raises RegistryStartError for an address that is none and a secret that cannot be used."""
        for url in settings.peers:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
                raise RegistryStartError(f"--peer {url!r} is not http://HOST:PORT or https://HOST:PORT")
        secret = _read_secret(settings.peer_secret_file) if settings.peer_secret_file else None
        return cls(listed=settings.peers, secret=secret, group_id=settings.group_id)

    @property
    def configured(self) -> bool:
        return bool(self._listed) or self._secret is not None

    def client_id(self, url: str) -> str:
        """The name of this instance in the group."""
        return url if self._secret is None else f"{url}{_MARK}{self._signature(url)}"

    def read(self, client_id: str) -> RegistryPeer:
        """The address in a member's client id, and whether the address is trusted."""
        url, _, signature = client_id.partition(_MARK)
        signed = self._secret is not None and hmac.compare_digest(signature.encode(), self._signature(url).encode())
        return RegistryPeer(url, signed or _normal(url) in self._listed)

    def _signature(self, url: str) -> str:
        text = f"ottla-registry-peer\0{self._group_id}\0{url}".encode()
        return base64.urlsafe_b64encode(hmac.digest(self._secret or b"", text, "sha256")).rstrip(b"=").decode()


def _normal(url: str) -> str:
    """Scheme, host and port as they are compared: a path and the case of a name make no difference."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return ""
    return f"{parts.scheme}://{(parts.hostname or '').rstrip('.')}:{port}"


def _read_secret(path: str) -> bytes:
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise RegistryStartError(f"cannot read the peers' secret {path}: {error.strerror or error}") from error
    if len(secret) < _MIN_SECRET_BYTES:
        raise RegistryStartError(
            f"the peers' secret {path} has {len(secret)} bytes; {_MIN_SECRET_BYTES} are the least (openssl rand -base64 32)"
        )
    return secret
