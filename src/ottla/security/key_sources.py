"""Where master keys come from: a file, the environment, a command, or a key server over HTTP. `fetch` blocks.

Every source returns the same text: lines of `ID:BASE64`, the first in use. An error names the source and never a key. A
file is watched by its time stamp; `ottla.security.key_renewal` asks a command and a key server again.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
from typing import Protocol

from ottla.env.config.broker.config import BrokerConfig

_COMMAND_TIMEOUT_S = 30
_MAX_BYTES = 64 * 1024
_COMMAND = "ottla.encryption.master.key.command"


class KeyStoreError(ValueError):
    """The keys cannot be had or do not fit; the message holds none."""


class KeySource(Protocol):
    renewed: bool
    """Whether the keys are fetched again while the node runs."""

    def fetch(self) -> str:
        """The lines; KeyStoreError when they cannot be had."""
        ...

    def wait_s(self, refresh_s: float) -> float:
        """Seconds from a success to the next fetch."""
        ...


class KeyFileSource:
    renewed = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None

    def changed(self) -> bool:
        """Whether the file has changed since the last `fetch`."""
        try:
            return self._stamp() != self._seen
        except OSError:
            return True

    def fetch(self) -> str:
        try:
            self._seen = self._stamp()
            with open(self._path, encoding="ascii") as file:
                return file.read(_MAX_BYTES)
        except (OSError, UnicodeDecodeError) as error:
            self._seen = None
            raise KeyStoreError(f"ottla.encryption.master.key.file={self._path}: {error}") from None

    def wait_s(self, refresh_s: float) -> float:
        return refresh_s

    def _stamp(self) -> tuple[int, int]:
        status = os.stat(self._path)
        return status.st_mtime_ns, status.st_size


class EnvironmentSource:
    renewed = False

    def __init__(self, name: str) -> None:
        self._name = name

    def fetch(self) -> str:
        return os.environ.get(self._name, "")

    def wait_s(self, refresh_s: float) -> float:
        return refresh_s


class CommandSource:
    renewed = True

    def __init__(self, command: str) -> None:
        self._command = command

    def fetch(self) -> str:
        """The first 64 KiB that the command prints. Its whole process group is killed if it runs too long or prints
        more.
        """
        try:
            child = subprocess.Popen(  # noqa: S603 - the operator's own command, from the file that starts the server
                shlex.split(self._command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise KeyStoreError(f"{_COMMAND} failed: {type(error).__name__}") from None
        timer = threading.Timer(_COMMAND_TIMEOUT_S, _end_group, (child,))
        timer.start()
        with child:
            printed = child.stdout.read(_MAX_BYTES + 1) if child.stdout is not None else b""
            if len(printed) > _MAX_BYTES:
                _end_group(child)
            child.wait()
            timer.cancel()
        if child.returncode != 0 or len(printed) > _MAX_BYTES:
            raise KeyStoreError(f"{_COMMAND} failed: exit code {child.returncode}, {len(printed)} bytes")
        return printed.decode("ascii", "replace")

    def wait_s(self, refresh_s: float) -> float:
        return refresh_s


def _end_group(leader: subprocess.Popen[bytes]) -> None:
    if leader.returncode is None:  # not reaped: the number is still that of the group
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader.pid, signal.SIGKILL)


def open_source(config: BrokerConfig) -> KeySource:
    """The source that is configured. Raises KeyStoreError if none or several are configured."""
    file, url = config.ottla_encryption_master_key_file, config.ottla_encryption_master_key_url
    environment, command = config.ottla_encryption_master_key_env, config.ottla_encryption_master_key_command
    if sum(source is not None for source in (file, environment, command, url)) != 1:
        raise KeyStoreError("set one of ottla.encryption.master.key.file, .env, .command and .url")
    if file is not None:
        return KeyFileSource(file)
    if environment is not None:
        return EnvironmentSource(environment)
    if command is not None:
        return CommandSource(command)
    from ottla.security.vault import VaultSource

    return VaultSource(config)
