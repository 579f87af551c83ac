"""deploy/kubernetes against a real API server: every manifest is accepted, spark-submit makes the expected driver pod, and the
pipeline runs with executors that the driver asks the API server for.

There is no kubelet. The test starts the container of a pod as a process of this machine and reports the pod as running.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest

from ottla.pipelines.session import _worker_python, use_java
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT
from tests.pipelines.conftest import Topics
from tests.support.kafka_jars import Unavailable, cache_dir, fetch_artifacts
from tests.support.kubernetes import Kubernetes, kubernetes
from tests.support.s3 import KEYS, s3_server
from tests.support.spark_servers import BIN, bare_python

pytestmark = [pytest.mark.soak, pytest.mark.interop, pytest.mark.timeout(4500)]
FOLDER = ROOT / "deploy" / "kubernetes"
NAMESPACE = "pipelines"
RESTRICTED = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}
SUBMIT = "local:///opt/ottla/lib/python3.11/site-packages/ottla/pipelines/submit.py"
SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    try:
        with kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as made:
            made.call("POST", "/api/v1/namespaces", RESTRICTED)
            applied = made.kubectl("apply", "-n", NAMESPACE, "-k", str(FOLDER))
            assert applied.returncode == 0, applied.stderr
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_the_api_server_accepts_every_manifest(cluster):
    done = cluster.kubectl(
        "apply", "-n", NAMESPACE, "-k", str(FOLDER), "--dry-run=server", "--validate=strict", "-o", "name"
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, "a pod of the Deployment does not meet the restricted standard"
    names = Counter(line.partition("/")[0].partition(".")[0] for line in done.stdout.splitlines())
    assert names == {"serviceaccount": 2, "role": 1, "rolebinding": 1, "deployment": 1, "configmap": 1}
    text = cluster.kubectl("kustomize", str(FOLDER)).stdout
    assert (
        cluster.kubectl(
            "apply", "-n", NAMESPACE, "-f", "-", "--dry-run=server", "--validate=strict",
            stdin=text.replace("replicas:", "replica:"),
        ).returncode
        != 0
    )  # fmt: skip


def test_spark_submit_makes_the_driver_pod(cluster, tmp_path):
    use_java()
    made = cluster.kubectl("create", "token", "pipeline-driver", "-n", NAMESPACE)
    assert made.returncode == 0, made.stderr
    settings = {
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.driver.pod.name": "shop-driver",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "pipeline-driver",
        "spark.kubernetes.authenticate.executor.serviceAccountName": "pipeline-executor",
        "spark.kubernetes.container.image": "ottla-spark",
        "spark.kubernetes.driver.podTemplateFile": str(FOLDER / "pod.yaml"),
        "spark.kubernetes.executor.podTemplateFile": str(FOLDER / "pod.yaml"),
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.authenticate.submission.caCertFile": str(cluster.folder / "ca.pem"),
        "spark.kubernetes.authenticate.submission.oauthToken": _admin_token(cluster),
        "spark.executor.instances": "2",
    }
    words = [
        "--master", f"k8s://{cluster.address}", "--deploy-mode", "cluster", "--name", "shop",
        *[word for name, value in settings.items() for word in ("--conf", f"{name}={value}")],
        SUBMIT, "/pipelines/shop.py", "-b", "ottla:9092", "--checkpoints", "s3a://pipelines/checkpoints",
    ]  # fmt: skip
    done = subprocess.run(
        [str(BIN / "spark-submit"), *words], env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    pod = next(pod for pod in cluster.pods(NAMESPACE) if pod["metadata"]["name"] == "shop-driver")
    assert pod["status"]["phase"] == "Pending"
    spec = pod["spec"]
    assert spec["serviceAccountName"] == "pipeline-driver"
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["image"] == "ottla-spark"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["args"][0] == "driver"
    program = container["args"].index(SUBMIT)
    assert container["args"][program:] == [
        SUBMIT, "/pipelines/shop.py", "-b", "ottla:9092", "--checkpoints", "s3a://pipelines/checkpoints",
    ]  # fmt: skip
    assert {"/tmp", "/work", "/opt/spark/conf"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    assert all("persistentVolumeClaim" not in volume for volume in spec["volumes"])
    maps = {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume}
    held = [cluster.call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")["data"] for name in maps]
    assert any("readOnlyRootFilesystem" in text for data in held for text in data.values()), "the executors' template"


def _admin_token(cluster: Kubernetes) -> str:
    return str(json.loads((cluster.folder / "kubeconfig").read_text())["users"][0]["user"]["token"])


class Kubelet:
    """Runs the containers of executor pods as processes, with the image's own entrypoint."""

    def __init__(self, cluster: Kubernetes, folder: Path, environment: dict[str, str]) -> None:
        self._cluster = cluster
        self._folder = folder
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.started = 0

    def look(self) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self._cluster.pods(NAMESPACE, "spark-role%3Dexecutor")}
        for name in self._running.keys() - pods.keys():
            self._end(self._running.pop(name))
        for name, pod in pods.items():
            if name not in self._running and pod["status"]["phase"] == "Pending":
                self._running[name] = self._start(pod)
                self.started += 1
                self._cluster.set_status(pod, **running())

    def close(self) -> None:
        for process in self._running.values():
            self._end(process)

    def _start(self, pod: dict[str, Any]) -> subprocess.Popen[bytes]:
        (container,) = pod["spec"]["containers"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
        named = {
            entry["name"]: entry.get("value") or fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            for entry in container["env"]
        }
        place = self._folder / pod["metadata"]["name"]
        place.mkdir()
        with (place / "log").open("wb") as log:
            return subprocess.Popen(
                [str(FOLDER / "entrypoint.sh"), *container["args"]],
                env={**self._environment, **named, "SPARK_LOCAL_DIRS": str(place)},
                cwd=place, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(30)


def running() -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], "conditions": [ready]}


def test_the_manifest_runs_the_pipeline(cluster, ottla_server, tmp_path):
    use_java()
    try:
        s3a = fetch_artifacts(
            "Hadoop's S3A", cache_dir().with_name("ottla-hadoop-aws-3.5.0"), ["org.apache.hadoop:hadoop-aws:3.5.0"]
        )
        with s3_server(tmp_path) as store:
            _run(cluster, ottla_server, store, f"{s3a}/*", tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))


def _run(cluster: Kubernetes, ottla_server: Any, store: Any, jars: str, tmp_path: Path) -> None:
    topics = Topics(ottla_server)
    topics.make("orders", 2)
    orders = [{"id": n, "page": f"/{n % 3}", "total": 500.0 * (n % 5)} for n in range(100)]
    topics.send("orders", [(None, json.dumps(order).encode()) for order in orders] + [(None, b"{")])
    store.bucket("pipelines")
    bare = bare_python(tmp_path / "bare")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "OTTLA_"))},
        **KEYS,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DIST_CLASSPATH": jars,
    }
    environment.pop("PYTHONPATH", None)
    pod, words = _driver(cluster, ottla_server.bootstrap_servers, store.endpoint, tmp_path)
    cluster.set_status(pod, **running())
    # Spark starts the Python of one name everywhere: in the driver it has an Ottla, in the executors it is the bare one.
    kubelet = Kubelet(cluster, tmp_path, {**environment, "PATH": f"{bare.parent}:{environment['PATH']}"})
    own = {"PATH": f"{Path(_worker_python()).parent}:{environment['PATH']}", "PYSPARK_PYTHON": "python3"}
    log = tmp_path / "driver.log"
    with log.open("wb") as file:
        driver = subprocess.Popen(
            words, env={**environment, **own, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 1500
        while driver.poll() is None and time.monotonic() < deadline:
            kubelet.look()
            with suppress(subprocess.TimeoutExpired):
                driver.wait(0.5)
        assert driver.poll() == 0, log.read_text(errors="replace")[-4000:]
        assert kubelet.started == 2, "executors of the API server did the work"
        assert cluster.pods(NAMESPACE, "spark-role%3Dexecutor") == [], "the driver removed its pods"
    finally:
        driver.kill()
        driver.wait(30)
        kubelet.close()
    client = {"bootstrap.servers": ottla_server.bootstrap_servers}
    large = [json.loads(row["value"])["id"] for row in topic_table(client, "large-orders").to_pylist()]
    assert Counter(large) == Counter(order["id"] for order in orders if order["total"] > 1000)
    newest = {
        row["key"]: json.loads(row["value"])["count"] for row in topic_table(client, "orders-by-page").to_pylist()
    }
    assert newest == {b"/0": 34, b"/1": 33, b"/2": 33}
    assert len(topic_table(client, "orders.bad").to_pylist()) == 1
    assert list((store.root / "pipelines" / "checkpoints" / "shop").glob("*/commits/0"))


def _driver(cluster: Kubernetes, servers: str, endpoint: str, tmp_path: Path) -> tuple[dict[str, Any], list[str]]:
    """The pod of the Deployment, which its controller would make, and the words of its container for this machine."""
    deployment = cluster.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/shop-pipeline")
    template = deployment["spec"]["template"]
    template["metadata"]["name"] = "shop-pipeline-1"
    pod = cluster.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {"apiVersion": "v1", "kind": "Pod", **template})
    token = cluster.kubectl("create", "token", "pipeline-driver", "-n", NAMESPACE)
    assert token.returncode == 0, token.stderr
    (tmp_path / "token").write_text(token.stdout.strip())
    (volume,) = [volume for volume in template["spec"]["volumes"] if "configMap" in volume]
    held = cluster.call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{volume['configMap']['name']}")["data"]
    (tmp_path / "pipelines").mkdir()
    for name, text in held.items():
        (tmp_path / "pipelines" / name).write_text(text)
    here = {
        "$(POD_NAMESPACE)": NAMESPACE, "$(POD_NAME)": "shop-pipeline-1", "$(POD_IP)": "127.0.0.1",
        "https://kubernetes.default.svc": cluster.address, "ottla:9092": servers, "=1g": "=512m",
    }  # fmt: skip
    (container,) = template["spec"]["containers"]
    words = [sys.executable, *container["args"][1:]]
    words = [re.sub(r"(^|=)/pipelines/", rf"\1{tmp_path}/pipelines/", word) for word in words]
    for name, value in here.items():
        words = [word.replace(name, value) for word in words]
    more = {
        "spark.kubernetes.authenticate.caCertFile": str(cluster.folder / "ca.pem"),
        "spark.kubernetes.authenticate.oauthTokenFile": str(tmp_path / "token"),
        "spark.kubernetes.allocation.batch.delay": "1s",
        "spark.driver.extraJavaOptions": SMALL,
        "spark.executor.extraJavaOptions": SMALL,
        "spark.sql.shuffle.partitions": "2",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": KEYS["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    return pod, [*words, "--once", *[f"--conf={name}={value}" for name, value in more.items()]]
