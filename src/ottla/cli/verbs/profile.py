"""`ottla profile`: name a cluster once, then use its name."""

from __future__ import annotations

import click

from ottla.cli.options.client_options import property_option
from ottla.cli.options.output_format import output_option

_output = output_option("table", "json", "yaml")


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
@_output
def list_(output: str) -> None:
    """List all profiles; a star marks the profile in use."""
    from ottla.cli.options.profiles import load_profiles
    from ottla.cli.terminal.output import show

    profiles = load_profiles()
    show(
        [
            {
                **({"": "*" if name == profiles.current else ""} if output == "table" else {}),
                "name": name,
                "bootstrap": profile.bootstrap,
                "registry": profile.registry,
                **({} if output == "table" else {"in_use": name == profiles.current}),
            }
            for name, profile in sorted(profiles.named.items())
        ],
        output,
    )


@profile.command("set")
@click.argument("name")
@click.option("-b", "--bootstrap-servers", "bootstrap", help="Brokers, as HOST:PORT,...")
@click.option("--registry", help="URL of the schema registry.")
@property_option("Kafka client property; an empty value removes the property.")
@click.option(
    "--name-rule/--no-name-rule", default=None, help="Refuse new topics whose names are not TYPE.DATASET.NAME.FORMAT."
)
@_output
def set_(
    name: str,
    bootstrap: str | None,
    registry: str | None,
    properties: tuple[str, ...],
    name_rule: bool | None,  # noqa: FBT001 - click passes flags so
    output: str,
) -> None:
    """Create or change a profile."""
    from ottla.cli.options.profiles import Profile, load_profiles
    from ottla.cli.terminal.output import report
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
    in_use = profiles.current == name
    words = f"profile {name}: {profile.bootstrap}" + (" (in use)" if in_use else "")
    report(words, output, {"name": name, "bootstrap": profile.bootstrap, "in_use": in_use})


@profile.command()
@click.argument("name")
@_output
def use(name: str, output: str) -> None:
    """Use this profile for the following commands."""
    from ottla.cli.options.profiles import load_profiles
    from ottla.cli.terminal.output import report

    profiles = load_profiles()
    if name not in profiles.named:
        profile_names = ", ".join(sorted(profiles.named)) or "none"
        raise click.ClickException(f"there is no profile {name!r}; profiles are {profile_names}")
    profiles.current = name
    profiles.save()
    bootstrap = profiles.named[name].bootstrap
    report(f"using {name}: {bootstrap}", output, {"name": name, "bootstrap": bootstrap, "in_use": True})


@profile.command()
@click.argument("name")
@_output
def delete(name: str, output: str) -> None:
    """Delete a profile."""
    from ottla.cli.options.profiles import load_profiles
    from ottla.cli.terminal.output import report

    profiles = load_profiles()
    if profiles.named.pop(name, None) is None:
        raise click.ClickException(f"there is no profile {name!r}")
    profiles.current = "" if profiles.current == name else profiles.current
    profiles.save()
    report(f"forgot {name}", output, {"deleted": name})
