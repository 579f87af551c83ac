"""`ottla topic forget`: the values of one key become unreadable, wherever copies of the files are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ottla.cli.options.completions import topic_names
from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target


@click.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--key", help="Key as text.")
@click.option("--key-hex", help="Key as hexadecimal digits.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--wait", "wait_s", type=click.FloatRange(0, 86_400), default=60.0, show_default=True,
              help="Seconds to wait until no value of the key can be read; 0 does not check.")  # fmt: skip
@connected
def forget(target: Target, name: str, key: str | None, key_hex: str | None, yes: bool, wait_s: float) -> None:  # noqa: FBT001 - click passes flags so
    r"""Erase the values of one key permanently.

    Its records stay where they are, with their key, a null value and no headers. Needs encryption at rest: the keys that
    encrypted the values are destroyed, so that no copy of the files can be read with what is left. Records of the key
    that are written from now on are not touched.

    \b
    Example:
      ottla topic forget user.shop.orders.avro --key customer-4711
    """
    from ottla.cli.terminal.output import report, show_tree
    from ottla.client.configs import APPEND, ConfigResourceType, alter_configs
    from ottla.client.offsets import end_offsets
    from ottla.client.topics import describe_topics
    from ottla.model.erasures import SETTING, Erasure, key_hash

    if (key is None) == (key_hex is None):
        raise click.UsageError("name the key with --key or --key-hex")
    key_bytes = _key(key, key_hex)
    if not yes:
        click.confirm(f"erase every value of that key in {name} permanently?", abort=True, err=True)
    with target.cluster() as cluster:
        described_topic = describe_topics(cluster, [name])[0]
        places = [(name, row.partition) for row in described_topic.partitions]
        latest = end_offsets(cluster, places)
        if len(latest) < len(places):
            raise click.ClickException("a partition has no leader: try again when every partition has one")
        ends = {number: end for (_, number), end in latest.items() if end}
        if not ends:
            report(f"{name} is empty: there is nothing to forget", target.output, {"topic": name, "erased_before": {}})
            return
        erasure = Erasure(key_hash(name, key_bytes), ends)
        alter_configs(cluster, ConfigResourceType.TOPIC, name, [(SETTING, APPEND, str(erasure))])
    if target.output == "table":
        click.echo(
            f"{name}: every replica erases the key's values, before the {sum(ends.values())} current end offsets"
        )
    if wait_s and not _gone(target, name, key_bytes, ends, time.monotonic() + wait_s):
        raise click.ClickException(
            f"values of the key can still be read after {wait_s:g} s: a replica may lag; run the command again"
        )
    if wait_s and target.output == "table":
        click.echo("verified: no value of the key can be read")
    elif target.output != "table":
        show_tree({"topic": name, "erased_before": ends, "verified": bool(wait_s)}, target.output)


def _key(key: str | None, key_hex: str | None) -> bytes:
    try:
        return bytes.fromhex(key_hex) if key_hex is not None else (key or "").encode()
    except ValueError:
        raise click.UsageError("--key-hex is not hexadecimal") from None


def _gone(target: Target, name: str, key: bytes, ends: dict[int, int], deadline: float) -> bool:
    """Reads the topic until it shows no value of the key below the ends."""
    from ottla.cli.records.reading import Reading
    from ottla.cli.records.start_position import When

    while time.monotonic() < deadline:
        reading = Reading(target, name, When(beginning=True))
        left = sum(
            message.key() == key and message.value() is not None and message.offset() < ends.get(message.partition(), 0)
            for batch in reading.batches(follow=False)
            for message in batch
        )
        reading.close()
        if not left:
            return True
        time.sleep(0.5)
    return False
