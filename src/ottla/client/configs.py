"""Settings of topics, brokers, groups and client metrics: described and changed one by one (KIP-339)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.generated.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Change = tuple[str, int, str | None]
"""A setting's name, the operation, and the value (None for DELETE)."""


def describe_configs(
    cluster: Cluster, kind: ConfigResourceType, names: Sequence[str], *, synonyms: bool = False
) -> dict[str, list[DescribeConfigsResourceResult]]:
    """By resource name; KafkaError for the first that is refused. A named broker answers for itself."""
    grouped: Mapping[str, list[str]] = (
        {name: [name] for name in names}
        if kind in {ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER}
        else {"": list(names)}
    )
    configs: dict[str, list[DescribeConfigsResourceResult]] = {}
    for node, resources in grouped.items():
        rows = [DescribeConfigsResource(kind, name, None) for name in resources]
        request = DescribeConfigsRequest(rows, include_synonyms=synonyms)
        if node and not cluster.settings.controllers:
            answer = cluster.node_call("describeBrokerConfigs", int(node), request, DescribeConfigsResponse)
        elif cluster.settings.controllers:
            answer = cluster.controller_call("describeConfigs", request, DescribeConfigsResponse)
        else:
            answer = cluster.any_call("describeConfigs", request, DescribeConfigsResponse)
        for result in answer.results:
            check(result.error_code, result.error_message)
            configs[result.resource_name] = result.configs
    return configs


def alter_configs(cluster: Cluster, kind: ConfigResourceType, name: str, changes: Iterable[Change]) -> None:
    from ottla.protocol.generated.incremental_alter_configs_request import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from ottla.protocol.generated.incremental_alter_configs_response import IncrementalAlterConfigsResponse

    rows = [AlterableConfig(key, operation, value) for key, operation, value in changes]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, rows)])
    if (
        name
        and kind in {ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER}
        and not cluster.settings.controllers
    ):
        answer = cluster.node_call("incrementalAlterConfigs", int(name), request, IncrementalAlterConfigsResponse)
    else:
        answer = cluster.controller_call(
            "incrementalAlterConfigs", request, IncrementalAlterConfigsResponse, lambda a: a.responses[0].error_code
        )
    check(answer.responses[0].error_code, answer.responses[0].error_message)


def list_config_resources(cluster: Cluster, kind: ConfigResourceType) -> list[str]:
    from ottla.protocol.generated.list_config_resources_request import ListConfigResourcesRequest
    from ottla.protocol.generated.list_config_resources_response import ListConfigResourcesResponse

    answer = cluster.any_call("listConfigResources", ListConfigResourcesRequest([kind]), ListConfigResourcesResponse)
    check(answer.error_code)
    return [row.resource_name for row in answer.config_resources]
