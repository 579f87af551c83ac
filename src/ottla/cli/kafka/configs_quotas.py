"""Quotas of users, clients and ips, and users' SCRAM credentials: the part of kafka-configs that is no plain setting."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence

from ottla.client.cluster import Cluster
from ottla.client.errors import check, error_of, java_name

QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_HASHES = {1: "sha256", 2: "sha512"}
_QUOTA_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
_SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_MIN_ITERATIONS, _DEFAULT_ITERATIONS = 4096, 4096


def is_quota(name: str) -> bool:
    return name in QUOTAS


def is_scram(name: str) -> bool:
    return name in MECHANISMS


def quota_rows(
    cluster: Cluster, kinds: Sequence[str], names: Sequence[str]
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Entities with their values; a name that is missing stands for all of its kind, an empty one for the default."""
    from ottla.protocol.generated.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
    from ottla.protocol.generated.describe_client_quotas_response import DescribeClientQuotasResponse

    if len(names) > len(kinds):
        raise ValueError("More entity names specified than entity types")
    components = []
    for index, kind in enumerate(kinds):
        name = names[index] if index < len(names) else None
        match = _ANY if name is None else _EXACT if name else _DEFAULT
        components.append(ComponentData(_QUOTA_TYPES[kind], match, name or None))
    request = DescribeClientQuotasRequest(components, strict=True)
    answer = cluster.any_call("describeClientQuotas", request, DescribeClientQuotasResponse)
    check(answer.error_code, answer.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or []
    ]


def describe_quotas(cluster: Cluster, kinds: Sequence[str], names: Sequence[str]) -> None:
    from ottla.env.config.settings import Kind
    from ottla.env.config.values import render

    for entity, values in quota_rows(cluster, kinds, names):
        who = ", ".join(
            f"the default {shown}" if entity[kind] is None else f"{shown} '{entity[kind]}'"
            for kind, shown in _SHOWN.items()
            if kind in entity
        )
        shown = ", ".join(f"{key}={render(Kind.DOUBLE, values[key])}" for key in sorted(values))
        print(f"Quota configs for {who} are {shown}")


def alter_quotas(
    cluster: Cluster, kinds: Sequence[str], names: Sequence[str], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    from ottla.protocol.generated.alter_client_quotas_request import (
        AlterClientQuotasRequest,
        EntityData,
        EntryData,
        OpData,
    )
    from ottla.protocol.generated.alter_client_quotas_response import AlterClientQuotasResponse

    existing = quota_rows(cluster, kinds, names)
    existing_quotas = existing[0][1] if existing else {}
    missing = [key for key in deleted if key not in existing_quotas]
    if missing:
        raise ValueError(f"Invalid config(s): {','.join(missing)}")
    operations = []
    for key, text in added.items():
        try:
            operations.append(OpData(key, float(text), remove=False))
        except ValueError:
            raise ValueError(f"Cannot parse quota configuration value for {key}: {text}") from None
    operations += [OpData(key, 0.0, remove=True) for key in deleted]
    entity = [EntityData(_QUOTA_TYPES[kind], name or None) for kind, name in zip(kinds, names, strict=True)]
    request = AlterClientQuotasRequest([EntryData(entity, operations)])
    answer = cluster.controller_call(
        "alterClientQuotas", request, AlterClientQuotasResponse, lambda a: a.entries[0].error_code
    )
    check(answer.entries[0].error_code, answer.entries[0].error_message)


def describe_scram(cluster: Cluster, users: Sequence[str]) -> None:
    from ottla.protocol.generated.describe_user_scram_credentials_request import (
        DescribeUserScramCredentialsRequest,
        UserName,
    )
    from ottla.protocol.generated.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse

    request = DescribeUserScramCredentialsRequest([UserName(user) for user in users])
    answer = cluster.any_call("describeUserScramCredentials", request, DescribeUserScramCredentialsResponse)
    check(answer.error_code, answer.error_message)
    names = {number: name for name, number in MECHANISMS.items()}
    for result in answer.results:
        if result.error_code:
            if result.error_code == 91:  # RESOURCE_NOT_FOUND: such a user has no credentials, which is no news
                continue
            reason = error_of(result.error_code, result.error_message)
            kind = java_name(reason).rpartition(".")[2]
            print(f"Error retrieving SCRAM credential configs for user-principal '{result.user}': {kind}: {reason}")
            continue
        shown = ", ".join(f"{names[info.mechanism]}=iterations={info.iterations}" for info in result.credential_infos)
        print(f"SCRAM credential configs for user-principal '{result.user}' are {shown}")


def alter_scram(cluster: Cluster, user: str, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    from ottla.protocol.generated.alter_user_scram_credentials_request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from ottla.protocol.generated.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse

    upsertions = []
    for name, text in added.items():
        mechanism = MECHANISMS[name]
        iterations, password = _credential(name, text)
        salt = os.urandom(26)
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
        upsertions.append(ScramCredentialUpsertion(user, mechanism, iterations, salt, salted))
    deletions = [ScramCredentialDeletion(user, MECHANISMS[name]) for name in deleted]
    request = AlterUserScramCredentialsRequest(deletions, upsertions)
    answer = cluster.controller_call(
        "alterUserScramCredentials", request, AlterUserScramCredentialsResponse, lambda a: a.results[0].error_code
    )
    for result in answer.results:
        check(result.error_code, result.error_message)


def _credential(mechanism: str, text: str) -> tuple[int, str]:
    match = re.fullmatch(r"(?:iterations=(-?[0-9]*),)?password=(.*)", text)
    if not match:
        raise ValueError(f"Invalid credential property {mechanism.replace('-', '_')}={text}")
    iterations = _DEFAULT_ITERATIONS if match[1] in {None, "-1"} else int(match[1])
    if iterations < _MIN_ITERATIONS:
        raise ValueError(f"Iterations {iterations} is less than the minimum {_MIN_ITERATIONS} required for {mechanism}")
    return iterations, match[2]
