"""Kafka's own message classes as an oracle: CodecOracle.java reads bytes, says what it saw, and writes them again."""

from __future__ import annotations

import hashlib
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.protocol.message_values import kinds
from tests.support.class_archives import kafka_options
from tests.support.kafka_jars import classpath, java

from ottla.model.ids import Uuid
from ottla.protocol.primitives import Struct

_SOURCE = Path(__file__).with_name("CodecOracle.java")


def ask(questions: Iterable[tuple[str, int, bytes]], timeout: float = 50) -> list[str]:
    """One answer for each (name, version, bytes): "dump hex left-over-bytes" or "! reason"."""
    lines = "".join(f"{name} {version} {raw.hex() or '-'}\n" for name, version, raw in questions)
    command = [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *kafka_options(), "-cp", classpath()]
    command.append(str(_SOURCE))
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()


def digest(text: str) -> str:
    """Short for a dump, where it is kept in a file."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dump(value: Any, base: Any = None) -> str:
    """A value in the oracle's words: fields in schema order with their names, strings and bytes in hex."""
    if value is None:
        return "null"
    if isinstance(value, Struct):
        fields = ((name, dump(getattr(value, name), kind.base)) for name, kind in kinds(type(value)).items())
        return "{" + "".join(f"{name.replace('_', '')}={text};" for name, text in fields) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"{dump(item, base)};" for item in value) + "]"
    if base is Uuid:
        return bytes(value).hex()
    if isinstance(value, str):
        return f'"{value.encode().hex()}"'
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else "#" + bytes(value).hex()
