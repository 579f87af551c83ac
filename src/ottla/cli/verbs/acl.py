"""`ottla acl`: who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target
    from ottla.client.acls import Resource

KINDS = ["topic", "group", "cluster", "transactional-id", "delegation-token", "user"]


@click.group()
def acl() -> None:
    r"""List, add and remove access rules (ACLs).

    \b
    Examples:
      ottla acl list
      ottla acl allow User:alice topic orders read describe
      ottla acl allow User:app topic 'logs.' write --prefixed
    """


@acl.command("list")
@connected
def list_(target: Target) -> None:
    """List every access rule."""
    from ottla.cli.terminal.output import show
    from ottla.client.acls import describe_acls

    with target.cluster() as cluster:
        rows = [
            {
                "resource": resource.kind.name.lower(), "name": resource.name, "pattern": resource.pattern.name.lower(),
                "principal": entry.principal, "may": entry.permission.name.lower(), "operation": entry.operation.name.lower(),
                "host": entry.host,
            }
            for resource, entries in describe_acls(cluster).items()
            for entry in entries
        ]  # fmt: skip
    show(rows, target.output)


def _change(
    target: Target,
    verb: str,
    principal: str,
    kind: str,
    name: str,
    operations: tuple[str, ...],
    host: str,
    *,
    prefixed: bool,
) -> None:
    from ottla.cli.terminal.output import report
    from ottla.client.acls import Entry, create_acls, delete_acls
    from ottla.model.acls import Operation, Permission

    if ":" not in principal:
        raise click.ClickException(f"{principal!r} is not a principal: write User:{principal}")
    entries = []
    for word in operations or ("any" if verb == "remove" else "all",):
        operation_name = word.replace("-", "_").upper()
        if operation_name not in Operation.__members__ or (operations and operation_name in {"UNKNOWN", "ANY"}):
            operation_names = ", ".join(
                operation.name.lower() for operation in Operation if operation.name not in {"UNKNOWN", "ANY"}
            )
            raise click.ClickException(f"{word!r} is not an operation; operations are {operation_names}")
        permission = {"deny": Permission.DENY, "allow": Permission.ALLOW}.get(verb, Permission.ANY)
        entries.append(Entry(principal, host, Operation[operation_name], permission))
    with target.cluster() as cluster:
        if verb == "remove":
            count = delete_acls(cluster, _resource(kind, name, prefixed=prefixed), entries)
            report(f"removed {count} rule{'' if count == 1 else 's'}", target.output, {"removed": count})
            return
        create_acls(cluster, _resource(kind, name, prefixed=prefixed), entries)
    names = [entry.operation.name.lower() for entry in entries]
    facts = {"principal": principal, "may": verb, "operations": names, "resource": kind, "name": name, "host": host}
    report(f"{verb}: {principal} {', '.join(names)} on {kind} {name}", target.output, facts)


def _resource(kind: str, name: str, *, prefixed: bool) -> Resource:
    from ottla.client.acls import Resource
    from ottla.model.acls import PatternType, ResourceType

    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Resource(
        ResourceType[kind.upper().replace("-", "_")], "kafka-cluster" if kind == "cluster" else name, pattern
    )


def _verb(verb: str, about: str) -> click.Command:
    @click.argument("principal")
    @click.argument("kind", type=click.Choice(KINDS))
    @click.argument("name")
    @click.argument("operations", nargs=-1)
    @click.option("--host", default="*", show_default=True, help="The address that the client connects from; * is any.")
    @click.option("--prefixed", is_flag=True, help="Cover every resource whose name begins with NAME.")
    @connected
    def run(
        target: Target,
        principal: str,
        kind: str,
        name: str,
        operations: tuple[str, ...],
        host: str,
        prefixed: bool,  # noqa: FBT001 - click passes flags so
    ) -> None:
        _change(target, verb, principal, kind, name, operations, host, prefixed=prefixed)

    return click.command(verb, help=about)(run)


acl.add_command(_verb("allow", "Allow a principal the OPERATIONS on a resource; without OPERATIONS, all of them."))
acl.add_command(_verb("deny", "Deny a principal the OPERATIONS on a resource; a deny rule outranks an allow rule."))
acl.add_command(
    _verb(
        "remove",
        "Remove allow and deny rules of the OPERATIONS; without OPERATIONS, "
        "every rule of the principal on the resource.",
    )
)
