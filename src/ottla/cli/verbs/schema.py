"""`ottla schema list|get|register|check|diff|delete`: the registry's REST API for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ottla.cli.options.combinations import is_set
from ottla.cli.options.connecting import one_line_errors
from ottla.cli.options.output_format import output_option

_Command = TypeVar("_Command", bound=Callable[..., Any])
_sub_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="Format of the output.  [default: table]"
)
_TYPES = {".avsc": "AVRO", ".avro": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


@click.group()
@click.option(
    "-u",
    "--url",
    "--registry",
    help="URL of the schema registry.  [env: OTTLA_REGISTRY; default: http://127.0.0.1:8081]",
)
@click.option("--profile", help="A named profile (ottla profile list).  [env: OTTLA_PROFILE]")
@click.option("--user", envvar="OTTLA_REGISTRY_USER", metavar="NAME:PASSWORD", help="Basic authentication.")
@click.option("--ca", help="PEM certificates to trust for https.")
@output_option("table", "json")
@click.pass_context
def schema(
    context: click.Context, url: str | None, profile: str | None, user: str | None, ca: str | None, output: str
) -> None:
    r"""List, get, register, check, compare and delete schemas.

    \b
    Examples:
      ottla schema register orders-value order.avsc
      ottla schema check orders-value order.avsc
      ottla schema diff orders-value 1 2
    """
    from ottla.cli.options.profiles import resolve
    from ottla.client.schema_registry import RegistryClient

    with one_line_errors():
        registry_url = url or resolve(None, profile, None, (), None).registry or "http://127.0.0.1:8081"
    context.obj = (RegistryClient(registry_url, user=user, ca_file=ca), output)


def _chosen(obj: Any, output: str | None) -> tuple[Any, bool]:
    """The registry's client, and whether to print JSON: -o counts before and after the subcommand."""
    client, of_group = obj
    return client, (output or of_group) == "json"


def _read(file: str, schema_type: str | None, references: tuple[str, ...]) -> dict[str, Any]:
    """The body of a registration: the file's text, its type by its ending, references as NAME=SUBJECT:VERSION."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {file}: {error}") from error
    kind = schema_type or _TYPES.get(Path(file).suffix.lower(), "AVRO")
    body: dict[str, Any] = {"schema": text, "schemaType": kind.upper()}
    for reference in references:
        name, _, target = reference.partition("=")
        subject, _, version = target.rpartition(":")
        if not name or not subject or not version.isdigit():
            raise click.UsageError(f"--reference {reference!r} is not NAME=SUBJECT:VERSION")
        body.setdefault("references", []).append({"name": name, "subject": subject, "version": int(version)})
    return body


_file_options = (
    click.option("-t", "--type", "schema_type", type=click.Choice(["AVRO", "JSON", "PROTOBUF"], case_sensitive=False),
                 help="Schema language (default: from the file's ending .avsc, .json or .proto)."),
    click.option("-r", "--reference", "references", multiple=True, metavar="NAME=SUBJECT:VERSION",
                 help="Schema that this schema refers to; may be repeated."),
)  # fmt: skip


def _with_file(function: _Command) -> _Command:
    for option in _file_options:
        function = option(function)
    return function


@schema.command("list")
@click.argument("prefix", default="")
@click.option("--deleted", is_flag=True, help="List soft-deleted subjects too.")
@_sub_output
@click.pass_obj
def list_(obj: Any, output: str | None, prefix: str, deleted: bool) -> None:  # noqa: FBT001 - click passes flags so
    """List subjects that begin with PREFIX, with their latest version."""
    client, as_json = _chosen(obj, output)
    flags = {"deleted": str(deleted).lower()}
    names = client.call("GET", "subjects", query={"subjectPrefix": prefix or ":*:", **flags})
    rows = []
    for name in names:
        versions = client.call("GET", "subjects", name, "versions", query=flags)
        latest = client.call("GET", "subjects", name, "versions", str(versions[-1]), query=flags)
        rows.append({"subject": name, "version": latest["version"], "versions": len(versions), "id": latest["id"],
                     "type": latest.get("schemaType", "AVRO"), "deleted": latest.get("deleted", False)})  # fmt: skip
    _show(rows, as_json, ("subject", "version", "versions", "id", "type"))


@schema.command()
@click.argument("subject")
@click.argument("version", default="latest")
@click.option("--id", "by_id", is_flag=True, help="Read SUBJECT as a schema id.")
@_sub_output
@click.pass_obj
def get(obj: Any, output: str | None, subject: str, version: str, by_id: bool) -> None:  # noqa: FBT001 - as above
    """Print a schema, by subject and version or by its id."""
    client, as_json = _chosen(obj, output)
    if by_id and is_set("version"):
        raise click.UsageError("VERSION and --id cannot be used together: an id names one schema")
    path = ("schemas", "ids", subject) if by_id else ("subjects", subject, "versions", version)
    schema = client.call("GET", *path)
    click.echo(json.dumps(schema, indent=2) if as_json else _readable(schema))


@schema.command()
@click.argument("subject")
@click.argument("file")
@_with_file
@click.option("--normalize", is_flag=True, help="Ignore differences of field order and formatting.")
@_sub_output
@click.pass_obj
def register(
    obj: Any,
    output: str | None,
    subject: str,
    file: str,
    schema_type: str | None,
    references: tuple[str, ...],
    normalize: bool,  # noqa: FBT001 - as above
) -> None:
    """Register the schema in FILE (- is the standard input) under SUBJECT."""
    client, as_json = _chosen(obj, output)
    body = _read(file, schema_type, references)
    query = {"normalize": str(normalize).lower()}
    registered = client.call("POST", "subjects", subject, "versions", body=body, query=query)
    click.echo(
        json.dumps(registered) if as_json else f"{subject} version {registered['version']} has id {registered['id']}"
    )


@schema.command()
@click.argument("subject")
@click.argument("file")
@_with_file
@click.option(
    "--version", help="Compare with this version only, a number or latest (default: as the subject's level requires)."
)
@_sub_output
@click.pass_obj
def check(
    obj: Any,
    output: str | None,
    subject: str,
    file: str,
    schema_type: str | None,
    references: tuple[str, ...],
    version: str | None,
) -> None:
    """Check whether SUBJECT would accept the schema in FILE. If not, print the incompatible places and
    exit with code 1.
    """
    client, as_json = _chosen(obj, output)
    path = ("compatibility", "subjects", subject, "versions", *((version,) if version else ()))
    verdict = client.call("POST", *path, body=_read(file, schema_type, references), query={"verbose": "true"})
    if as_json:
        click.echo(json.dumps(verdict, indent=2))
    else:
        click.echo("compatible" if verdict["is_compatible"] else "incompatible:")
        for message in verdict.get("messages", []):
            click.echo(f"  {_sentence(message)}")
    if not verdict["is_compatible"]:
        sys.exit(1)


@schema.command()
@click.argument("subject")
@click.argument("old")
@click.argument("new", default="latest")
@_sub_output
@click.pass_obj
def diff(obj: Any, output: str | None, subject: str, old: str, new: str) -> None:
    """Show the differences between two versions as text, and what each version cannot read of the other."""
    import difflib

    client, as_json = _chosen(obj, output)
    before, after = (client.call("GET", "subjects", subject, "versions", version) for version in (old, new))
    reasons = _both_ways(client, before, after)
    lines = list(
        difflib.unified_diff(
            _readable(before).splitlines(), _readable(after).splitlines(), f"version {before['version']}",
            f"version {after['version']}", lineterm="",
        )
    )  # fmt: skip
    if as_json:
        click.echo(json.dumps({"old": before, "new": after, "diff": lines, **reasons}, indent=2))
        return
    for line in lines or ["the same schema"]:
        click.secho(line, fg={"+": "green", "-": "red"}.get(line[:1]))
    for direction, direction_reasons in reasons.items():
        click.echo(f"{direction.replace('_', ' ')}: {'yes' if not direction_reasons else 'no'}")
        for reason in direction_reasons:
            click.echo(f"  {reason['kind']} at {reason['path']}: {reason['message']}")


def _both_ways(client: Any, before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Compared here, so that the subject's level does not matter."""
    from ottla.registry.schemas.parse import parse_schema
    from ottla.registry.schemas.parsed import Dependency

    def dependencies(value: dict[str, Any]) -> list[Dependency]:
        dependency_list: list[Dependency] = []
        for reference in value.get("references", []):
            target = client.call("GET", "subjects", reference["subject"], "versions", str(reference["version"]))
            dependency_list += [*dependencies(target), Dependency(reference["name"], target["schema"])]
        return dependency_list

    if before.get("schemaType", "AVRO") != after.get("schemaType", "AVRO"):
        return {}
    old, new = (parse_schema(v.get("schemaType", "AVRO"), v["schema"], dependencies(v)) for v in (before, after))

    def reasons(reader: Any, writer: Any) -> list[dict[str, str]]:
        return [{"kind": r.kind, "path": r.path, "message": r.message} for r in reader.incompatibilities(writer)]

    return {"new_reads_old": reasons(new, old), "old_reads_new": reasons(old, new)}


@schema.command()
@click.argument("subject")
@click.argument("version", required=False)
@click.option("--permanent", is_flag=True, help="Delete permanently; the version must be soft deleted before.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_sub_output
@click.pass_obj
def delete(obj: Any, output: str | None, subject: str, version: str | None, permanent: bool, yes: bool) -> None:  # noqa: FBT001 - as above
    """Delete a version, or a whole subject."""
    client, as_json = _chosen(obj, output)
    what = f"version {version} of {subject}" if version else f"all versions of {subject}"
    if not yes:
        click.confirm(f"Delete {what}{' for good' if permanent else ''}?", abort=True, err=True)
    path = ("subjects", subject, *(("versions", version) if version else ()))
    deleted_versions = client.call("DELETE", *path, query={"permanent": str(permanent).lower()})
    click.echo(json.dumps(deleted_versions) if as_json else f"deleted {what}: {deleted_versions}")


def _readable(schema: dict[str, Any]) -> str:
    text = str(schema["schema"])
    if schema.get("schemaType") == "PROTOBUF":
        return text
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def _sentence(message: str) -> str:
    """{errorType:'X', description:'y', path:'/z', ...} as a line for people."""
    import re

    match = re.match(r"\{errorType:'(.*?)', description:'(.*)', path:'(.*?)'(?:, direction:'(.*?)')?\}$", message)
    if match is None:
        return message.strip("{}")
    kind, description, path, direction = match.groups()
    who = {"BACKWARD": "new reads old", "FORWARD": "old reads new"}.get(direction or "", "")
    return f"{path}  {kind}: {description}" + (f"  [{who}]" if who else "")


def _show(rows: list[dict[str, Any]], as_json: bool, columns: tuple[str, ...]) -> None:  # noqa: FBT001 - as above
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    widths = [max([len(column), *(len(str(row[column])) for row in rows)]) for column in columns]
    click.echo("  ".join(c.upper().ljust(w) for c, w in zip(columns, widths, strict=True)).rstrip())
    for row in rows:
        click.echo("  ".join(str(row[c]).ljust(w) for c, w in zip(columns, widths, strict=True)).rstrip())
