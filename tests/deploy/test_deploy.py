"""What is in deploy/: rules that promtool takes, names that exist, units, a chart that helm takes, an image's own steps."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from ottla.cli.doctor.security import check_settings
from ottla.env.config.load import load
from ottla.env.config.properties import parse_properties
from ottla.server.monitoring.exposition import METRICS
from tests.support.debian import debian_command
from tests.support.hadolint import hadolint
from tests.support.helm import helm
from tests.support.kafka_jars import Unavailable
from tests.support.kubernetes_schemas import problems_of
from tests.support.ports import free_ports
from tests.support.whole_answers import whole

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
CONSOLE_METRICS = {"ottla_group_lag_records", "ottla_group_lag_seconds", "ottla_console_look_seconds"}
KNOWN = {metric.name for metric in METRICS} | CONSOLE_METRICS | {"up"}
NAME = re.compile(r"\b((?:kafka|ottla|process)_\w+)\b(?!\s*=)")

OPEN = ("--set", "allowOpen=true")
SECURED = (
    "--set", "tls.existingSecret=t", "--set", "auth.existingSecret=a", "--set", "encryption.existingSecret=e",
    "--set", "metrics.existingSecret=m", "--set", "console.usersSecret=u", "--set", "console.clientSecret=c",
)  # fmt: skip
EXTERNAL = {
    ("--set", "external.enabled=true", "--set", "external.host=h.example.org"): "node ports",
    (
        "--set",
        "external.enabled=true",
        "--set",
        "external.type=LoadBalancer",
        "--set",
        "external.domain=kafka.example.org",
    ): "names",
}


def names_in(expression: str) -> set[str]:
    return set(NAME.findall(re.sub(r"\{[^}]*\}", "", expression)))


@pytest.mark.interop
def test_promtool_takes_the_rules() -> None:
    try:
        promtool = debian_command("promtool", "prometheus", 200)
    except Unavailable as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [promtool, "check", "rules", str(DEPLOY / "prometheus/ottla.rules.yml")],
        capture_output=True, text=True, timeout=40, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_name_only_metrics_that_exist() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/ottla.rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 8
    for rule in alerts:
        assert names_in(rule["expr"]) <= KNOWN, rule["alert"]
        assert rule["annotations"]["what_to_do"]


def test_the_dashboard_names_only_metrics_that_exist() -> None:
    board = json.loads((DEPLOY / "grafana/ottla.json").read_text())
    used = {name for panel in board["panels"] for target in panel["targets"] for name in names_in(target["expr"])}
    assert len(used) >= 10
    assert used <= KNOWN


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_units_have_what_systemd_needs(unit: str) -> None:
    text = (DEPLOY / "systemd" / unit).read_text()
    assert {"[Unit]", "[Service]", "[Install]"} <= set(text.splitlines())
    assert re.search(r"^ExecStart=/usr/local/bin/ottla (server start|console) ", text, re.MULTILINE)


@pytest.mark.interop
@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_systemd_takes_the_units(unit: str, tmp_path: Path) -> None:
    """Where Ottla is not installed the program stands in for it; everything else must pass without a word."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on PATH (a machine with systemd has it)")
    text = (DEPLOY / "systemd" / unit).read_text()
    for wrong in ("", "Restrat=no\n"):
        copy = tmp_path / unit
        copy.write_text(text.replace("/usr/local/bin/ottla", sys.executable).replace("[Install]", f"{wrong}[Install]"))
        done = subprocess.run(
            [analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=40, check=False
        )
        complaints = [line for line in done.stderr.splitlines() if unit in line]
        assert bool(complaints) == bool(wrong), done.stderr


SANDBOX = {
    "UMask=0077", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "MemoryDenyWriteExecute=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "SystemCallFilter=@system-service", "SystemCallArchitectures=native",
    "PrivateTmp=yes", "PrivateDevices=yes", "ProtectHome=yes", "LockPersonality=yes", "RestrictNamespaces=yes",
}  # fmt: skip


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_units_are_closed_in(unit: str) -> None:
    lines = set((DEPLOY / "systemd" / unit).read_text().splitlines())
    assert lines >= SANDBOX
    assert {line.partition("=")[0] for line in lines} >= {"MemoryMax", "TasksMax"}


@pytest.mark.interop
@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_systemd_finds_little_exposed(unit: str) -> None:
    """`systemd-analyze security`: 10 is everything, 0 nothing; a network service cannot be much below 1."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on PATH (a machine with systemd has it)")
    command = [analyze, "security", "--offline=true", "--no-pager", str(DEPLOY / "systemd" / unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze knows no --offline: {done.stderr.strip()[:100]}")
    assert float(found[1]) <= 1.5, done.stdout


def test_the_chart_parses() -> None:
    chart = DEPLOY / "helm/ottla"
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["apiVersion"] == "v2"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    used = {
        name
        for template in (chart / "templates").iterdir()
        for name in re.findall(r"(?:\.Values|\$values)\.(\w+)", template.read_text())
    }
    assert used == set(values)


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_helm_takes_the_chart_and_its_nodes_could_start() -> None:
    try:
        program = helm()
    except Unavailable as reason:
        pytest.skip(str(reason))
    chart = str(DEPLOY / "helm/ottla")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False)

    cluster = ("--set", "clusterId=MkU3OEVBNTcwNTJENDM2Qk")
    linted = run("lint", "--strict", chart, *cluster, *OPEN)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    for given, message in REFUSED.items():
        refused = run("template", "log", chart, *given)
        assert refused.returncode != 0
        assert message in refused.stderr
    for nodes in (1, 3):
        for mode in (OPEN, SECURED):
            more = ("--set", f"nodes={nodes}", "--set-string", "properties.num\\.partitions=7", *MAPPED)
            made = run("template", "log", chart, *cluster, *mode, *more)
            assert made.returncode == 0, made.stderr
            parts = [part for part in yaml.safe_load_all(made.stdout) if part]
            assert {"Service", "StatefulSet", "Deployment", "NetworkPolicy"} <= {part["kind"] for part in parts}
            assert [problem for part in parts for problem in problems_of(part)] == []
            check_pods(parts)
            check_nodes(parts, nodes, secured=mode is SECURED)


@pytest.mark.interop
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", [OPEN, SECURED], ids=["open", "secured"])
@pytest.mark.parametrize("options", EXTERNAL, ids=EXTERNAL.get)
def test_nodes_without_a_controller_and_clients_outside(mode: tuple[str, ...], options: tuple[str, ...]) -> None:
    """Each pod has an address of its own for clients outside, and a Service behind this address."""
    parts = rendered(*mode, *options, "--set", "brokers=2", "--set", "antiAffinity=hard")
    assert [problem for part in parts for problem in problems_of(part)] == []
    check_pods(parts, count=3)
    ids, outside = set(), set()
    for stateful_set in of_kind(parts, "StatefulSet"):
        for number in range(stateful_set["spec"]["replicas"]):
            name = f"{stateful_set['metadata']['name']}-{number}"
            properties = node_properties(stateful_set, secured=mode is SECURED, pod=name)
            assert ("listener.name.external.plain.sasl.jaas.config" in properties) == (mode is SECURED)
            config = load(properties)
            ids.add(config.node_id)
            assert config.is_controller == (stateful_set["metadata"]["name"] == "log")
            assert len(config.controller_quorum_voters) == 3
            internal, external = config.advertised_broker_listeners
            assert f"{internal.host}:{internal.port}" == f"{name}.{stateful_set['metadata']['name']}:9092"
            outside.add((name, external.host, external.port))
            protocols = dict(row.split(":") for row in properties["listener.security.protocol.map"].split(","))
            assert protocols["EXTERNAL"] == ("SASL_SSL" if mode is SECURED else "PLAINTEXT")
    assert ids == {1, 2, 3, 101, 102}
    services = [part["spec"] for part in of_kind(parts, "Service") if part["metadata"]["name"].endswith("-external")]
    by_pod = {spec["selector"]["statefulset.kubernetes.io/pod-name"]: spec for spec in services}
    if "external.type=LoadBalancer" in options:
        assert outside == {(pod, f"{pod}.kafka.example.org", 9095) for pod in by_pod}
    else:
        assert outside == {(pod, "h.example.org", spec["ports"][0]["nodePort"]) for pod, spec in by_pod.items()}
        assert sorted(port for _, _, port in outside) == [30090, 30091, 30092, 30093, 30094]
    (policy,) = [part for part in of_kind(parts, "NetworkPolicy") if part["metadata"]["name"] == "log"]
    assert {rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]} == {9092, 9093, 9094, 9095}


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_nodes_stay_apart_and_are_not_drained_together() -> None:
    hard = rendered(*OPEN, "--set", "brokers=2", "--set", "antiAffinity=hard", "--set", "topologyKey=zone")
    soft, none = (
        rendered(*OPEN),
        rendered(*OPEN, "--set", "antiAffinity=none", "--set", "podDisruptionBudget.enabled=false"),
    )
    (budget,) = of_kind(hard, "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    for stateful_set in of_kind(hard, "StatefulSet"):
        labels = stateful_set["spec"]["template"]["metadata"]["labels"]
        (term,) = affinity(stateful_set)["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "zone"
        for selector in (term["labelSelector"], budget["spec"]["selector"]):
            (row,) = selector["matchExpressions"]
            assert labels[row["key"]] in row["values"], "both sets are one cluster"
    (weighted,) = affinity(of_kind(soft, "StatefulSet")[0])["preferredDuringSchedulingIgnoredDuringExecution"]
    assert weighted["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert "affinity" not in of_kind(none, "StatefulSet")[0]["spec"]["template"]["spec"]
    assert of_kind(none, "PodDisruptionBudget") == []


def rendered(*options: str) -> list[dict[str, Any]]:
    try:
        program = helm()
    except Unavailable as reason:
        pytest.skip(str(reason))
    words = [
        program,
        "template",
        "log",
        str(DEPLOY / "helm/ottla"),
        "--set",
        "clusterId=MkU3OEVBNTcwNTJENDM2Qk",
        *options,
    ]
    made = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert made.returncode == 0, made.stderr
    return [part for part in yaml.safe_load_all(made.stdout) if part]


def of_kind(parts: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [part for part in parts if part["kind"] == kind]


def affinity(stateful_set: dict[str, Any]) -> dict[str, Any]:
    apart: dict[str, Any] = stateful_set["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    return apart


@pytest.mark.parametrize("path", sorted((DEPLOY / "kubernetes").glob("p*.yaml")), ids=lambda path: path.name)
def test_manifests_fit_the_schemas_of_kubernetes(path: Path) -> None:
    parts = list(yaml.safe_load_all(path.read_text()))
    assert [problem for part in parts for problem in problems_of(part)] == []
    misspelled = path.read_text().replace("readOnlyRootFilesystem", "readonlyRootFilesystem")
    assert any(
        "readonlyRootFilesystem" in problem for part in yaml.safe_load_all(misspelled) for problem in problems_of(part)
    )


def test_a_wrong_type_and_an_unknown_kind_are_problems() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": "9092"}]}}
    assert len(problems_of(service)) == 1
    assert problems_of({"apiVersion": "v2", "kind": "Service"}) == ["v2 Service: the schemas have no such kind"]


REFUSED: dict[tuple[str, ...], str] = {
    (*OPEN, "--set", "external.enabled=true"): "set external.host",
    (*OPEN, "--set", "external.enabled=true", "--set", "external.type=LoadBalancer"): "set external.domain",
    (
        *OPEN,
        "--set",
        "external.enabled=true",
        "--set",
        "external.type=ClusterIP",
    ): "external.type is NodePort or LoadBalancer",
    (*OPEN, "--set", "antiAffinity=maybe"): "antiAffinity is soft, hard or none",
    OPEN: "clusterId is needed",
    (): "set tls.existingSecret and auth.existingSecret, or allowOpen=true",
    ("--set", "tls.existingSecret=t", "--set", "auth.existingSecret=a"): "set console.usersSecret",
    (*OPEN, "--set-string", "properties.ssl\\.key\\.password=x"): "properties.ssl.key.password is a secret",
}
RULE = "RULE:^CN=(.*?)$/$1/L"
MAPPED = ("--set-string", f"properties.ssl\\.principal\\.mapping\\.rules={RULE}")
AUTH = """\
listener.name.clients.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_node="p";
super.users=User:node
"""


def check_pods(parts: list[dict[str, Any]], count: int = 2) -> None:
    """The restricted Pod Security Standard, limits, and no token of the API server."""
    pods = [part["spec"]["template"]["spec"] for part in parts if part["kind"] in ("StatefulSet", "Deployment")]
    assert len(pods) == count
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        mounted = {volume["name"] for volume in pod["volumes"]} | {"data"}
        for container in pod["containers"]:
            inside = container["securityContext"]
            assert inside["allowPrivilegeEscalation"] is False
            assert inside["readOnlyRootFilesystem"] is True
            assert inside["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= mounted
    console = next(part for part in parts if part["metadata"]["name"] == "log-console" and part["kind"] == "Deployment")
    words = console["spec"]["template"]["spec"]["containers"][0]["args"]
    assert ("--allow-open" in words) != ("--users=/etc/ottla/users/users" in words)


def check_nodes(parts: list[dict[str, Any]], nodes: int, *, secured: bool) -> None:
    properties = node_properties(next(part for part in parts if part["kind"] == "StatefulSet"), secured=secured)
    config = load(properties)
    assert len(config.controller_quorum_voters) == nodes
    assert config.num_partitions == 7
    assert properties["ssl.principal.mapping.rules"] == RULE, "the pod's shell leaves values as they are"
    errors = {one.name for one in check_settings(properties, "chart") if one.level == "error"}
    assert errors == (set() if secured else {"open-listener", "no-acls", "open-http"})
    if secured:
        assert config.encrypts_at_rest


def node_properties(stateful_set: dict[str, Any], *, secured: bool, pod: str = "log-0") -> dict[str, str]:
    """The server.properties that the pod writes for itself, by its own shell."""
    script: str = stateful_set["spec"]["template"]["spec"]["containers"][0]["args"][0]
    written = script.partition("ottla storage format")[0].replace("cat /etc/ottla/tls/", "true /etc/ottla/tls/")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "auth.properties").write_text(AUTH)
        written = written.replace("/etc/ottla/auth", folder).replace("> /run/ottla", f"> {folder}")
        environment = {"HOSTNAME": pod, "PATH": "/usr/bin:/bin"}
        subprocess.run(["sh", "-ec", written], env=environment, timeout=20, check=True)
        made = Path(folder) / "server.properties"
        assert made.stat().st_mode & 0o077 == 0
        properties = parse_properties(made.read_text())
    assert ("super.users" in properties) == secured
    return properties


def test_the_image_uses_what_the_project_has() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text()
    assert 'ENTRYPOINT ["ottla"]' in text
    assert "/readyz" in text
    assert "USER 10001" in text, "an image that runs as root is refused by careful clusters"
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs), "the lock is the law"
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert {"!requirements-sql.lock", "!requirements-dev.lock"} <= set(ignored)


def test_the_image_builds_with_hashed_tools_only() -> None:
    """The Dockerfile's own awk takes the build backend, and all that it needs, out of the lock."""
    text = (DEPLOY / "docker/Dockerfile").read_text()
    program = re.search(r"awk '([^']+)'", text)
    assert program is not None
    done = subprocess.run(
        ["awk", program[1], str(DEPLOY.parent / "requirements-dev.lock")],
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    pinned = set(re.findall(r"^([a-z-]+)==", done.stdout, re.MULTILINE))
    needed = {"hatchling"}
    for requirement in importlib.metadata.requires("hatchling") or ():
        name, _, marker = requirement.partition(";")
        if "python_version" not in marker:
            needed.add(re.split(r"[<>=!~ ]", name.strip(), maxsplit=1)[0])
    assert pinned == needed
    assert done.stdout.count("--hash=sha256:") >= len(pinned)


@pytest.mark.timeout(180)
def test_what_the_image_installs_and_runs_works(tmp_path: Path) -> None:
    """No engine and no registry here: the Dockerfile's own steps by hand. A wheel, installed alone, and its CMD."""
    packed = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(DEPLOY.parent)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert packed.returncode == 0, packed.stderr
    (wheel,) = tmp_path.glob("ottla-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    text = (DEPLOY / "docker/Dockerfile").read_text()
    words = json.loads(re.search(r"^CMD (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]  # it has one
    first, _, _, registry, console = free_ports(5)
    command = [sys.executable, "-m", "ottla.cli.main", *words, "--port", str(first), "--registry-port", str(registry),
               "--console-port", str(console)]  # fmt: skip
    command[command.index("/var/lib/ottla")] = str(tmp_path / "data")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    refused = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 1, "the image's own command opens nothing without being told"
    assert "--allow-open" in refused.stderr
    environment["OTTLA_ALLOW_OPEN"] = "1"
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            assert until(f"http://127.0.0.1:{first + 2}/readyz") == b"ready\n"
            assert until(f"http://127.0.0.1:{registry}/subjects") == b"[]"
            assert until(f"http://127.0.0.1:{console}/readyz") == b"ready\n"
            assert b"<h1>Topics</h1>" in until(f"http://127.0.0.1:{console}/topics")
            assert b"htmx" in until(f"http://127.0.0.1:{console}/static/vendor/htmx.min.js")
            written = (tmp_path / "data/server.properties").read_text()
            assert f"advertised.listeners=PLAINTEXT://{socket.gethostname()}:" in written
        finally:
            process.terminate()
            process.wait(30)


def until(url: str, seconds: float = 60) -> bytes:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urlopen(url, timeout=10) as answer:
                return whole(answer)
        except (OSError, URLError, HTTPException):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@pytest.mark.interop
def test_hadolint_takes_the_dockerfile() -> None:
    try:
        program = hadolint()
    except Unavailable as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [program, str(DEPLOY / "docker/Dockerfile")], capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 0, done.stdout
