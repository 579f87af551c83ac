"""Basic authentication and TLS, alone and between instances."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
import urllib.request
from pathlib import Path

import pytest
import trustme
from joserfc import jwk, jwt

from ottla.client.errors import RegistryRefused, RegistryUnreachable
from ottla.client.schema_registry import RegistryClient
from ottla.registry.settings import RegistryStartError
from ottla.security.web import hash_password
from ottla.testing import Broker
from tests.registry.instances import RegistryThread, call, register, until


def basic(user: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}


@pytest.fixture
def users(tmp_path: Path) -> str:
    hashed = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 1000).hex()
    file = tmp_path / "users"
    file.write_text(f"# who may\nann:open\nbob:pbkdf2_sha256$1000${b'salt'.hex()}${hashed}\n")
    return str(file)


@pytest.mark.timeout(180)
def test_basic_authentication(broker: Broker, users: str) -> None:
    with RegistryThread(broker.bootstrap_servers, topic="_schemas_auth", users_file=users) as registry:
        status, answer = call(registry.url, "GET", "/subjects")
        assert (status, answer["error_code"]) == (401, 401)
        for user, expected in (
            ("ann:open", 200),
            ("bob:secret", 200),
            ("ann:shut", 401),
            ("bob:", 401),
            ("eve:open", 401),
        ):
            for _ in range(2):
                assert call(registry.url, "GET", "/subjects", headers=basic(user))[0] == expected, user
        assert call(registry.url, "GET", "/subjects", headers={"Authorization": "Bearer x"})[0] == 401
        assert call(registry.url, "GET", "/subjects", headers={"Authorization": "Basic !!!"})[0] == 401
        assert RegistryClient(registry.url, user="ann:open").call("GET", "subjects") == []
        with pytest.raises(RegistryRefused, match="Unauthorized"):
            RegistryClient(registry.url).call("GET", "subjects")


@pytest.mark.timeout(180)
def test_roles_and_tokens(broker: Broker, tmp_path: Path) -> None:
    key = jwk.RSAKey.generate_key(2048, {"kid": "k"}, private=True)
    (tmp_path / "jwks").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    roles = ("read", "write", "admin")
    (tmp_path / "users").write_text("".join(f"{role}:{role}:{hash_password('p')}\n" for role in roles))

    def bearer(**claims: object) -> dict[str, str]:
        facts = {"sub": "robot", "exp": int(time.time()) + 60, **claims}
        return {"Authorization": "Bearer " + jwt.encode({"alg": "RS256", "kid": "k"}, facts, key)}

    asked = {
        ("GET", "/subjects"): "read",
        ("POST", "/subjects/s"): "read",
        ("POST", "/compatibility/subjects/s/versions"): "read",
        ("POST", "/subjects/s/versions"): "write",
        ("PUT", "/config"): "admin",
        ("DELETE", "/subjects/s"): "admin",
    }
    settings = {"users_file": str(tmp_path / "users"), "jwks_url": f"file://{tmp_path}/jwks"}
    with RegistryThread(broker.bootstrap_servers, topic="_schemas_roles", **settings) as registry:
        for (method, path), needed in asked.items():
            body = {"compatibility": "NONE"} if method == "PUT" else {"schema": '"int"'} if method == "POST" else None
            for rank, role in enumerate(roles):
                for headers in (basic(f"{role}:p"), bearer(role=role)):
                    status = call(registry.url, method, path, body, headers=headers)[0]
                    assert (status == 403) == (rank < roles.index(needed)), (method, path, role, status)
        assert call(registry.url, "GET", "/subjects", headers=bearer(exp=1))[0] == 401


@pytest.mark.timeout(180)
def test_tls(broker: Broker, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    ca, chain, key = (str(tmp_path / name) for name in ("ca.pem", "chain.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    certificate.private_key_pem.write_to_path(key)
    Path(chain).write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
    settings = {"tls_certificate": chain, "tls_key": key, "topic": "_schemas_tls"}
    with RegistryThread(broker.bootstrap_servers, **settings) as registry:
        assert registry.url.startswith("https://")
        context = ssl.create_default_context(cafile=ca)
        with urllib.request.urlopen(f"{registry.url}/subjects", context=context, timeout=10) as response:
            assert json.loads(response.read()) == []
        assert RegistryClient(registry.url, ca_file=ca).call("GET", "subjects") == []
        with pytest.raises(RegistryUnreachable, match="certificate"):
            RegistryClient(registry.url).call("GET", "subjects")


def test_a_certificate_that_is_not_there_is_one_line(broker: Broker) -> None:
    with (
        pytest.raises(RegistryStartError, match="cannot use the TLS certificate"),
        RegistryThread(broker.bootstrap_servers, tls_certificate="/nowhere.pem", topic="_schemas_tls2"),
    ):
        pass


@pytest.mark.timeout(180)
def test_a_forwarded_write_is_authenticated(users: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("shared by the instances")
    settings = {"users_file": users, "forward_user": "ann:open", "peer_secret_file": str(tmp_path / "secret")}
    with (
        Broker(directory=tmp_path / "b") as broker,
        RegistryThread(broker.bootstrap_servers, alone=False, **settings) as one,
        RegistryThread(broker.bootstrap_servers, alone=False, **settings) as two,
    ):
        until(lambda: one.server.registry.is_writer or two.server.registry.is_writer, 60)
        follower = two if one.server.registry.is_writer else one
        assert register(follower.url, "s", '"int"')[0] == 401
        body = {"schema": '"int"'}
        assert call(follower.url, "POST", "/subjects/s/versions", body, headers=basic("bob:secret"))[0] == 200
