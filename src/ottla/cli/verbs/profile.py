"""`ottla profile`: name a cluster once, then use its name."""

from __future__ import annotations

import click

from ottla.cli.options.client_options import property_option


@click.group()
def profile() -> None:
    r"""Named clusters: address, security, registry.

    \b
    Examples:
      ottla profile set prod -b kafka1:9093 -X security.protocol=SASL_SSL \
          --registry https://registry:8081
      ottla profile use prod
      ottla topic list
    """


@profile.command("list")
def list_() -> None:
    """List all profiles; a star marks the profile in use."""
    from ottla.cli.options.profiles import load_profiles
    from ottla.cli.terminal.output import show

    profiles = load_profiles()
    show(
        [
            {
                "": "*" if name == profiles.current else "",
                "name": name,
                "bootstrap": profile.bootstrap,
                "registry": profile.registry,
            }
            for name, profile in sorted(profiles.named.items())
        ],
        "table",
    )


@profile.command("set")
@click.argument("name")
@click.option("-b", "--bootstrap-servers", "bootstrap", help="Brokers, as HOST:PORT,...")
@click.option("--registry", help="URL of the schema registry.")
@property_option("Kafka client property; an empty value removes the property.")
@click.option(
    "--name-rule/--no-name-rule", default=None, help="Refuse new topics whose names are not TYPE.DATASET.NAME.FORMAT."
)
def set_(
    name: str,
    bootstrap: str | None,
    registry: str | None,
    properties: tuple[str, ...],
    name_rule: bool | None,  # noqa: FBT001 - click passes flags so
) -> None:
    """Create or change a profile."""
    from ottla.cli.options.profiles import Profile, load_profiles
    from ottla.client.errors import BadSettings
    from ottla.client.settings import parse_addresses

    profiles = load_profiles()
    profile = profiles.named.setdefault(name, Profile())
    if bootstrap:
        try:
            parse_addresses(bootstrap)
        except BadSettings as reason:
            raise click.ClickException(str(reason)) from reason
        profile.bootstrap = bootstrap
    if registry is not None:
        profile.registry = registry
    if name_rule is not None:
        profile.name_rule = name_rule
    for pair in properties:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.ClickException(f"-X {pair}: a property is NAME=VALUE")
        profile.properties[key] = value
        if not value:
            del profile.properties[key]
    profiles.current = profiles.current or name
    profiles.save()
    click.echo(f"profile {name}: {profile.bootstrap}" + (" (in use)" if profiles.current == name else ""))


@profile.command()
@click.argument("name")
def use(name: str) -> None:
    """Use this profile for the following commands."""
    from ottla.cli.options.profiles import load_profiles

    profiles = load_profiles()
    if name not in profiles.named:
        profile_names = ", ".join(sorted(profiles.named)) or "none"
        raise click.ClickException(f"there is no profile {name!r}; profiles are {profile_names}")
    profiles.current = name
    profiles.save()
    click.echo(f"using {name}: {profiles.named[name].bootstrap}")


@profile.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete a profile."""
    from ottla.cli.options.profiles import load_profiles

    profiles = load_profiles()
    if profiles.named.pop(name, None) is None:
        raise click.ClickException(f"there is no profile {name!r}")
    profiles.current = "" if profiles.current == name else profiles.current
    profiles.save()
    click.echo(f"forgot {name}")
