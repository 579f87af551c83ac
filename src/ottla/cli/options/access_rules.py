"""The option `--access-rules` of the console and the registry; `ottla.security.access_rules` reads the file."""

from __future__ import annotations

import click

access_rules_option = click.option(
    "--access-rules",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML: OpenID login, roles per topic, masks.",
)


def has_provider_login(path: str | None) -> bool:
    """Whether the rules have people log in at an OpenID provider; WebAccessError when the file cannot be used."""
    from ottla.security.access_rules import load_access_rules

    return bool(path) and load_access_rules(path or "").oidc is not None
