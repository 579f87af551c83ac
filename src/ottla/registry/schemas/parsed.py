"""What the registry asks of a schema, whatever its language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class SchemaProblem(Exception):
    """The text is no schema of its language; the message is one line with the reason."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()) if "\n" in text or "\r" in text else text)


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why a reader cannot read what a writer wrote."""

    kind: str
    """A name in capitals, Confluent's where it has one."""
    path: str
    """Where in the reader's schema, as a JSON pointer (Protobuf: message and field)."""
    message: str

    def shown(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.message}', path:'{self.path}'}}"


class Dependency(NamedTuple):
    """A referenced schema, after those that it needs itself."""

    name: str
    schema: str


class Validator(NamedTuple):
    check: Callable[[bytes], str | None]
    """For the bytes after the id: None, or what is wrong with them."""
    quick_bytes: int
    """The length up to which every payload is checked within milliseconds. No other thread of the process runs meanwhile."""

    def __call__(self, payload: bytes) -> str | None:
        return self.check(payload)


class ParsedSchema(Protocol):
    schema_type: str
    canonical: str
    """What is stored and compared: the text without what means nothing."""

    def normalized(self) -> str:
        """The canonical form with everything in one order, for normalize=true."""

    def check_new(self) -> None:
        """SchemaProblem for what is refused at registration only: a stored schema that breaks such a rule stays readable."""

    def incompatibilities(self, writer: Any, budget: Any = None) -> list[Incompatibility]:
        """Why this schema as the reader cannot read what `writer`, of the same language, wrote. Empty: it can."""

    def serialized(self) -> str:
        """format=serialized: base64 of the descriptor for Protobuf, the canonical form for others."""

    def validator(self) -> Validator:
        """What checks payloads of this schema; SchemaProblem when nothing can."""
