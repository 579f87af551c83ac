"""`ottla backup`: the content of a cluster in a folder or an object store, and back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ottla.cli.options.connecting import connected, one_line_errors
from ottla.cli.options.output_format import output_option

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target

_NAME = click.argument("name", required=False)


@click.group()
def backup() -> None:
    r"""Back up topics, group offsets, schemas and ACLs to WHERE: a folder or s3://BUCKET/PATH, gs://, abfs://, hdfs://.

    \b
    Examples:
      ottla backup create /backups/shop
      ottla backup verify /backups/shop
      ottla backup restore /backups/shop -b new-cluster:9092
    """


@backup.command()
@click.argument("where")
@connected
def create(target: Target, where: str) -> None:
    """Make a backup in WHERE. Only records since the last backup are read; an interrupted backup continues."""
    from ottla.cli.backup.creating import create_backup
    from ottla.cli.backup.store import BackupStore
    from ottla.cli.terminal.output import report

    with target.cluster() as cluster:
        manifest = create_backup(cluster, BackupStore(where), _progress)
    facts = {
        "name": manifest.name,
        "topics": len(manifest.topics),
        "groups": len(manifest.groups),
        "bytes": manifest.size,
    }
    words = f"{manifest.name}: {len(manifest.topics)} topics, {len(manifest.groups)} groups, {manifest.size:,} bytes"
    report(words, target.output, facts)


@backup.command("list")
@click.argument("where")
@output_option("table", "json", "yaml")
def list_(where: str, output: str) -> None:
    """List the backups in WHERE, the oldest first."""
    from ottla.cli.backup.store import BackupStore
    from ottla.cli.terminal.output import show

    with one_line_errors():
        rows = [
            {
                "name": manifest.name,
                "complete": manifest.complete,
                "topics": len(manifest.topics),
                "groups": len(manifest.groups),
                "bytes": manifest.size,
                "cluster": manifest.cluster_id,
            }
            for manifest in BackupStore(where).manifests()
        ]
        show(rows, output)


@backup.command()
@click.argument("where")
@_NAME
@output_option("table", "json", "yaml")
def verify(where: str, name: str | None, output: str) -> None:
    """Read every file of a backup (default: the newest) and compare checksums. The exit code is 1 for a bad backup."""
    from ottla.cli.backup.restoring import problems_of
    from ottla.cli.backup.store import BackupStore
    from ottla.cli.terminal.output import report

    with one_line_errors():
        store = BackupStore(where)
        manifest = store.manifest(name)
        problems = problems_of(store, manifest)
    report("\n".join(problems) or f"{manifest.name} is complete", output, {"name": manifest.name, "problems": problems})
    if problems:
        sys.exit(1)


@backup.command()
@click.argument("where")
@_NAME
@click.option(
    "--max-holes",
    type=click.IntRange(0),
    default=10_000,
    show_default=True,
    help="Most offsets without a record in a partition.",
)
@click.option(
    "--max-filler-records",
    type=click.IntRange(0),
    default=10_000_000_000,
    show_default=True,
    help="Most offsets before the first record, in all partitions together.",
)
@click.option("--continue", "resume", is_flag=True, help="Continue an interrupted restore: topics that are not complete are "
              "deleted and restored again.")  # fmt: skip
@connected
def restore(
    target: Target, where: str, name: str | None, max_holes: int, max_filler_records: int, *, resume: bool
) -> None:
    """Restore a backup (default: the newest) into a cluster that has none of its topics.

    Passwords of users, open transactions, groups of exactly-once writes and settings of brokers are not restored.
    """
    from ottla.cli.backup.restoring import RestoreLimits, restore_backup
    from ottla.cli.backup.store import BackupStore
    from ottla.cli.terminal.output import report

    store = BackupStore(where)
    manifest = store.manifest(name)
    limits = RestoreLimits(max_holes=max_holes, max_filler_records=max_filler_records)
    with target.cluster() as cluster:
        left_out = restore_backup(cluster, store, manifest, limits, _progress, resume=resume)
    report(
        f"restored {manifest.name}: {len(manifest.topics)} topics, {len(manifest.groups)} groups",
        target.output,
        {
            "name": manifest.name,
            "topics": len(manifest.topics),
            "groups": len(manifest.groups),
            "users": manifest.users,
        },
    )
    for text in left_out:
        click.echo(f"not restored: {text}", err=True)
    for user, mechanism in manifest.users:
        click.echo(f"not restored: the password of {user} ({mechanism}): `ottla user add {user}`", err=True)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)
