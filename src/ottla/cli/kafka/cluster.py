"""kafka-cluster: the cluster's id, its endpoints, and the end of a broker's registration."""

from __future__ import annotations

import sys

from ottla.cli.kafka.admin import REFUSED, command_properties_of, open_cluster
from ottla.cli.kafka.arguments import ToolParser, java_integer
from ottla.cli.kafka.options import Exit, OptionError
from ottla.client.cluster import Cluster
from ottla.client.errors import UnsupportedVersion, check, java_name
from ottla.model.errors import KafkaError


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-cluster", "The Kafka cluster tool.")
    commands = parser.commands()
    for name, about in (
        ("cluster-id", "Print the id of the cluster."),
        ("unregister", "Unregister a broker."),
        ("list-endpoints", "List the endpoints of the cluster."),
    ):
        command = parser.command(commands, name, about)
        where = command.add_mutually_exclusive_group(required=True)
        where.add_argument("-b", "--bootstrap-server", metavar="BOOTSTRAP_SERVER", help="Brokers, as HOST:PORT,...")
        where.add_argument("-C", "--bootstrap-controller", metavar="BOOTSTRAP_CONTROLLER", help="Controllers.")
        command.add_argument("-c", "--command-config", help="File with the client's properties.")
        command.add_argument("--config", help="(DEPRECATED) The same as --command-config.")
        if name == "unregister":
            command.add_argument("-i", "--id", type=java_integer(), required=True, help="The broker's id.")
        if name == "list-endpoints":
            command.add_argument("--include-fenced-brokers", action="store_true", help="List fenced brokers too.")
    try:
        parsed = parser.parse(arguments)
    except Exit as end:
        return end.code
    controllers = parsed.bootstrap_controller is not None
    try:
        if parsed.config is not None:
            if parsed.command_config is not None:
                raise OptionError("--config and --command-config cannot be specified together.")
            print(
                "Option --config has been deprecated and will be removed in a future version. "
                "Use --command-config instead."
            )
        properties = command_properties_of(parsed.command_config or parsed.config)
        with open_cluster(
            parsed.bootstrap_controller or parsed.bootstrap_server, properties, controllers=controllers
        ) as cluster:
            if parsed.command == "cluster-id":
                print(f"Cluster ID: {cluster.describe('describeCluster').cluster_id}")
            elif parsed.command == "unregister":
                _unregister(cluster, parsed.id)
            else:
                _endpoints(cluster, include_fenced=parsed.include_fenced_brokers)
    except UnsupportedVersion:
        print("The target cluster does not support the broker unregistration API.")
        return 1
    except REFUSED as reason:
        wrapped = isinstance(reason, KafkaError)
        print(f"{java_name(reason)}: {reason}" if wrapped else reason, file=sys.stderr)
        return 1
    return 0


def _unregister(cluster: Cluster, broker: int) -> None:
    from ottla.protocol.generated.unregister_broker_request import UnregisterBrokerRequest
    from ottla.protocol.generated.unregister_broker_response import UnregisterBrokerResponse

    request = UnregisterBrokerRequest(broker)
    answer = cluster.controller_call("unregisterBroker", request, UnregisterBrokerResponse, lambda a: a.error_code)
    check(answer.error_code, answer.error_message)
    print(f"Broker {broker} is no longer registered.")


def _endpoints(cluster: Cluster, *, include_fenced: bool) -> None:
    from ottla.protocol.generated.describe_cluster_request import DescribeClusterRequest
    from ottla.protocol.generated.describe_cluster_response import DescribeClusterResponse

    controllers = cluster.settings.controllers
    request = DescribeClusterRequest(endpoint_type=2 if controllers else 1, include_fenced_brokers=include_fenced)
    answer = cluster.any_call("describeCluster", request, DescribeClusterResponse)
    check(answer.error_code, answer.error_message)
    host = max((len(node.host) for node in answer.brokers), default=10)
    rack = max((len(node.rack or "") for node in answer.brokers if node.rack), default=10)
    state = "" if controllers else f" {'STATE':<10}"
    print(f"{'ID':<10} {'HOST':<{host}} {'PORT':<10} {'RACK':<{rack}}{state} {'ENDPOINT_TYPE':<15}")
    for node in sorted(answer.brokers, key=lambda node: node.broker_id):
        state = "" if controllers else f" {'fenced' if node.is_fenced else 'unfenced':<10}"
        kind = "controller" if controllers else "broker"
        print(
            f"{node.broker_id:<10} {node.host:<{host}} {node.port:<10} {node.rack or 'null':<{rack}}{state} {kind:<15}"
        )
