"""The files of a node, for `ottla doctor --security`: who else may read keys, passwords and records."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from shlex import quote

from ottla.cli.doctor.findings import Finding, error, ok, warning

_KEY_FILES = (
    "ottla.encryption.master.key.file",
    "ottla.encryption.master.key.token.file",
    "ottla.http.users.file",
    "ottla.http.tls.key",
    "ssl.keystore.location",
)
_SECRET_WORDS = ("password", "jaas.config", "secret.key", "keystore.key")
_KEY_STORE = "encryption-keys"


def check_files(file: str, values: Mapping[str, str]) -> Iterator[Finding]:
    """`file` is the server.properties, `values` what it holds."""
    findings = [*_properties(file, values), *_keys(values), *_directories(values)]
    yield from findings or [ok("files", f"{file} and the files that it names are readable by their owner only")]


def _properties(file: str, values: Mapping[str, str]) -> Iterator[Finding]:
    secrets = sorted(
        name for name, value in values.items() if _is_secret(name) and value and not value.startswith("${")
    )
    if secrets:
        more = f" and {len(secrets) - 1} more" if len(secrets) > 1 else ""
        yield from _loose(file, f"passwords ({secrets[0]}{more})", keep="600")


def _is_secret(name: str) -> bool:
    return any(word in name for word in _SECRET_WORDS)


def _keys(values: Mapping[str, str]) -> Iterator[Finding]:
    for name, path in values.items():
        if (path and name.rpartition("listener.name.")[2].partition(".")[2] in _KEY_FILES) or name in _KEY_FILES:
            yield from _loose(path, name, keep="600")


def _directories(values: Mapping[str, str]) -> Iterator[Finding]:
    directories = values.get("log.dirs") or values.get("log.dir") or ""
    for directory in [part.strip() for part in f"{directories},{values.get('metadata.log.dir', '')}".split(",")]:
        if not directory:
            continue
        mode = _mode(directory)
        if mode is not None and mode & stat.S_IRWXO:
            fix = f"chmod -R o-rwx {quote(directory)}"
            yield warning("readable-log-dir", f"{directory} can be read by every user of this machine", fix)
        yield from _loose(f"{directory}/{_KEY_STORE}", "the wrapped keys", keep="600")
        yield from _older_files(directory)


def _older_files(directory: str) -> Iterator[Finding]:
    """Files that were plain when encryption was switched on."""
    try:
        with open(f"{directory}/{_KEY_STORE}", encoding="utf-8") as file:
            before = json.load(file).get("before", {})
        plain = sum(not note for names in before.values() for note in names.values())
    except (OSError, ValueError, AttributeError):
        return
    if plain:
        fix = "retention, compaction or a reassignment replaces them; `ottla topic` shows which topics are old"
        yield warning(
            "plain-files", f"{directory}: {plain} files were written before encryption was enabled, and are plain", fix
        )


def _loose(path: str, holds: str, *, keep: str) -> Iterator[Finding]:
    mode = _mode(path)
    if mode is None:
        return
    fix = f"chmod {keep} {quote(path)}"
    if mode & stat.S_IRWXO:
        yield error("readable-secret", f"{path} ({holds}) is open to every user: mode {mode:04o}", fix)
    elif mode & stat.S_IRWXG:
        yield warning("readable-secret", f"{path} ({holds}) is open to its group: mode {mode:04o}", fix)


def _mode(path: str) -> int | None:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None
