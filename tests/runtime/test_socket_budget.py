"""One budget for all sockets: what one listener has, another cannot have; the reserve is for nodes and health."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from ottla.broker.connection import Connection
from ottla.runtime.buffers import BufferPool
from ottla.runtime.connection_rates import ConnectionRates
from ottla.runtime.descriptors import SocketBudget
from ottla.runtime.listener import Listener, ListenerLimits, bind


class Silent:
    """A dispatcher that nobody asks anything."""

    def dispatch(self, _connection: Connection, _frame: memoryview) -> None:
        raise AssertionError("nothing is sent here")


def limits() -> ListenerLimits:
    return ListenerLimits(max_connections=1000, max_connections_per_ip=1000, idle_ms=600_000, max_frame=1000)


def test_clients_cannot_take_the_reserve() -> None:
    budget = SocketBudget(clients=3, reserve=2)
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    assert [budget.take(privileged=True) for _ in range(3)] == [True, True, False]
    budget.give_back()
    assert budget.take(privileged=True)
    assert not budget.take()  # the privileged have one more than their reserve
    budget.give_back(privileged=True)
    assert budget.take()


def test_two_listeners_share_it_and_held_sockets_count() -> None:
    async def main() -> None:
        budget = SocketBudget(clients=3, reserve=1)
        loop = asyncio.get_running_loop()
        slow = ConnectionRates(lambda _host: 0.001, lambda: (1 << 31) - 1)
        dispatcher: Any = Silent()
        first = Listener("A", bind("127.0.0.1", 0), dispatcher, BufferPool(), limits(), None, None, budget)
        held = Listener("B", bind("127.0.0.1", 0), dispatcher, BufferPool(), limits(), None, slow, budget)
        nodes = Listener(
            "C", bind("127.0.0.1", 0), dispatcher, BufferPool(), limits(), None, None, budget, privileged=True
        )
        for listener in (first, held, nodes):
            listener.start()
        sockets = []

        async def connect(port: int) -> socket.socket:
            sock = socket.socket()
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", port))
            sockets.append(sock)
            return sock

        async def until(count: int) -> None:
            async with asyncio.timeout(60):
                while len(budget) != count:  # noqa: ASYNC110 - the listener accepts in its own time
                    await asyncio.sleep(0.01)

        await connect(first.port)
        await until(1)
        await connect(held.port)  # is over its rate: kept waiting, not served
        await connect(held.port)
        await until(3)
        assert len(held) <= 1
        refused = await connect(first.port)
        async with asyncio.timeout(60):
            assert await loop.sock_recv(refused, 1) == b""
        await connect(nodes.port)
        await until(4)
        for listener in (first, held, nodes):
            listener.stop()
        assert len(budget) == 0
        for sock in sockets:
            sock.close()

    asyncio.run(main())


def test_a_node_gets_half_of_the_reserve() -> None:
    budget = SocketBudget(clients=1, reserve=4)
    assert budget.take()
    assert [budget.take_for_node() for _ in range(3)] == [True, True, False]
    assert [budget.take(privileged=True) for _ in range(3)] == [True, True, False]
    budget.give_back_for_node()
    assert budget.take_for_node()


def test_a_node_connects_while_clients_have_all_other_sockets() -> None:
    """One listener serves brokers and clients: a flood of clients kept followers away from their leader."""

    async def main() -> None:
        budget = SocketBudget(clients=2, reserve=2)
        dispatcher: Any = Silent()
        nodes: set[str] = set()
        listener = Listener(
            "A", bind("127.0.0.1", 0), dispatcher, BufferPool(), limits(), budget=budget, is_node=nodes.__contains__
        )
        listener.start()
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(3)]
        await connected(listener, 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(listener) == 2
        nodes.add("127.0.0.1")
        clients.append(socket.create_connection(("127.0.0.1", listener.port)))
        await connected(listener, 3)
        for client in clients:
            client.close()
        await connected(listener, 0)
        assert len(budget) == 0
        listener.stop()

    async def connected(listener: Listener, count: int) -> None:
        for _ in range(1000):
            if len(listener) == count:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{len(listener)} connections, not {count}")

    asyncio.run(main())
