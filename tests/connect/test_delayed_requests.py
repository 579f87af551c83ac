"""A request of one transaction that arrives in the next (transactions v1 have one epoch for both) changes nothing there.

librdkafka repeats EndTxn and TxnOffsetCommit by itself when a connection breaks, and says nothing of it. The first copy
may still arrive: an EndTxn would end the next transaction before all of it is written, offsets would go back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partialmethod
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ottla.connect.connector import Change, Place, Source
from ottla.connect.exactly_once import ExactlyOnce
from ottla.connect.sender import Outgoing
from ottla.connect.transactions import Transactions
from ottla.connect.worker import run_connector
from ottla.model.errors import ErrorCode
from ottla.model.user_error import UserError
from ottla.protocol.generated.txn_offset_commit_response import TxnOffsetCommitResponse
from ottla.tables.query import topic_table
from ottla.testing import Broker
from tests.connect.delaying_proxy import END_TXN, PRODUCE, TXN_OFFSET_COMMIT, DelayingProxy
from tests.support.ports import free_ports

pytestmark = pytest.mark.timeout(120)

FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
VERSION_OF_OFFSETS = 3
"""Of TxnOffsetCommit, as librdkafka sends it."""


@contextmanager
def delayed(keep: int, until: int) -> Iterator[tuple[dict[str, str], DelayingProxy]]:
    port, proxy_port = free_ports(2)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy_port}",
        "auto.create.topics.enable": "true",
    }
    with Broker(properties=properties), DelayingProxy(proxy_port, port, keep=keep, until=until) as proxy:
        yield {"bootstrap.servers": f"127.0.0.1:{proxy_port}", "log_level": "0"}, proxy


class Numbers(Source):
    """Three polls, one number each."""

    polls: ClassVar[int] = 3

    def poll(self, place: Place | None) -> list[Change]:
        number = 0 if place is None else place["next"]
        if number >= self.polls:
            return []
        return [Change(topic="numbers", key=None, value=str(number), place={"next": number + 1})]


def values(client: Mapping[str, str], topic: str) -> list[Any]:
    return [row["value"] for row in topic_table(client, topic).to_pylist()]


def test_a_late_end_of_a_source_connectors_transaction_ends_no_later_one() -> None:
    with delayed(END_TXN, PRODUCE) as (client, proxy):
        config = {
            "name": "numbers",
            "connector.class": f"{__name__}:Numbers",
            "key.converter": "string",
            "value.converter": "string",
        }
        assert run_connector(config, client, once=True) == 3
        assert proxy.late_answer is not None
        code = ErrorCode(struct.unpack_from(">ih", proxy.late_answer)[1])
        assert values(client, "numbers") == [b"0", b"1", b"2"]
        assert code in FENCED


@pytest.mark.parametrize(("keep", "until"), [(END_TXN, PRODUCE), (TXN_OFFSET_COMMIT, TXN_OFFSET_COMMIT)])
def test_a_late_request_of_a_marked_transaction_changes_no_later_one(keep: int, until: int) -> None:
    with delayed(keep, until) as (client, proxy), ExactlyOnce(client, "app", 0, 0, None) as writer:
        for version in range(3):
            writer.version = version
            assert writer.done() is None
            writer.write([Outgoing("numbers", None, str(version).encode())])
        assert proxy.late_answer is not None
        if keep == END_TXN:
            code = struct.unpack_from(">ih", proxy.late_answer)[1]
        else:
            answer = TxnOffsetCommitResponse.decode(proxy.late_answer, 1, VERSION_OF_OFFSETS)[0]
            code = answer.topics[0].partitions[0].error_code
        assert values(client, "numbers") == [b"0", b"1", b"2"]
        assert writer.reached() == 2
        assert ErrorCode(code) in FENCED


class SlowClock:
    """Every call seems to take a second: whoever measures with it cannot trust the producer."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_writer_that_takes_a_new_epoch_sees_what_its_successor_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "__init__", partialmethod(Transactions.__init__, clock=SlowClock()))
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        with ExactlyOnce(client, "app", 0, 0, None) as writer:
            writer.write([Outgoing("numbers", None, b"0")])
            with ExactlyOnce(client, "app", 0, 1, None) as successor:
                successor.write([Outgoing("numbers", None, b"1")])
            writer.version = 1
            assert writer.write([Outgoing("numbers", None, b"1")]).rows == 1
            writer.version = 2
            writer.write([Outgoing("numbers", None, b"2")])
        assert values(client, "numbers") == [b"0", b"1", b"2"]


def test_a_source_that_was_overtaken_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "__init__", partialmethod(Transactions.__init__, clock=SlowClock()))
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"}
        config = {
            "name": "numbers",
            "connector.class": f"{__name__}:Numbers",
            "key.converter": "string",
            "value.converter": "string",
        }

        def overtake(count: int, _waiting: int | None) -> None:
            """Another worker of the same connector starts, writes and goes."""
            if count == 1:
                other = Transactions(client, "connect-numbers")
                sender = other.begin()
                place = Outgoing("connect-offsets", b'["numbers", {}]', b'{"next": 2}')
                sender.send([Outgoing("numbers", None, b"1"), place])
                sender.flush()
                other.commit()

        with pytest.raises(UserError, match="another worker of numbers has written meanwhile"):
            run_connector(config, client, once=True, progress=overtake)
        assert values(client, "numbers") == [b"0", b"1"]
        assert run_connector(config, client, once=True) == 1
        assert values(client, "numbers") == [b"0", b"1", b"2"]


class PausingProducer:
    """Time passes only in the call that is named."""

    def __init__(self, slow: str) -> None:
        self.now = 0.0
        self._slow = slow

    def __getattr__(self, name: str) -> Any:
        def called(*_arguments: Any) -> None:
            self.now += 1.0 if name == self._slow else 0.0

        called.__name__ = name
        return called


@pytest.mark.parametrize(
    ("slow", "renewed"),
    [("send_offsets_to_transaction", True), ("commit_transaction", True), ("begin_transaction", False)],
)
def test_a_request_that_may_have_been_repeated_costs_a_new_epoch(
    slow: str, renewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = PausingProducer(slow)
    monkeypatch.setattr(Transactions, "_new_sender", lambda _self: SimpleNamespace(producer=producer))
    transactions = Transactions({}, "app", clock=lambda: producer.now)
    transactions.begin()
    transactions.send_offsets([], None)
    transactions.commit()
    assert transactions.renew() is renewed
