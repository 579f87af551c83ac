"""A key server for tests: a real Vault where `OTTLA_VAULT_ADDR` and `OTTLA_VAULT_TOKEN` name it, else a stand-in of its HTTP API.

The stand-in answers what `ottla.security.vault` and the suite use: tokens (look-up, renewal, revocation), the transit engine and the
key-value store, version 2. The same suite (`tests/security/test_key_servers.py`) runs on either. For a real server:
`vault server -dev -dev-root-token-id=t`, `vault secrets enable transit`, and the two variables.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ROOT = "root-of-this-test"
Answer = tuple[int, dict[str, Any]]


class VaultStandIn:
    """On a loopback port; `stop` and `start` keep its state, as a restart of an unsealed server would."""

    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, Any]] = {ROOT: {"renewable": False, "ttl": 0}}
        self.keys: dict[str, list[bytes]] = {}
        self.secrets: dict[str, Any] = {}
        self.renewals = 0
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*owner.answer("GET", self.path, self.headers.get("X-Vault-Token", ""), {}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                self._answer(*owner.answer("POST", self.path, self.headers.get("X-Vault-Token", ""), body))

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, method: str, path: str, token: str, body: dict[str, Any]) -> Answer:
        if token not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        parts = path.removeprefix("/v1/").split("/")
        match (method, *parts):
            case ("POST", "auth", "token", "renew-self"):
                return self._renewed(token)
            case ("POST", "auth", "token", "create"):
                name = f"hvs.{base64.b32encode(os.urandom(10)).decode()}"
                self.tokens[name] = {
                    "renewable": body.get("renewable", True),
                    "ttl": int(body["ttl"].removesuffix("s")),
                }
                return 200, {"auth": {"client_token": name, "lease_duration": self.tokens[name]["ttl"]}}
            case ("POST", "auth", "token", "revoke"):
                self.tokens.pop(body["token"], None)
                return 204, {}
            case ("POST", "transit", "keys", name):
                self.keys.setdefault(name, [os.urandom(32)])
                return 200, {}
            case ("POST", "transit", "keys", name, "rotate"):
                self.keys[name].append(os.urandom(32))
                return 200, {}
            case ("POST", "transit", "encrypt", name):
                versions, nonce = self.keys[name], os.urandom(12)
                sealed = nonce + AESGCM(versions[-1]).encrypt(nonce, base64.b64decode(body["plaintext"]), None)
                return 200, {"data": {"ciphertext": f"vault:v{len(versions)}:{base64.b64encode(sealed).decode()}"}}
            case ("POST", "transit", "decrypt", name):
                return self._decrypted(name, body["ciphertext"])
            case ("POST", "secret", "data", name):
                self.secrets[name] = body["data"]
                return 200, {"data": {"version": 1}}
            case ("GET", "secret", "data", name) if name in self.secrets:
                return 200, {"data": {"data": self.secrets[name], "metadata": {"version": 1}}}
        return 404, {"errors": []}

    def _renewed(self, token: str) -> Answer:
        lease = self.tokens[token]
        if not lease["renewable"]:
            return 400, {"errors": ["lease is not renewable"]}
        self.renewals += 1
        return 200, {"auth": {"client_token": token, "renewable": True, "lease_duration": lease["ttl"]}}

    def _decrypted(self, name: str, ciphertext: str) -> Answer:
        try:
            kind, version, text = ciphertext.split(":")
            sealed = base64.b64decode(text)
            key = self.keys[name][int(version.removeprefix("v")) - 1]
            plain = AESGCM(key).decrypt(sealed[:12], sealed[12:], None)
        except (ValueError, IndexError, KeyError, InvalidTag):
            return 400, {"errors": ["invalid ciphertext"]}
        return (200, {"data": {"plaintext": base64.b64encode(plain).decode()}}) if kind == "vault" else (400, {})


class VaultClient:
    """What an operator does by hand, over HTTP."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address, token

    def write(self, path: str, **body: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.address}/v1/{path}", data=json.dumps(body).encode(), headers={"X-Vault-Token": self.token}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=20) as answer:
            data = answer.read()
        found: dict[str, Any] = json.loads(data) if data else {}
        return found

    def wrap(self, key_id: str, key: bytes) -> str:
        """A line for `ottla.encryption.master.key.wrapped.file`."""
        sealed = self.write("transit/encrypt/ottla", plaintext=base64.b64encode(key).decode())
        return f"{key_id}:{sealed['data']['ciphertext']}\n"


def real_vault() -> tuple[str, str] | None:
    address, token = os.environ.get("OTTLA_VAULT_ADDR"), os.environ.get("OTTLA_VAULT_TOKEN")
    return (address, token) if address and token else None
