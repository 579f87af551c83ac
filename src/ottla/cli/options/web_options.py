"""The options of every HTTP server for who may use it; `ottla.security.web` gives them their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.security.exposure import ENVIRONMENT, FLAG, open_refusal
from ottla.security.hosts import is_loopback

if TYPE_CHECKING:
    from ottla.security.web import WebAccess

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option("--users", "users_file", type=_FILE, help="Users who may log in, as NAME:ROLE:HASH lines."),
    click.option("--jwks-url", help="Key set (JWKS) that signs bearer tokens."),
    click.option("--token-issuer", help="Issuer that bearer tokens must name."),
    click.option("--token-audience", multiple=True, help="Audience that bearer tokens must name."),
    click.option("--tls-certificate", help="PEM certificate chain for HTTPS."),
    click.option("--tls-key", help="PEM key (default: in the certificate file)."),
    click.option(
        "--audit",
        multiple=True,
        metavar="DESTINATION",
        help="Audit log: topic[:NAME], file:PATH, syslog+tcp://HOST:PORT, ...",
    ),
    click.option("--tls-client-ca", type=_FILE, help="CA that must have signed client certificates."),
)


def web_options(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def web_access(options: Mapping[str, Any], realm: str) -> WebAccess:
    """Of the values that click gives for these options."""
    from ottla.security.web import WebAccess

    names = {"token_issuer": "issuer", "token_audience": "audience"}
    return WebAccess.from_options(**{names.get(name, name): value for name, value in options.items()}, realm=realm)


def allow_open_option(command: _Command) -> _Command:
    text = "Serve other machines without a login."
    return click.option(FLAG, "allow_open", is_flag=True, envvar=ENVIRONMENT, help=text)(command)


def refuse_open(
    surface: str, host: str, web: Mapping[str, Any], *, allow_open: bool, provider_login: bool = False
) -> None:
    """Raises click.UsageError if the server would admit everybody from other machines.

    `web` has the options above; `provider_login` means that people log in at an OpenID provider.
    """
    asks = provider_login or any(web.get(name) for name in ("users_file", "jwks_url", "tls_client_ca"))
    if not (asks or allow_open or is_loopback(host)):
        raise click.UsageError(
            open_refusal(surface, host, close="--users FILE (`ottla console --hash-password` helps)")
        )
