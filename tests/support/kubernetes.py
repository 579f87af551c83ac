"""A real API server of Kubernetes on loopback: kube-apiserver, built once from the Go modules, over Debian's etcd.

There is no kubelet, no scheduler and no controller: pods stay Pending until a test says otherwise.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.debian import debian_command
from tests.support.go_binaries import go_binary
from tests.support.kafka_jars import Unavailable
from tests.support.ports import free_ports
from tests.support.whole_answers import whole

VERSION = "1.36.3"
_ADMIN = "admin-of-the-tests"


def kube_apiserver(timeout_s: float = 2400) -> Path:
    """The server's binary; Unavailable says why there is none. A build needs about ten minutes of CPU time."""
    return go_binary("kube-apiserver", f"v{VERSION}", lambda go, folder: _build(go, folder, timeout_s))


def _build(go: str, folder: Path, timeout_s: float) -> str:
    """The problem, if there is one."""
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false -modcacherw"}
    module = ["k8s.io/kubernetes", f"v{VERSION}"]
    (folder / "go.mod").write_text(f"module ottla.test/kubernetes\n\ngo 1.24\n\nrequire {' '.join(module)}\n")
    flags = " ".join(
        f"-X k8s.io/component-base/version.{name}={value}"
        for name, value in zip(
            ("gitVersion", "gitMajor", "gitMinor"), (f"v{VERSION}", *VERSION.split(".")), strict=False
        )
    )
    try:
        fetched = subprocess.run(
            [go, "mod", "download", "-json", "@".join(module)],
            env=environment, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        if fetched.returncode:
            return fetched.stderr.strip()[-200:]
        text = Path(json.loads(fetched.stdout)["GoMod"]).read_text()
        # The module refers to the folders beside it; the same modules are published with the minor version behind v0.
        staged = sorted(set(re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0$", text, re.MULTILINE)))
        replaced = "".join(f"\t{name} => {name} v0.{VERSION.partition('.')[2]}\n" for name in staged)
        language = re.search(r"^go (\S+)", text, re.MULTILINE)
        (folder / "go.mod").write_text(
            f"module ottla.test/kubernetes\n\ngo {language[1] if language else '1.24'}\n\nrequire {' '.join(module)}\n\n"
            f"replace (\n{replaced})\n"
        )
        done = subprocess.run(
            ["nice", go, "build", "-ldflags", flags, "-o", str(folder / "kube-apiserver"), f"{module[0]}/cmd/kube-apiserver"],
            env=environment, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"go build took longer than {timeout_s:.0f} s"
    return done.stderr.strip().splitlines()[-1][:200] if done.returncode else ""


@dataclass(frozen=True)
class Kubernetes:
    address: str
    folder: Path
    """Has ca.pem and kubeconfig."""

    def kubectl(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = shutil.which("kubectl")
        if command is None:
            raise Unavailable("no kubectl on PATH")
        return subprocess.run(
            [command, "--kubeconfig", str(self.folder / "kubeconfig"), "--cache-dir", str(self.folder / "cache"), *words],
            input=stdin, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        request = urllib.request.Request(
            f"{self.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {_ADMIN}", "Content-Type": kind},
        )
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return json.loads(whole(answer))

    def pods(self, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        query = f"?labelSelector={selector}" if selector else ""
        items: list[dict[str, Any]] = self.call("GET", f"/api/v1/namespaces/{namespace}/pods{query}")["items"]
        return items

    def set_status(self, pod: dict[str, Any], **status: Any) -> None:
        """What a kubelet reports."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        self.call("PATCH", path, {"status": status}, "application/merge-patch+json")


@contextmanager
def kubernetes(folder: Path) -> Iterator[Kubernetes]:
    """Roles are checked and pods meet Pod Security, as in a cluster."""
    server, etcd = kube_apiserver(), debian_command("etcd", "etcd-server", 300)
    store, peers, secure = free_ports(3)
    folder.mkdir(parents=True)
    _write_secrets(folder)
    made = Kubernetes(f"https://127.0.0.1:{secure}", folder)
    _write_kubeconfig(made)
    commands = {
        "etcd": [
            etcd, "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync",
            "--listen-client-urls", f"http://127.0.0.1:{store}", "--advertise-client-urls", f"http://127.0.0.1:{store}",
            "--listen-peer-urls", f"http://127.0.0.1:{peers}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}",
            "--initial-cluster", f"default=http://127.0.0.1:{peers}",
        ],
        "apiserver": [
            str(server), "--etcd-servers", f"http://127.0.0.1:{store}", "--bind-address", "127.0.0.1",
            "--advertise-address", "127.0.0.1", "--secure-port", str(secure),
            "--tls-cert-file", str(folder / "server.pem"), "--tls-private-key-file", str(folder / "server.key"),
            "--token-auth-file", str(folder / "tokens.csv"), "--authorization-mode", "RBAC",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-key-file", str(folder / "accounts.key"),
            "--service-account-signing-key-file", str(folder / "accounts.key"),
            "--feature-gates", "WatchList=false",  # it needs a newer etcd than Debian has
            "--service-cluster-ip-range", "10.96.0.0/24", "--endpoint-reconciler-type", "none",
        ],
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                started.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT))
        _await(made, started)
        yield made
    finally:
        for process in reversed(started):
            process.kill()
            process.wait(30)


def _write_secrets(folder: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own = authority.issue_cert("127.0.0.1", "localhost")
    own.private_key_pem.write_to_path(folder / "server.key")
    for pem in own.cert_chain_pems:
        pem.write_to_path(folder / "server.pem", append=True)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "accounts.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    (folder / "tokens.csv").write_text(f"{_ADMIN},admin,1,system:masters\n")


def _write_kubeconfig(made: Kubernetes) -> None:
    made.folder.joinpath("kubeconfig").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": "tests",
                        "cluster": {"server": made.address, "certificate-authority": str(made.folder / "ca.pem")},
                    }
                ],
                "users": [{"name": "admin", "user": {"token": _ADMIN}}],
                "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
                "current-context": "tests",
            }
        )
    )


def _await(made: Kubernetes, started: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and all(process.poll() is None for process in started):
        try:
            made.call("GET", "/api/v1/namespaces/default")
        except (OSError, ValueError, urllib.error.HTTPError):
            time.sleep(1)
        else:
            return
    raise RuntimeError(f"no API server: {(made.folder / 'apiserver.log').read_text(errors='replace')[-2000:]}")


if __name__ == "__main__":
    print(kube_apiserver())
