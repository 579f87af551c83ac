"""kafka-acls: list, add and remove access control lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ottla.cli.kafka.admin import BOOTSTRAP_CONTROLLER, BOOTSTRAP_SERVER, REFUSED, cluster_of
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.acls import (
    ANY_RESOURCE,
    Entry,
    Resource,
    create_acls,
    delete_acls,
    describe_acls,
)
from ottla.client.cluster import Cluster
from ottla.client.errors import CallTimeout, java_name
from ottla.model.acls import Operation, PatternType, Permission, ResourceType
from ottla.model.errors import KafkaError

PARSER = OptionParser((
    BOOTSTRAP_SERVER._replace(text="Brokers, as HOST:PORT,..."),
    BOOTSTRAP_CONTROLLER,
    Option("command-config", "[String: command-config]", "A file with the client's properties."),
    Option("add", text="Add ACLs."),
    Option("remove", text="Remove ACLs."),
    Option("list", text="List the ACLs of the named resources, or of all resources."),
    Option("topic", "String: topic", "Topic; * is every topic."),
    Option("group", "String: group", "Group; * is every group."),
    Option("cluster", text="The cluster."),
    Option("transactional-id", "String: transactional-id", "Transactional id; * is every id."),
    Option("delegation-token", "String: delegation-token", "Delegation token; * is every token."),
    Option("user-principal", "String: user-principal", "User that the ACL is about, as a resource."),
    Option("resource-pattern-type", "<ANY|MATCH|LITERAL|PREFIXED>", "Pattern type of the resource's name.", "LITERAL"),
    Option("operation", "String", "Operation to allow or deny; may be repeated.", "All"),
    Option("allow-principal", "String: allow-principal", "Principal to allow, as User:NAME; may be repeated."),
    Option("deny-principal", "String: deny-principal", "Principal to deny, as User:NAME; a deny rule outranks an allow rule; may be repeated."),
    Option("allow-host", "String: allow-host", "Host of the allowed principals (default: *)."),
    Option("deny-host", "String: deny-host", "Host of the denied principals (default: *)."),
    Option("principal", "[String: principal]", "With --list: list only the ACLs of this principal."),
    Option("producer", text="Add or remove the ACLs that a producer needs: Write, Describe and Create on topics."),
    Option("consumer", text="Add or remove the ACLs that a consumer needs: Read and Describe on topics, Read on groups."),
    Option("idempotent", text="With --producer: add IdempotentWrite on the cluster."),
    Option("force", text="Do not ask for confirmation."),
))  # fmt: skip
_CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
_TOPIC_OPERATIONS = "READ WRITE CREATE DESCRIBE DELETE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS"
_SUPPORTED = {
    ResourceType.TOPIC: _TOPIC_OPERATIONS,
    ResourceType.GROUP: "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: "CREATE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALTER DESCRIBE",
    ResourceType.TRANSACTIONAL_ID: "DESCRIBE WRITE TWO_PHASE_COMMIT",
    ResourceType.DELEGATION_TOKEN: "DESCRIBE",
    ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS",
}
Plan = dict[Resource, list[Entry]]


def main(arguments: list[str]) -> int:
    try:
        try:
            options = PARSER.begin(arguments, "This tool helps to manage acls on kafka.")
        except OptionError as reason:
            PARSER.usage(str(reason))
        _check(options)
        _run(options)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        words = f"{java_name(reason)}: {reason}" if isinstance(reason, (KafkaError, CallTimeout)) else str(reason)
        print(f"Error while executing ACL command: {words}")
        return 1
    return 0


def _check(options: Options) -> None:
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        options.usage("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        options.usage("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(options.has(name) for name in ("add", "remove", "list")) != 1:
        options.usage("Command must include exactly one action: --list, --add, --remove. ")
    options.refuse("list", ("producer", "consumer", "allow-host", "allow-principal", "deny-host", "deny-principal"))
    for role in ("producer", "consumer"):
        options.refuse(role, ("operation", "deny-principal", "deny-host"))
    if options.has("principal") and not options.has("list"):
        options.usage("The --principal option is only available if --list is set")
    if options.has("producer") and not options.has("topic"):
        options.usage("With --producer you must specify a --topic")
    if options.has("idempotent") and not options.has("producer"):
        options.usage("The --idempotent option is only available if --producer is set")
    has_other_resource = not options.has("producer") and (options.has("cluster") or options.has("transactional-id"))
    if options.has("consumer") and (not options.has("topic") or not options.has("group") or has_other_resource):
        options.usage(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


def _run(options: Options) -> None:
    if options.has("add"):
        pattern = _pattern(options)
        if pattern in {PatternType.ANY, PatternType.MATCH}:
            options.usage(f"A '--resource-pattern-type' value of '{pattern.name}' is not valid when adding acls.")
        plan = _plan(options)
        if not all(plan.values()):
            options.usage("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
        with cluster_of(options) as cluster:
            for resource, requested_entries in plan.items():
                existing = describe_acls(cluster, resource).get(resource, [])
                entries = [entry for entry in requested_entries if entry not in existing]
                for entry in requested_entries:
                    if entry in existing:
                        print(f"Acl (pattern={resource}, entry={entry}) already exists.")
                if not entries:
                    continue
                print(f"Adding ACLs for resource `{resource}`: \n {_lines(entries)} \n")
                create_acls(cluster, resource, entries)
    elif options.has("remove"):
        with cluster_of(options) as cluster:
            _remove(cluster, options)
    else:
        with cluster_of(options) as cluster:
            _list(cluster, options)


def _lines(entries: Iterable[Entry]) -> str:
    return "\n".join(f"\t{entry}" for entry in entries)


def _remove(cluster: Cluster, options: Options) -> None:
    for resource, entries in _plan(options).items():
        if not entries:
            question = f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)"
        else:
            question = (
                f"Are you sure you want to remove ACLs: \n {_lines(entries)} \n "
                f"from resource filter `{resource}`? (y/n)"
            )
        if options.has("force") or _confirmed(question):
            delete_acls(cluster, resource, entries)


def _confirmed(question: str) -> bool:
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _list(cluster: Cluster, options: Options) -> None:
    entries_by_resource: Plan = {}
    for resource in _resources(options, required=False) or [ANY_RESOURCE]:
        entries_by_resource |= describe_acls(cluster, resource)
    principals = [_principal(text) for text in options.values("principal")]
    if not principals:
        _print(entries_by_resource)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        _print({
            resource: mine
            for resource, entries in entries_by_resource.items()
            if (mine := [entry for entry in entries if entry.principal == principal])
        })  # fmt: skip


def _print(entries_by_resource: Plan) -> None:
    for resource, entries in entries_by_resource.items():
        print(f"Current ACLs for resource `{resource}`:\n{_lines(entries)}\n")


def _pattern(options: Options) -> PatternType:
    text = options.required("resource-pattern-type")
    try:
        return PatternType[text.upper()]
    except KeyError:
        raise OptionError(f"Cannot parse argument '{text}' of option resource-pattern-type") from None


def _resources(options: Options, *, required: bool = True) -> list[Resource]:
    pattern = _pattern(options)
    resources: list[Resource] = []
    for name, kind in (
        ("topic", ResourceType.TOPIC),
        ("group", ResourceType.GROUP),
        ("transactional-id", ResourceType.TRANSACTIONAL_ID),
        ("delegation-token", ResourceType.DELEGATION_TOKEN),
        ("user-principal", ResourceType.USER),
    ):
        resources += [Resource(kind, text.strip(), pattern) for text in options.values(name)]
    if pattern == PatternType.LITERAL and (options.has("cluster") or options.has("idempotent")):
        resources.append(_CLUSTER)
    if not resources and required:
        options.usage(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> "
            "or --delegation-token <Delegation Token ID>"
        )
    return list(dict.fromkeys(resources))


def _plan(options: Options) -> Plan:
    plan: Plan = {}
    if not options.has("producer") and not options.has("consumer"):
        operations = [_operation(text) for text in options.values("operation")]
        entries = _entries(options, operations)
        plan = {resource: list(entries) for resource in _resources(options)}
    if options.has("producer"):
        for resource in _resources(options):
            if resource.kind == ResourceType.TOPIC:
                plan[resource] = _entries(options, (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE))
            elif resource.kind == ResourceType.TRANSACTIONAL_ID:
                plan[resource] = _entries(options, (Operation.WRITE, Operation.DESCRIBE))
        if options.has("idempotent"):
            plan[_CLUSTER] = _entries(options, (Operation.IDEMPOTENT_WRITE,))
    if options.has("consumer"):
        for resource in _resources(options):
            if resource.kind == ResourceType.TOPIC:
                entries = _entries(options, (Operation.READ, Operation.DESCRIBE))
            elif resource.kind == ResourceType.GROUP:
                entries = _entries(options, (Operation.READ,))
            else:
                continue
            plan[resource] = list(dict.fromkeys([*entries, *plan.get(resource, [])]))
    _check_operations(options, plan)
    return plan


def _check_operations(options: Options, plan: Plan) -> None:
    for resource, entries in plan.items():
        names = [*_SUPPORTED[resource.kind].split(), "ALL"]
        if any(entry.operation.name not in names for entry in entries):
            options.usage(f"ResourceType {resource.kind.name} only supports operations [{', '.join(names)}]")


def _operation(text: str) -> Operation:
    operation_name = text.strip().replace("_", "").lower()
    return next(
        (operation for operation in Operation if operation.name.replace("_", "").lower() == operation_name),
        Operation.UNKNOWN,
    )


def _principal(text: str) -> str:
    kind, colon, name = text.strip().partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"expected a string in format principalType:principalName but got {text.strip()}")
    return f"{kind}:{name}"


def _entries(options: Options, operations: Iterable[Operation]) -> list[Entry]:
    acl_entries = []
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        principals = [_principal(text) for text in options.values(f"{word}-principal")]
        hosts = [text.strip() for text in options.values(f"{word}-host")] or ["*"]
        for principal in principals:
            for operation in operations:
                acl_entries += [Entry(principal, host, operation, permission) for host in hosts]
    return list(dict.fromkeys(acl_entries))
