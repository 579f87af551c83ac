"""`ottla console`: the web console as a process of its own, against any Kafka."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ottla.cli.options.access_rules import access_rules_option, has_provider_login
from ottla.cli.options.client_options import servers_option
from ottla.cli.options.profile_option import chosen_profile, profile_option
from ottla.cli.options.profiles import Profile
from ottla.cli.options.web_options import allow_open_option, refuse_open, web_options


@click.command()
@servers_option()
@profile_option
@click.option(
    "-l", "--listen", default="127.0.0.1:8080", show_default=True, help="HOST:PORT that the console listens on."
)
@click.option(
    "--command-config", type=click.Path(exists=True, dir_okay=False), help="Properties file with Kafka client settings."
)
@click.option("--registry", default="", metavar="URL", envvar="OTTLA_CONSOLE_REGISTRY",
              help="Schema registry; NAME:PASSWORD@ before the host logs in.")  # fmt: skip
@click.option("--pipelines", default="", metavar="URL", envvar="OTTLA_CONSOLE_PIPELINES",
              help="`ottla pipeline serve`; NAME:PASSWORD@ before the host logs in.")  # fmt: skip
@click.option("--node-user", envvar="OTTLA_CONSOLE_NODE_USER", metavar="NAME:PASSWORD",
              help="Login for the brokers' ottla.http.listener; sent only over HTTPS or to loopback.")  # fmt: skip
@click.option("--read-only", is_flag=True, help="Serve pages, but refuse every change.")
@click.option(
    "--allowed-host", multiple=True, help="Host name that browsers may use for this console; may be repeated."
)
@web_options
@allow_open_option
@access_rules_option
@click.option("--until-stdin-closes", is_flag=True, hidden=True, help="End with the process that started this one.")
@click.option("--hash-password", is_flag=True, help="Read a password, print its hash for the users file, and exit.")
def console(
    *,
    bootstrap_servers: str,
    profile: str | None,
    listen: str,
    command_config: str | None,
    registry: str,
    pipelines: str,
    node_user: str | None,
    read_only: bool,
    allowed_host: tuple[str, ...],
    allow_open: bool,
    until_stdin_closes: bool,
    hash_password: bool,
    **web: Any,
) -> None:
    r"""The web console: topics, messages, groups, schemas, settings, SQL.

    \b
    Examples:
      ottla console --bootstrap-servers broker:9092
      ottla console --listen 0.0.0.0:8080 --users users.txt --allowed-host console.example.org
      ottla console --access-rules access.toml --command-config client.properties
    """
    if hash_password:
        from ottla.security.web import hash_password as hashed

        click.echo(hashed(click.prompt("Password", hide_input=True, confirmation_prompt=True)))
        return
    from ottla.security.web import WebAccessError

    host, _, port = listen.rpartition(":")
    if not port.isdigit():
        raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    try:
        provider_login = has_provider_login(web["access_rules"])
    except WebAccessError as error:
        raise click.UsageError(str(error)) from None
    refuse_open("the console", host or "127.0.0.1", web, allow_open=allow_open, provider_login=provider_login)
    from ottla.cli.options.reachability import refuse_wrong_login
    from ottla.client.audit.sinks import AuditDestinationError
    from ottla.client.errors import AuthenticationFailed
    from ottla.console.errors import ConsoleError
    from ottla.console.serve import serve
    from ottla.console.settings import ConsoleSettings
    from ottla.env.config.properties import parse_properties

    where = Profile(bootstrap_servers) if until_stdin_closes else chosen_profile(profile, bootstrap_servers)
    if command_config:
        where.properties |= parse_properties(Path(command_config).read_text("utf-8"))
    scheme = "https" if web["tls_certificate"] or web["tls_key"] else "http"
    try:
        refuse_wrong_login(where)
        settings = ConsoleSettings(
            bootstrap_servers=where.bootstrap,
            client=where.properties,
            registry_url=registry or where.registry,
            pipelines_url=pipelines,
            node_user=node_user,
            read_only=read_only,
            **web,
            allowed_hosts=(host, *allowed_host),
        )
        serve(
            settings,
            host or "127.0.0.1",
            int(port),
            until_stdin_closes=until_stdin_closes,
            on_up=lambda bound: click.echo(f"the console is up at {scheme}://{host or '127.0.0.1'}:{bound}/"),
        )
    except KeyboardInterrupt:  # Ctrl-C is how it ends
        return
    except (ConsoleError, WebAccessError, AuditDestinationError, AuthenticationFailed, OSError) as error:
        click.echo(f"ottla console: {error}", err=True)
        sys.exit(1)
