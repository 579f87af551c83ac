"""Names of topics and groups for the Tab key. The cluster has one second; without an answer there is no completion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

WAIT_S = 1.0
_CALL_MS = 900


def topic_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    def names(cluster: Cluster) -> Iterable[str]:
        from ottla.client.topics import list_topics

        internal = incomplete.startswith("_")
        return (topic.name or "" for topic in list_topics(cluster) if internal or not topic.is_internal)

    return _names(context, names, incomplete)


def group_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    def names(cluster: Cluster) -> Iterable[str]:
        from ottla.client.groups import list_groups
        from ottla.model.marker_groups import is_marker_group

        return (group.group_id for group in list_groups(cluster) if not is_marker_group(group.group_id))

    return _names(context, names, incomplete)


def _names(context: click.Context, ask: Callable[[Cluster], Iterable[str]], incomplete: str) -> list[str]:
    """A thread asks: the look-up of a host name has no time-out of its own."""
    names: list[str] = []

    def run() -> None:
        from ottla.model.errors import KafkaError
        from ottla.model.user_error import UserError

        try:
            with _cluster(context) as cluster:
                names.extend(ask(cluster))
        except (UserError, KafkaError, ValueError, OSError):
            return  # a person who presses Tab reads no error

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(WAIT_S)
    return [] if asking.is_alive() else sorted(name for name in names if name.startswith(incomplete))


def _cluster(context: click.Context) -> Cluster:
    from ottla.cli.options.profiles import resolve
    from ottla.client.cluster import Cluster
    from ottla.client.settings import client_settings

    chosen = context.params
    where = resolve(
        chosen.get("bootstrap"),
        chosen.get("profile"),
        None,
        tuple(chosen.get("properties") or ()),
        chosen.get("command_config"),
    )
    limits = {"default.api.timeout.ms": str(_CALL_MS), "request.timeout.ms": str(_CALL_MS)}
    return Cluster(client_settings(where.bootstrap, {**where.properties, **limits}, client_id="ottla-completion"))
