"""The faults of a test broker: those of requests, and those of whole nodes, their disks and their links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.testing.faults import RequestFaults
from ottla.testing.links import Links
from ottla.testing.node_thread import NodeThread


class BrokerFaults(RequestFaults):
    """`broker.faults`. Nodes are named by their ids: 1, 2, 3."""

    def __init__(self, nodes: Mapping[int, NodeThread], links: Links, seed: int | None = None) -> None:
        super().__init__(seed)
        self._nodes = nodes
        self._links = links

    def _node(self, node: int) -> NodeThread:
        if node not in self._nodes:
            raise ValueError(f"there is no node {node}: this broker has {', '.join(map(str, self._nodes))}")
        return self._nodes[node]

    def kill(self, node: int = 1) -> None:
        """End the node without handing over, as after a crash of its process. `restart` starts the node again."""
        self._node(node).stop(clean=False)

    def restart(self, node: int = 1) -> None:
        """Start the node again, on the same ports. A node that runs is stopped cleanly first."""
        thread = self._node(node)
        if thread.is_running:
            thread.stop()
        thread.start()

    def pause(self, node: int = 1) -> None:
        """Stop the node where it is, as SIGSTOP does. Connections stay open and get no answer."""
        self._node(node).pause()

    def resume(self, node: int = 1) -> None:
        """Let a paused node continue."""
        self._node(node).resume()

    @contextmanager
    def paused(self, node: int = 1) -> Iterator[None]:
        """`pause` for a block."""
        self.pause(node)
        try:
            yield
        finally:
            self.resume(node)

    @contextmanager
    def full_disk(self, node: int = 1) -> Iterator[None]:
        """For a block, every write to the disk of the node fails with ENOSPC."""
        space = self._node(node).space
        space.is_full = True
        try:
            yield
        finally:
            space.is_full = False

    def partition(self, node: int, other: int) -> None:
        """Cut the link between two nodes, in both directions. Clients still reach both nodes."""
        self._links.cut(self._node(node).node_id, self._node(other).node_id)

    def heal(self) -> None:
        """Mend all links between nodes."""
        self._links.heal()

    def of_nodes(self) -> str:
        """The nodes and links that a test has stopped, for the message of a call that fails because of them."""
        down = [str(thread.node_id) for thread in self._nodes.values() if not thread.is_running]
        paused = [str(thread.node_id) for thread in self._nodes.values() if thread.is_paused]
        links = [" to ".join(map(str, link)) for link in self._links.cut_links()]
        named = {"killed nodes": down, "paused nodes": paused, "cut links": links}
        return "; ".join(f"{name}: {', '.join(items)}" for name, items in named.items() if items)

    def clear(self) -> None:
        """Remove all faults: of requests, of links and of disks. Paused nodes continue; killed nodes stay down."""
        super().clear()
        self.heal()
        for thread in self._nodes.values():
            thread.space.is_full = False
            thread.resume()
