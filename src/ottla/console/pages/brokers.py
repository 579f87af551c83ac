"""Brokers, the quorum of controllers, and one broker with its settings."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.cluster import Cluster
from ottla.client.configs import DELETE, SET, ConfigResourceType, alter_configs, describe_configs
from ottla.client.errors import check
from ottla.console.errors import ConsoleError
from ottla.console.pages.config_table import config_rows, until_changed
from ottla.console.site import site_of
from ottla.console.web import back, form, number, page_response, text
from ottla.model.config_source import ConfigSource
from ottla.protocol.generated.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.protocol.generated.describe_quorum_response import DescribeQuorumResponse
from ottla.protocol.generated.describe_quorum_response import PartitionData as Quorum


def describe_quorum(cluster: Cluster) -> Quorum:
    request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
    answer = cluster.any_call("describeMetadataQuorum", request, DescribeQuorumResponse)
    check(answer.error_code, answer.error_message)
    quorum = answer.topics[0].partitions[0]
    check(quorum.error_code, quorum.error_message)
    return quorum


async def show(request: Request) -> Response:
    site = site_of(request)
    snapshot = await site.sampler.current()
    quorum, problem = None, ""
    try:
        quorum = await site.gateway.ask(describe_quorum)
    except ConsoleError as error:
        problem = error.message
    return page_response(request, "brokers.html", "brokers", snapshot=snapshot, quorum=quorum, problem=problem)


async def show_broker(request: Request) -> Response:
    site = site_of(request)
    node = number(request.path_params["broker"], "Broker")
    snapshot = await site.sampler.current()
    row = next((broker for broker in snapshot.brokers if broker.id == node), None)
    if row is None:
        raise ConsoleError(f"There is no broker {node}.", status=404)
    configs = await site.gateway.ask(
        lambda cluster: describe_configs(cluster, ConfigResourceType.BROKER, [str(node)], synonyms=True)
    )
    rows = config_rows(configs.get(str(node), []), ConfigSource.DYNAMIC_BROKER_CONFIG, "broker")
    led = [
        (topic.name, partition)
        for topic in snapshot.topics.values()
        for partition in topic.partitions
        if node in partition.replicas
    ]
    return page_response(request, "broker.html", "brokers", broker=row, rows=rows, partitions=led)


async def change(request: Request) -> Response:
    form_data = await form(request, "admin")
    node, name, value = request.path_params["broker"], text(form_data, "name"), text(form_data, "value")
    reset = text(form_data, "reset") == "yes"
    edit = (name, DELETE, None) if reset else (name, SET, value)
    gateway = site_of(request).gateway
    await gateway.ask(lambda cluster: alter_configs(cluster, ConfigResourceType.BROKER, node, [edit]))
    level = ConfigSource.DYNAMIC_BROKER_CONFIG
    await until_changed(gateway, ConfigResourceType.BROKER, node, name, level, None if reset else value)
    return back(f"/brokers/{node}", f"{name} is back to its default." if reset else f"{name} is now {value}.")


ROUTES = [
    Route("/brokers", show),
    Route("/brokers/{broker}", show_broker),
    Route("/brokers/{broker}", change, methods=["POST"]),
]
