"""Ports for servers that have to know theirs before they start.

They lie below the range that the kernel gives to clients, so that no client takes one first. Each xdist worker has a band
of its own and none is given twice for a long time: a server would meet its neighbour's, and a client that an earlier test
left behind would find the new server and write its own topics there.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _END = 10_000, 32_000
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _workers
_band = (_END - _FIRST) // _workers
# Far apart for processes that started together: a cluster takes a dozen in a row.
_places = itertools.count(os.getpid() * 997)


def free_ports(count: int) -> list[int]:
    """So many in a row that nothing listens on."""
    found: list[int] = []
    while len(found) < count:
        candidate = _FIRST + _worker * _band + next(_places) % _band
        if found and candidate != found[-1] + 1:
            found.clear()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                found.clear()
                continue
        found.append(candidate)
    return found


def free_port() -> int:
    return free_ports(1)[0]
