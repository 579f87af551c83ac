"""kafka-broker-api-versions: which APIs each broker answers, at which versions."""

from __future__ import annotations

import sys
from functools import partial

from ottla.cli.kafka.admin import BOOTSTRAP_SERVER, COMMAND_CONFIG, REFUSED, cluster_of
from ottla.cli.kafka.options import Exit, OptionParser
from ottla.client.connection import BrokerConnection
from ottla.client.errors import ClientError
from ottla.protocol.generated.index import APIS

PARSER = OptionParser((BOOTSTRAP_SERVER, COMMAND_CONFIG))


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "This tool helps to retrieve broker version information.")
        options.require("bootstrap-server")
        with cluster_of(options) as cluster:
            for broker in sorted(cluster.describe("describeCluster").brokers, key=lambda broker: broker.node_id):
                where = (
                    f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'} isFenced: false)"
                )
                try:
                    node = broker.node_id
                    connection = cluster.retried("apiVersions", partial(cluster.node, node))
                except ClientError as reason:
                    print(f"{where} -> ERROR: {reason}")
                    continue
                print(f"{where} -> (")
                print(",\n".join(_lines(connection)))
                print(")")
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _lines(connection: BrokerConnection) -> list[str]:
    lines = []
    for key, api in APIS.items():
        if "broker" not in api.listeners:
            continue
        theirs = connection.versions.get(key)
        if theirs is None:
            lines.append(f"\t{api.name}({key}): UNSUPPORTED")
            continue
        low, high = theirs
        usable = connection.usable_version(key)
        span = f"{low}" if low == high else f"{low} to {high}"
        lines.append(
            f"\t{api.name}({key}): {span} [usable: {usable}]"
            if usable is not None
            else f"\t{api.name}({key}): {span} [unusable: node too {'old' if high < api.min_version else 'new'}]"
        )
    for key in sorted(set(connection.versions) - set(APIS)):
        low, high = connection.versions[key]
        lines.append(f"\tUNKNOWN({key}): {low}" + ("" if low == high else f" to {high}"))
    return lines
