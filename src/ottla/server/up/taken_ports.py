"""Ports that another program has: `ottla up` names the service that needs the port, and the option that chooses another."""

from __future__ import annotations

import socket
import sys


def free_or_none(service: str, host: str, port: int | None, option: str) -> int | None:
    """The port, or None after a line on standard error: the log starts without the service."""
    if not port or not is_taken(host, port):
        return port
    print(
        f"ottla: {service} does not start, because {host}:{port} is in use: choose a port with --{option}-port, "
        f"or use --no-{option}",
        file=sys.stderr,
        flush=True,
    )
    return None


def is_taken(host: str, port: int) -> bool:
    """Whether nothing can listen there. An address of no interface is left to the service's own error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return True
    return False
