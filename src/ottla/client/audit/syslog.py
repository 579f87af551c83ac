"""Audit events to syslog: RFC 5424 messages over UDP (RFC 5426), TCP (RFC 6587, octet counting) or a unix socket.

The facility is authpriv; a refusal is a warning, anything else is informational. The message is the event as JSON in
ASCII: no control character of a peer reaches the receiver's files.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime

from ottla.client.audit.events import Event

_AUTHPRIV = 10
_WARNING, _INFO = 4, 6
_TIMEOUT_S = 5.0
_MAX_MESSAGE = 60_000
"""Bytes. A datagram has at most 65,507; a larger datagram would be refused and retried for ever."""


class SyslogSink:
    def __init__(self, kind: str, address: str, app_name: str) -> None:
        """`kind`: udp, tcp or unix; `address`: HOST:PORT, or the path of a socket."""
        self.name = f"syslog+{kind}:{address}"
        self._kind = kind
        self._address = address
        self._app_name = app_name[:48]
        self._host = socket.gethostname()[:255] or "-"
        self._socket: socket.socket | None = None
        self._streams = kind == "tcp"

    def write(self, events: Sequence[Event]) -> None:
        """Raises OSError if the connection fails; the next call connects again."""
        try:
            peer = self._connected()
            for event in events:
                message = self.message(event)
                peer.sendall(b"%d %s" % (len(message), message) if self._streams else message)
        except OSError:
            self.close()
            raise

    def message(self, event: Event) -> bytes:
        severity = _INFO if event.get("allowed", True) else _WARNING
        stamp = _stamp(event.get("timestamp_ms"))
        kind = "".join(c for c in str(event.get("event", "-")) if "!" <= c <= "~")[:32] or "-"
        head = f"<{_AUTHPRIV * 8 + severity}>1 {stamp} {self._host} {self._app_name} {os.getpid()} {kind} - "
        return (head + json.dumps(event)).encode("ascii", "replace")[:_MAX_MESSAGE]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is not None and self._streams and _has_ended(self._socket):
            self.close()  # what is written to a connection whose peer is gone is lost without a word
        if self._socket is None:
            self._socket = self._connect()
        return self._socket

    def _connect(self) -> socket.socket:
        if self._kind == "unix":
            return self._connect_unix()
        host, _, port = self._address.rpartition(":")
        if self._kind == "tcp":
            return socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S)
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        udp_socket = socket.socket(family, kind, protocol)
        udp_socket.connect(address)
        return udp_socket

    def _connect_unix(self) -> socket.socket:
        """Datagrams, as /dev/log has them; a stream where the other end wants it."""
        try:
            return _unix(socket.SOCK_DGRAM, self._address)
        except OSError:
            stream_socket = _unix(socket.SOCK_STREAM, self._address)
            self._streams = True
            return stream_socket


def _stamp(timestamp_ms: object) -> str:
    """RFC 5424's nil value if an event has no valid time: clients with access to the topic may write any content."""
    try:
        moment = datetime.fromtimestamp(float(str(timestamp_ms)) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "-"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _unix(kind: int, path: str) -> socket.socket:
    unix_socket = socket.socket(socket.AF_UNIX, kind)
    unix_socket.settimeout(_TIMEOUT_S)
    try:
        unix_socket.connect(path)
    except OSError:
        unix_socket.close()
        raise
    return unix_socket


def _has_ended(peer: socket.socket) -> bool:
    """Whether the other end has closed the connection: a receiver of syslog never sends anything else."""
    peer.setblocking(False)
    try:
        with contextlib.suppress(BlockingIOError):
            return peer.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True
    finally:
        peer.settimeout(_TIMEOUT_S)
    return False
