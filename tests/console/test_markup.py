"""Names and values that are HTML are text on every page: nothing of them runs, also without the page's policy.

The browser is told to pass over the Content-Security-Policy, so that what is seen is the console's own escaping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer

from ottla.client.cluster import Cluster
from ottla.client.settings import client_settings
from ottla.protocol.generated import alter_client_quotas_request as quotas
from ottla.protocol.generated import create_acls_request as acls
from ottla.protocol.generated.alter_client_quotas_response import AlterClientQuotasResponse
from ottla.protocol.generated.create_acls_response import CreateAclsResponse
from tests.console.site import ServedConsole

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

MARKUP = """"'></script><img src=x onerror="window.ran=1"><svg onload="window.ran=1">{{7*7}}"""
TOPIC = "of-markup"


def test_nothing_runs(living: ServedConsole, open_page: Callable[..., Any]) -> None:
    client = living.site.client
    assert living.post("/topics", name=TOPIC, partitions="1", replication_factor="1").status_code == 200
    producer = Producer({**client, "client.id": MARKUP, "transactional.id": MARKUP})
    producer.init_transactions()
    producer.begin_transaction()
    for value in (MARKUP, f'{{"a": "{MARKUP[2:]}"}}', f"<html>{MARKUP}</html>"):
        producer.produce(TOPIC, key=MARKUP, value=value, headers={MARKUP: MARKUP})
    producer.commit_transaction()
    with Cluster(client_settings(client["bootstrap.servers"], {})) as cluster:
        entry = quotas.EntryData([quotas.EntityData("user", MARKUP)], [quotas.OpData("producer_byte_rate", 1e9)])
        cluster.controller_call(
            "quotas", quotas.AlterClientQuotasRequest([entry]), AlterClientQuotasResponse, lambda _: 0
        )
        rule = acls.AclCreation(3, MARKUP, 3, f"User:{MARKUP}", "*", 3, 3)
        cluster.controller_call("acls", acls.CreateAclsRequest([rule]), CreateAclsResponse, lambda _: 0)
    consumer = Consumer({**client, "client.id": MARKUP, "group.id": MARKUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    try:
        assert len(consumer.consume(3, 30)) == 3
        consumer.commit(asynchronous=False)
        living.until(f"/topics/{TOPIC}/consumers", "onerror=")  # a group is listed before what it commits
        page = open_page(living, bypass_csp=True)
        name = quote(MARKUP, safe="")
        places = {
            f"/topics/{TOPIC}/messages": True, "/groups": True, f"/groups/{name}": True,
            f"/topics/{TOPIC}/consumers": True, "/access": True, "/quotas": True, "/transactions": True,
            f"/transactions/{name}": True, "/": False, f"/topics/{TOPIC}": False, "/lineage": False, "/brokers/1": False,
            f"/topics/{name}": False, f"/groups/{name}{name}": False, f"/schemas/{name}": False,
            f"/topics/{TOPIC}/messages?filter={name}&key={name}": True, f"/topics?q={name}": False,
        }  # fmt: skip
        for path, shows in places.items():
            page.goto(path)
            page.locator("h1").first.wait_for()
            if "/messages" in path:
                page.locator("#message-rows tr").first.click()
            if path == "/lineage":
                page.wait_for_load_state("networkidle")  # its graph is drawn from what it fetches
            assert page.evaluate("window.ran") is None, path
            assert page.locator("img[src=x], svg[onload]").count() == 0, path
            if shows:
                assert "onerror=" in page.locator("main").inner_text(), path
    finally:
        consumer.close()
