"""`ottla storage format --add-scram`: the first users of a cluster, so that its listeners can use SCRAM from the start.

The argument is Kafka's: `SCRAM-SHA-256=[name=alice,iterations=8192,salt="...",password=...]`. Error messages hold
no value of an option.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from pathlib import Path

from ottla.metadata.records import UserScramCredentialRecord
from ottla.security.scram import CODES, MAX_ITERATIONS, MIN_ITERATIONS, credential_of, salted_password

_ARGUMENT = re.compile(r"(?P<mechanism>[A-Z0-9-]+)=\[(?P<options>.*)\]", re.DOTALL)
_OPTION = re.compile(r'\s*(?P<name>[a-z]+)=(?:"(?P<quoted>[^"]*)"|(?P<bare>[^,"]*))\s*(?:,|$)')
_NAMES = {"name", "iterations", "salt", "password", "passwordfile", "saltedpassword"}


class ScramArgumentError(ValueError):
    """An --add-scram argument that cannot be used."""


def scram_record(text: str) -> UserScramCredentialRecord:
    match = _ARGUMENT.fullmatch(text.strip())
    if match is None:
        if "=" not in text:
            raise ScramArgumentError(f"Failed to find equals sign in SCRAM argument '{text}'")
        mechanism, _, bracketed = text.strip().partition("=")
        if mechanism not in CODES:
            raise ScramArgumentError(f"The add-scram mechanism {mechanism} is not supported.")
        where = "end with ]" if bracketed.startswith("[") else "start with ["
        raise ScramArgumentError(f"Expected configuration string to {where}")
    if match["mechanism"] not in CODES:
        raise ScramArgumentError(f"The add-scram mechanism {match['mechanism']} is not supported.")
    mechanism, options = match["mechanism"], _options(match["options"])
    if not options.get("name"):
        raise ScramArgumentError("You must supply 'name' to add-scram")
    secrets = [name for name in ("password", "passwordfile", "saltedpassword") if name in options]
    if len(secrets) != 1:
        if not secrets:
            raise ScramArgumentError("You must supply one of 'password' or 'saltedpassword' to add-scram")
        raise ScramArgumentError("You must only supply one of 'password' or 'saltedpassword' to add-scram")
    iterations = _iterations(mechanism, options.get("iterations", str(MIN_ITERATIONS)))
    salt = _decoded("salt", options["salt"]) if "salt" in options else os.urandom(24)
    if secrets[0] == "saltedpassword":
        if "salt" not in options:
            raise ScramArgumentError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salted = _decoded("saltedpassword", options["saltedpassword"])
    else:
        salted = salted_password(mechanism, _password(options), salt, iterations)
    return UserScramCredentialRecord(
        options["name"], CODES[mechanism], *credential_of(mechanism, salted, salt, iterations)
    )


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _OPTION.match(text, position)
        if match is None or match["name"] not in _NAMES:
            raise ScramArgumentError(f"option {len(options) + 1} is none of {', '.join(sorted(_NAMES))}")
        options[match["name"]] = match["quoted"] if match["quoted"] is not None else match["bare"]
        position = match.end()
    return options


def _password(options: dict[str, str]) -> str:
    if "password" in options:
        return options["password"]
    try:
        return Path(options["passwordfile"]).read_text().rstrip("\r\n")
    except OSError as error:
        raise ScramArgumentError(f"passwordfile: {error.strerror}") from None


def _iterations(mechanism: str, text: str) -> int:
    name = mechanism.replace("-", "_")
    if not text.isdecimal() or int(text) < MIN_ITERATIONS:
        raise ScramArgumentError(f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {name}")
    if int(text) > MAX_ITERATIONS:
        raise ScramArgumentError(f"The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {name}")
    return int(text)


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramArgumentError(f"{name} is not base64") from None
