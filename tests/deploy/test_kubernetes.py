"""deploy/kubernetes without a cluster: names that fit, pods that meet the restricted standard, words that submit takes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from ottla.pipelines.checkpoints import is_object_store
from ottla.pipelines.pipeline import load_pipelines
from ottla.pipelines.submit import parser

FOLDER = Path(__file__).resolve().parent.parent.parent / "deploy" / "kubernetes"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "pipeline.yaml").read_text()))


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document["kind"] == kind]


def pods() -> dict[str, dict[str, Any]]:
    (deployment,) = of_kind("Deployment")
    template = yaml.safe_load((FOLDER / "pod.yaml").read_text())
    return {"driver": deployment["spec"]["template"]["spec"], "template": template["spec"]}


def driver_words() -> list[str]:
    (container,) = pods()["driver"]["containers"]
    return list(container["args"])


def settings() -> dict[str, str]:
    words = [word.partition("=")[2] for word in driver_words() if word.startswith("--conf=")]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def test_every_pod_meets_the_restricted_standard() -> None:
    for name, spec in pods().items():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert context["readOnlyRootFilesystem"] is True, name
            places = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert {"/tmp", "/work"} <= places, "a root that cannot be written needs room for scratch files"
        assert all("persistentVolumeClaim" not in volume for volume in spec["volumes"]), name


def test_names_fit() -> None:
    accounts = {document["metadata"]["name"] for document in of_kind("ServiceAccount")}
    (binding,), (role,) = of_kind("RoleBinding"), of_kind("Role")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {subject["name"] for subject in binding["subjects"]} == {pods()["driver"]["serviceAccountName"]} < accounts
    executor = settings()["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert executor in accounts - {subject["name"] for subject in binding["subjects"]}
    (container,) = pods()["driver"]["containers"]
    assert settings()["spark.kubernetes.container.image"] == container["image"]
    made = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"]
    mounted = {volume["configMap"]["name"] for volume in pods()["driver"]["volumes"] if "configMap" in volume}
    assert mounted == {generator["name"] for generator in made}
    files = {file for generator in made for file in generator["files"]}
    assert all((FOLDER / file).exists() for file in files)
    named = {Path(word).name for word in re.findall(r"(?<=[ =])/pipelines/[\w.]+", " ".join(driver_words()))}
    assert named == files


def test_the_driver_has_words_of_submit() -> None:
    words = driver_words()
    assert words[:3] == ["python", "-m", "ottla.pipelines.submit"]
    options = parser().parse_args(words[3:])
    assert is_object_store(options.checkpoints)
    assert options.master.startswith("k8s://")
    variables = set(re.findall(r"\$\((\w+)\)", " ".join(words)))
    (container,) = pods()["driver"]["containers"]
    assert variables == {entry["name"] for entry in container["env"]}


def test_the_pipeline_loads() -> None:
    (pipeline,) = load_pipelines(str(FOLDER / "shop.py"))
    assert [step.name for step in pipeline.in_order()] == ["large", "by-page"]


def test_the_image_uses_locks_and_is_not_root() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    assert "USER 10001" in text
    installs = re.findall(r"pip install (?:[^\n]*\\\n)*[^\n]*", text)
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    ignored = (FOLDER.parent.parent / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.*)", text, re.MULTILINE)
    sources = {source for line in copied for source in line.split()[:-1] if source != "."}
    assert {f"!{source}" for source in sources} <= set(ignored)


def entrypoint(tmp_path: Path, *words: str, **environment: str) -> list[str]:
    """The words that the entrypoint's Java or spark-submit gets."""
    for name in ("java", "spark-submit"):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        command.chmod(0o755)
    done = subprocess.run(
        [str(FOLDER / "entrypoint.sh"), *words],
        env={"PATH": os.environ["PATH"], "SPARK_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path), **environment},
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078", "SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m", "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "shop-exec-3", "SPARK_RESOURCE_PROFILE_ID": "0",
}  # fmt: skip


def test_the_entrypoint_starts_an_executor(tmp_path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number} 'x' $HOME" for number in range(11)}
    words = entrypoint(tmp_path, "executor", **EXECUTOR, **options, SPARK_DIST_CLASSPATH="/opt/jars/*")
    assert words[0] == f"{tmp_path}/bin/java"
    assert words[1:12] == list(options.values()), "in order of their numbers, unchanged"
    assert words[12:16] == ["-Xms1024m", "-Xmx1024m", "-cp", f"{tmp_path}/jars/*:/opt/jars/*"]
    assert words[16].endswith("KubernetesExecutorBackend")
    assert dict(zip(words[17::2], words[18::2], strict=True)) == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"], "--executor-id": "3", "--cores": "2", "--app-id": "spark-1",
        "--hostname": "10.0.0.9", "--resourceProfileId": "0", "--podName": "shop-exec-3",
    }  # fmt: skip


def test_the_entrypoint_starts_a_driver_or_a_command(tmp_path: Path) -> None:
    words = entrypoint(tmp_path, "driver", "--class", "X", "local:///x.py", "a b", SPARK_DRIVER_BIND_ADDRESS="10.0.0.7")
    assert words[0] == f"{tmp_path}/bin/spark-submit"
    assert words[1:5] == ["--conf", "spark.driver.bindAddress=10.0.0.7", "--deploy-mode", "client"]
    assert words[5:] == ["--class", "X", "local:///x.py", "a b"]
    assert entrypoint(tmp_path, "echo", "a b") == ["a b"]
