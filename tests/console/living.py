"""A console on the scene: an Ottla that tells lineage and has an authorizer, a registry, pipelines, all on free ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from ottla.testing import Broker
from tests.console.scene import Pipelines, Scene
from tests.console.site import ServedConsole
from tests.registry.instances import RegistryThread
from tests.support.ports import free_port


@contextmanager
def living_console(folder: Path) -> Iterator[ServedConsole]:
    with ExitStack() as stack:
        broker = stack.enter_context(
            Broker(
                properties={
                    "ottla.http.listener": f"127.0.0.1:{free_port()}",
                    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                    "super.users": "User:ANONYMOUS",
                }
            )
        )
        registry = stack.enter_context(RegistryThread(broker.bootstrap_servers, topic="_schemas"))
        scene = stack.enter_context(closing(Scene(broker.bootstrap_servers, registry.url)))
        scene.fill()
        pipelines = stack.enter_context(Pipelines(folder))
        console = stack.enter_context(
            ServedConsole(
                bootstrap_servers=broker.bootstrap_servers, registry_url=registry.url, pipelines_url=pipelines.url
            )
        )
        console.pipelines = pipelines
        govern(console)
        yield console


def govern(console: ServedConsole) -> None:
    """Rules, users and quotas, set as a person would."""
    for fields in (
        {"principal": "User:billing", "permission": "3", "operation": "3", "resource": "2", "name": "shop.", "pattern": "4"},
        {"principal": "User:guest", "permission": "2", "operation": "2", "resource": "4", "name": "kafka-cluster", "pattern": "3"},
    ):  # fmt: skip
        assert console.post("/access/acls", **fields).status_code == 200
    assert console.post("/access/users", user="billing", mechanism="2", password="long-enough").status_code == 200
    quota = {"user": "billing", "name": "producer_byte_rate", "value": "1048576"}
    assert console.post("/quotas", **quota).status_code == 200
