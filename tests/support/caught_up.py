"""Until a broker has done all that follows from the changes so far.

A controller answers when a change is committed; a broker follows later. Kafka's publishes one image of the metadata after
the other, each to its metadata cache first and to replicas, coordinators, settings, logins and rules behind it. A mark
that its cache tells is of an image that may still be on its way to the rest, so there are two: once the second is told,
the image of the first is done, and with it everything before.
"""

from __future__ import annotations

import itertools
import os
import time

from ottla.client.cluster import Cluster
from ottla.client.settings import client_settings
from ottla.protocol.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.generated.alter_client_quotas_response import AlterClientQuotasResponse
from ottla.protocol.generated.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.generated.describe_client_quotas_response import DescribeClientQuotasResponse

_PLACE, _KEY = "127.9.9.9", "connection_creation_rate"
"""A quota of an address that nobody comes from."""
_marks = itertools.count(1_000_000)
_WAIT_S = 60.0


def catch_up(bootstrap_servers: str) -> None:
    """For a cluster of one broker."""
    with Cluster(client_settings(bootstrap_servers, {})) as cluster:
        for _ in range(2):
            _mark(cluster, float(next(_marks) * 1000 + os.getpid() % 1000))


def _mark(cluster: Cluster, value: float) -> None:
    entry = EntryData([EntityData("ip", _PLACE)], [OpData(_KEY, value, False)])
    answer = cluster.controller_call("mark", AlterClientQuotasRequest([entry]), AlterClientQuotasResponse)
    if answer.entries[0].error_code:
        raise AssertionError(answer)
    asked = DescribeClientQuotasRequest([ComponentData("ip", 0, _PLACE)], strict=True)
    deadline = time.monotonic() + _WAIT_S
    while True:
        told = cluster.any_call("marked", asked, DescribeClientQuotasResponse)
        if any(each.key == _KEY and each.value == value for entry in told.entries or () for each in entry.values):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{value} never came: {told}")
        time.sleep(0.002)
