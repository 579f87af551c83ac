"""`ottla registry`: a schema registry beside any Kafka cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from ottla.cli.options.access_rules import access_rules_option
from ottla.cli.options.client_options import pairs, property_option, servers_option
from ottla.cli.options.combinations import is_set, named, refuse_together
from ottla.cli.options.profile_option import chosen_profile, profile_option
from ottla.cli.options.profiles import Profile
from ottla.cli.options.web_options import allow_open_option, refuse_open, web_options


@click.command()
@servers_option()
@profile_option
@click.option("-l", "--listen", default="127.0.0.1:8081", show_default=True, metavar="HOST:PORT",
              help="Address to listen on.")  # fmt: skip
@click.option("--advertised-url", help="URL for other instances (default: --listen).")
@click.option("--topic", default="_schemas", show_default=True, help="Topic of the schemas.")
@click.option("--group-id", default="schema-registry", show_default=True, callback=named,
              help="Group of instances.")  # fmt: skip
@click.option("--alone", is_flag=True, help="Write without an election.")
@click.option(
    "--replication-factor",
    default=3,
    show_default=True,
    help="Replicas of a new topic.",
)
@click.option("--schema-max-bytes", default=1_000_000, show_default=True, help="Largest schema, in bytes.")
@property_option("Kafka client property, seen by ps; repeatable.")
@click.option(
    "--client-property", "former_properties", multiple=True, hidden=True, help="The former name of --property."
)
@click.option("--client-config", type=click.Path(exists=True, dir_okay=False),
              help="librdkafka settings, as NAME=VALUE lines.")  # fmt: skip
@web_options
@allow_open_option
@access_rules_option
@click.option("--forward-user", envvar="OTTLA_REGISTRY_FORWARD_USER", metavar="NAME:PASSWORD",
              help="Login for forwarded writes.")  # fmt: skip
@click.option("--peer", "peers", multiple=True, metavar="URL",
              help="Instance that may receive forwarded writes.")  # fmt: skip
@click.option("--peer-secret-file", type=click.Path(exists=True, dir_okay=False), envvar="OTTLA_REGISTRY_PEER_SECRET_FILE",
              help="File with the secret that all instances share.")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="Host name that clients may use, or .example.org.")  # fmt: skip
@click.option("--forward-ca", help="PEM certificates of forwarded writes.")
@click.option("--until-stdin-closes", is_flag=True, hidden=True, help="End with the process that started this one.")
def registry(
    *,
    bootstrap_servers: str,
    profile: str | None,
    listen: str,
    properties: tuple[str, ...],
    former_properties: tuple[str, ...],
    client_config: str | None,
    allow_open: bool,
    until_stdin_closes: bool,
    **options: object,
) -> None:
    r"""Run a schema registry: Confluent's REST API over a compacted topic.

    Instances with the same --group-id elect one writer, who writes for all.

    \b
    Examples:
      ottla registry --bootstrap-servers 127.0.0.1:9092
      ottla registry -b kafka1:9092 -l 0.0.0.0:8081 --users users.txt
    """
    from ottla.cli.options.reachability import refuse_wrong_login
    from ottla.connect.clients import librdkafka_settings, quiet
    from ottla.env.config.properties import parse_properties
    from ottla.registry.server import serve
    from ottla.registry.settings import RegistrySettings

    refuse_together(
        "--alone", options["alone"], "--group-id", options["group_id"] if is_set("group_id") else None,
        "a single instance joins no group",
    )  # fmt: skip
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or not host:
        raise click.UsageError(f"--listen {listen!r} is not HOST:PORT")
    refuse_open("the schema registry", host, options, allow_open=allow_open)
    where = Profile(bootstrap_servers) if until_stdin_closes else chosen_profile(profile, bootstrap_servers)
    if client_config:
        where.properties |= parse_properties(Path(client_config).read_text("utf-8"))
    where.properties |= pairs("--property", (*former_properties, *properties))
    refuse_wrong_login(where)
    settings = RegistrySettings(
        bootstrap_servers=where.bootstrap, host=host.strip("[]"), port=int(port),
        client_properties=librdkafka_settings(quiet(where.properties)), **options,  # type: ignore[arg-type]  # click gives each option its type
    )  # fmt: skip
    asyncio.run(
        serve(
            settings,
            lambda url: click.echo(f"the schema registry is up at {url}"),
            until_stdin_closes=until_stdin_closes,
        )
    )
