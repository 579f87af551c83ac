"""What others notice of the largest requests: the p99 of a small produce while a peer sends them, one API after the other.

    python -m bench.large_requests [--elements 9000] [--seconds 2] [--peers 2] [--sasl]
    python -m bench.large_requests --changes [--elements 9000] [--sasl]

A node of its own; `--sasl` has the peers log in first (PLAIN), otherwise they are anonymous. The last line is the worst API; the
target is 100 ms. Some 3 minutes. `--changes` sends changes that succeed instead, each once, and also shows the longest wait of
a produce: the longest time that one step held the loop. Some 2 minutes; no change is sent after `--limit` seconds.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.robustness.largest_changes import Change, largest_changes
from tests.robustness.largest_requests import TOPIC, LargeRequest, largest_requests
from tests.robustness.server_process import ServerProcess
from tests.robustness.wire import call, create_topic, encoded, metadata, produce
from tests.security.secured import PASSWORD, USERS, plain_users
from tests.security.session import Session
from tests.support.frames import RawConnection
from tests.support.ports import free_ports

from bench.measure import percentile
from ottla.broker.apis import BROKER_APIS
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.index import APIS

TARGET_MS = 100.0
_WITHOUT_ARRAYS = (17, 18, 36)


def attack(port: int, request: LargeRequest, over: threading.Event, *, sasl: bool) -> None:
    """The same request again and again; each connection that is closed is made anew."""
    while not over.is_set():
        with suppress(OSError, EOFError, AssertionError):
            if sasl:
                with Session(port, timeout=1).plain("alice", PASSWORD) as session:
                    while not over.is_set():
                        session.socket.sendall(request.frame)
                        session.read_frame()
            else:
                with RawConnection("127.0.0.1", port, timeout=1) as connection:
                    while not over.is_set():
                        connection.send_raw(request.frame)
                        if connection.read_frame() is None:
                            break


def others(connection: RawConnection, seconds: float) -> list[float]:
    """Milliseconds of produces of one record."""
    taken = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        produce(connection, "others", 0, b"x" * 100)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def measure(server: ServerProcess, port: int, request: LargeRequest, options: argparse.Namespace) -> list[float]:
    over = threading.Event()
    peers = [
        threading.Thread(target=attack, args=(port, request, over), kwargs={"sasl": options.sasl})
        for _ in range(options.peers)
    ]
    with RawConnection("127.0.0.1", server.port, timeout=60) as connection:
        for peer in peers:
            peer.start()
        try:
            return others(connection, options.seconds)
        finally:
            over.set()
            for peer in peers:
                peer.join()


def send_change(port: int, change: Change, over: threading.Event, failures: list[str], *, sasl: bool) -> None:
    """One request; its answer ends the measurement."""
    frame = encoded(change.request, change.version)
    try:
        if sasl:
            with Session(port, timeout=60).plain("alice", PASSWORD) as session:
                session.socket.sendall(frame)
                answered = session.read_frame() is not None
        else:
            with RawConnection("127.0.0.1", port, timeout=60) as connection:
                connection.send_raw(frame)
                answered = connection.read_frame() is not None
        if not answered:
            failures.append(change.label)
    except (OSError, EOFError) as error:
        failures.append(f"{change.label}: {error!r}")
    finally:
        over.set()


def measure_changes(server: ServerProcess, port: int, options: argparse.Namespace) -> None:
    """The p99 and the longest wait of produces while each change is made, and a second afterwards."""
    until = time.monotonic() + options.limit
    worst = (0.0, "")
    with RawConnection("127.0.0.1", server.port, timeout=60) as connection:
        create_topic(connection, "others")
        call(connection, FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 4)
        for change in largest_changes(options.elements, [1], with_acls=False):
            if time.monotonic() > until:
                print(f"stopped after {options.limit:.0f} s, before {change.label}")
                break
            over, failures = threading.Event(), list[str]()
            peer = threading.Thread(
                target=send_change, args=(port, change, over, failures), kwargs={"sasl": options.sasl}
            )
            peer.start()
            taken = []
            while not over.is_set():
                taken += others(connection, 0.1)
            taken += others(connection, 1.0)
            peer.join()
            p99, longest = percentile(taken, 99), max(taken)
            worst = max(worst, (longest, change.label))
            failed = f"  NOT ANSWERED {failures}" if failures else ""
            print(
                f"{change.label:42s} p99 {p99:7.1f} ms  longest {longest:7.1f} ms of {len(taken)}{failed}", flush=True
            )
    print(f"longest wait: {worst[1]} {worst[0]:.1f} ms (target {TARGET_MS:.0f} ms)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=9000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--peers", type=int, default=2)
    parser.add_argument("--sasl", action="store_true")
    parser.add_argument("--apis", help="API keys, with commas; all without it")
    parser.add_argument("--changes", action="store_true", help="changes that succeed, each once")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which no further change is sent")
    options = parser.parse_args()
    port, login, controller = free_ports(3)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},LOGIN://127.0.0.1:{login},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": plain_users(USERS),
        "auto.create.topics.enable": "false",
    }
    worst = (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), properties=properties)
        server.port, server.controller_port = port, controller
        with server:
            if options.changes:
                measure_changes(server, login if options.sasl else port, options)
                return
            for key in map(int, options.apis.split(",")) if options.apis else sorted(BROKER_APIS):
                if key in _WITHOUT_ARRAYS:
                    continue
                with RawConnection("127.0.0.1", port, timeout=60) as connection:
                    create_topic(connection, "others")
                    create_topic(connection, TOPIC, 8)
                    topic_id = next(t.topic_id for t in metadata(connection, TOPIC).topics)
                requests = list(largest_requests(key, options.elements, topic_id))
                if not requests:
                    continue
                request = max(requests, key=lambda one: len(one.frame))
                taken = measure(server, login if options.sasl else port, request, options)
                p99 = percentile(taken, 99)
                worst = max(worst, (p99, APIS[key].name))
                print(f"{APIS[key].name:32s} p99 {p99:7.1f} ms of {len(taken)} produces", flush=True)
    print(f"worst: {worst[1]} {worst[0]:.1f} ms (target {TARGET_MS:.0f} ms)")


if __name__ == "__main__":
    main()
