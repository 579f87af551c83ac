"""The chart in deploy/helm: what helm makes of it fits Kubernetes' schemas, and its nodes could start."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.cli.doctor.security import check_settings
from ottla.env.config.load import load
from ottla.env.config.properties import parse_properties
from tests.support.helm import helm
from tests.support.kafka_jars import Unavailable
from tests.support.kubernetes_schemas import problems_of

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
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
