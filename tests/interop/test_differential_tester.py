"""The tester itself: it sees a difference, names what differs by nature, and waits for no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.model.ids import Uuid
from ottla.protocol.generated.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.protocol.generated.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.generated.metadata_response import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from ottla.protocol.primitives import Struct
from tests.interop.differential import allowed
from tests.interop.differential.batches import batch
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.scenario import SCENARIOS
from tests.interop.differential.servers import Address
from tests.interop.differential.trees import Symbols, differences


def symbols(port: int = 1, *, reference: bool = False) -> Symbols:
    return Symbols(texts={f"/data/{port}": "<dir>"}, ports={port}, reference=reference)


def compared(left: Struct, right: Struct) -> list[tuple[str, Any, Any]]:
    return differences(symbols(1, reference=True).tree(left), symbols(2).tree(right))


def metadata(port: int, *topics: tuple[str, bytes]) -> MetadataResponse:
    brokers = [MetadataResponseBroker(1, "127.0.0.1", port)]
    return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(0, n, Uuid(i)) for n, i in topics])


def test_ports_ids_and_the_order_of_sets_are_no_difference() -> None:
    left = metadata(1, ("a", b"a" * 16), ("b", b"b" * 16))
    right = metadata(2, ("b", b"x" * 16), ("a", b"y" * 16))
    assert compared(left, right) == []


def test_a_field_that_differs_is_found_with_its_path() -> None:
    right = metadata(2, ("a", b"x" * 16))
    right.topics[0].error_code = 3
    assert compared(metadata(1, ("a", b"a" * 16)), right) == [("topics[0].error_code", 0, 3)]


def test_an_id_that_belongs_to_another_topic_is_found() -> None:
    """Ids are named, not dropped: the same id must mean the same topic on both sides."""
    left, right = symbols(1), symbols(2)
    left.tree(metadata(1, ("a", b"a" * 16), ("b", b"b" * 16)))
    right.tree(metadata(2, ("a", b"x" * 16), ("b", b"y" * 16)))

    def fetched(topic_id: bytes) -> FetchResponse:
        return FetchResponse(responses=[FetchableTopicResponse("", Uuid(topic_id), [])])

    assert differences(left.tree(fetched(b"a" * 16)), right.tree(fetched(b"x" * 16))) == []
    assert differences(left.tree(fetched(b"a" * 16)), right.tree(fetched(b"y" * 16))) != []


def test_records_are_compared_one_by_one() -> None:
    def fetched(*values: bytes) -> FetchResponse:
        topic = FetchableTopicResponse("t", partitions=[PartitionData(0, records=batch(*values))])
        return FetchResponse(responses=[topic])

    assert compared(fetched(b"a", b"b"), fetched(b"a", b"b")) == []
    ((path, left, right),) = compared(fetched(b"a", b"b"), fetched(b"a", b"c"))
    assert (path, left, right) == ("responses[0].partitions[0].records[0].records[1].value", b"b", b"c")


def test_an_api_that_is_built_must_leave_the_list_of_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    later = 80
    monkeypatch.setattr(allowed, "LATER_APIS", frozenset({later}))
    both = ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4), ApiVersion(later, 0, 1)])
    assert compared(both, ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4)])) == []
    assert compared(both, both) != []


def test_a_difference_fails_the_scenario_and_shows_both_values() -> None:
    address = Address("apache", 1, 2, Path("/data/1"), Path("/data/1/log"))
    pair = Pair(Side(address), Side(address._replace(name="ottla")), "x")
    pair._report("a request", [("topics[0].error_code", 0, 3)])
    with pytest.raises(AssertionError, match=r"apache  0 NONE\n.*ottla   3 UNKNOWN_TOPIC_OR_PARTITION"):
        pair.check()


def test_no_two_scenarios_share_their_names() -> None:
    import tests.interop.test_differential  # noqa: F401 - registers them

    names = [(each.name, each.version) for each in SCENARIOS]
    assert len(set(names)) == len(names) > 300
