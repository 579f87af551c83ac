"""kafka-delegation-tokens: create, renew, expire and describe delegation tokens."""

from __future__ import annotations

import base64
import sys
from datetime import datetime

from ottla.cli.kafka.admin import COMMAND_CONFIG, REFUSED, cluster_of, java_list
from ottla.cli.kafka.options import Exit, Option, OptionParser, Options
from ottla.client.cluster import Cluster
from ottla.client.errors import check, java_name
from ottla.model.errors import KafkaError

PARSER = OptionParser((
    Option("bootstrap-server", "String", "REQUIRED: brokers, as HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("create", text="Create a token."),
    Option("renew", text="Renew a token."),
    Option("expire", text="Expire a token."),
    Option("describe", text="Describe tokens."),
    Option("owner-principal", "[String]", "The owner, as User:NAME."),
    Option("renewer-principal", "[String]", "Principal that may renew the token, as User:NAME."),
    Option("max-life-time-period", "[Long]", "Lifetime in milliseconds; -1 is the server's maximum."),
    Option("renew-time-period", "[Long]", "Period of the renewal in milliseconds; -1 is the server's default."),
    Option("expiry-time-period", "[Long]", "Milliseconds until the token expires; -1 expires the token at once."),
    Option("hmac", "[String]", "The token's HMAC."),
))  # fmt: skip
_HEAD = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_ACTIONS = ("create", "renew", "expire", "describe")


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "This tool helps to create, renew, expire, or describe delegation tokens.")
        if sum(options.has(name) for name in _ACTIONS) != 1:
            options.usage("Command must include exactly one action: --create, --renew, --expire or --describe")
        options.require("bootstrap-server", "command-config")
        for action, needed in (
            ("create", "max-life-time-period"),
            ("renew", "renew-time-period"),
            ("expire", "expiry-time-period"),
        ):
            if options.has(action):
                options.require(*(("hmac",) if action != "create" else ()), needed)
        with cluster_of(options) as cluster:
            next(run for name, run in _RUN.items() if options.has(name))(cluster, options)
    except Exit as end:
        return end.code
    except KafkaError as reason:
        print(f"{java_name(reason)}: {reason}", file=sys.stderr)
        return 1
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _principals(options: Options, name: str) -> list[tuple[str, str]]:
    principals = []
    for text in options.values(name):
        kind, colon, principal_name = text.strip().partition(":")
        if not colon:
            raise ValueError(f"expected a string in format principalType:principalName but got {text.strip()}")
        principals.append((kind, principal_name))
    return principals


def _shown(principals: list[tuple[str, str]]) -> str:
    return java_list(":".join(principal) for principal in principals)


def _create(cluster: Cluster, options: Options) -> None:
    from ottla.protocol.generated.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
    from ottla.protocol.generated.create_delegation_token_response import CreateDelegationTokenResponse

    renewers, owners = _principals(options, "renewer-principal"), _principals(options, "owner-principal")
    life = int(options.value("max-life-time-period") or -1)
    print(f"Calling create token operation with renewers :{_shown(renewers)} , max-life-time-period :{life}")
    kind, name = owners[0] if owners else (None, None)
    request = CreateDelegationTokenRequest(kind, name, [CreatableRenewers(*renewer) for renewer in renewers], life)
    answer = cluster.controller_call(
        "createDelegationToken", request, CreateDelegationTokenResponse, lambda a: a.error_code
    )
    check(answer.error_code)
    print(f"Created delegation token with tokenId : {answer.token_id}")
    requester = f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
    _print([(
        answer.token_id, base64.b64encode(answer.hmac).decode(), f"{answer.principal_type}:{answer.principal_name}",
        requester, _shown(renewers), _date(answer.issue_timestamp_ms), _date(answer.expiry_timestamp_ms),
        _date(answer.max_timestamp_ms),
    )])  # fmt: skip


def _renew(cluster: Cluster, options: Options) -> None:
    from ottla.protocol.generated.renew_delegation_token_request import RenewDelegationTokenRequest
    from ottla.protocol.generated.renew_delegation_token_response import RenewDelegationTokenResponse

    hmac, period = options.required("hmac"), int(options.value("renew-time-period") or -1)
    print(f"Calling renew token operation with hmac :{hmac} , renew-time-period :{period}")
    request = RenewDelegationTokenRequest(base64.b64decode(hmac), period)
    answer = cluster.controller_call(
        "renewDelegationToken", request, RenewDelegationTokenResponse, lambda a: a.error_code
    )
    check(answer.error_code)
    print(f"Completed renew operation. New expiry date : {_date(answer.expiry_timestamp_ms)}")


def _expire(cluster: Cluster, options: Options) -> None:
    from ottla.protocol.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
    from ottla.protocol.generated.expire_delegation_token_response import ExpireDelegationTokenResponse

    hmac, period = options.required("hmac"), int(options.value("expiry-time-period") or -1)
    print(f"Calling expire token operation with hmac :{hmac} , expire-time-period :{period}")
    request = ExpireDelegationTokenRequest(base64.b64decode(hmac), period)
    answer = cluster.controller_call(
        "expireDelegationToken", request, ExpireDelegationTokenResponse, lambda a: a.error_code
    )
    check(answer.error_code)
    print(f"Completed expire operation. New expiry date : {_date(answer.expiry_timestamp_ms)}")


def _describe(cluster: Cluster, options: Options) -> None:
    from ottla.protocol.generated.describe_delegation_token_request import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
    )
    from ottla.protocol.generated.describe_delegation_token_response import DescribeDelegationTokenResponse

    owners = _principals(options, "owner-principal")
    print(
        f"Calling describe token operation for owners: {_shown(owners)}"
        if owners
        else "Calling describe token operation for current user."
    )
    request = DescribeDelegationTokenRequest(
        [DescribeDelegationTokenOwner(*owner) for owner in owners] if owners else None
    )
    answer = cluster.any_call("describeDelegationToken", request, DescribeDelegationTokenResponse)
    check(answer.error_code)
    print(f"Total number of tokens : {len(answer.tokens)}")
    _print([
        (
            token.token_id, base64.b64encode(token.hmac).decode(), f"{token.principal_type}:{token.principal_name}",
            f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            _shown([(renewer.principal_type, renewer.principal_name) for renewer in token.renewers]),
            _date(token.issue_timestamp), _date(token.expiry_timestamp), _date(token.max_timestamp),
        )
        for token in answer.tokens
    ])  # fmt: skip


def _print(rows: list[tuple[str, ...]]) -> None:
    print("\n" + "\t".join(f"{cell:<15}" for cell in _HEAD))
    for row in rows:
        print("\t".join(f"{cell:<15}" for cell in row))


def _date(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000).strftime("%Y-%m-%dT%H:%M")  # noqa: DTZ006 - the user's own clock


_RUN = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}
