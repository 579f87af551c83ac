"""`ottla produce`: lines of standard input, or one record from the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.combinations import refuse_together, refuse_without
from ottla.cli.options.completions import topic_names
from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("value", required=False)
@click.option("-k", "--key", help="Key of every record.")
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Separator between key and value in each line of standard input."
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record; may be repeated."
)
@click.option("-p", "--partition", type=click.IntRange(0), help="Write to this partition.")
@click.option(
    "--value-as",
    type=click.Choice(["text", "json", "schema"]),
    default="text",
    help="Encoding of values; schema uses the registry's subject TOPIC-value.  [default: text]",
)
@click.option("--subject", help="Subject of the registry to use instead of TOPIC-value.")
@click.option("-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
              help="Compression of batches.  [default: none]")  # fmt: skip
@connected
def produce(
    target: Target,
    topic: str,
    value: str | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    value_as: str,
    subject: str | None,
    compression: str | None,
) -> None:
    r"""Write records: VALUE, or the lines of standard input.

    \b
    Examples:
      ottla produce greetings 'hello world'
      ottla produce orders -K : < orders.txt
      echo '{"id": 7}' | ottla produce orders --value-as schema
    """
    from ottla.cli.records.encoding import encoder
    from ottla.cli.records.node_registry import registry_url
    from ottla.console.registry_client import ConsoleRegistry

    refuse_together("-k", key, "-K", key_separator)
    if value_as != "schema":
        refuse_without("--subject", subject, "--value-as schema", None)
    registry = registry_url(target) if value_as == "schema" else ""
    encode = encoder(value_as, ConsoleRegistry(registry), subject or f"{topic}-value")
    pairs: list[tuple[str, bytes]] = []
    for text in headers:
        name, equals, content = text.partition("=")
        if not equals:
            raise click.ClickException(f"-H {text}: a header is NAME=VALUE")
        pairs.append((name, content.encode()))
    lines = [value] if value is not None else _typed()
    sent = _Sender(target, topic, compression).send(lines, encode, key, key_separator, pairs, partition)
    if target.output != "table":
        from ottla.cli.terminal.output import show_tree

        show_tree({"topic": topic, "records": sent}, target.output)
        return
    click.echo(f"{sent} record{'' if sent == 1 else 's'} to {topic}", err=True)


def _typed() -> Iterator[str]:
    prompt = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        if prompt:
            click.echo("> ", nl=False)
        line = sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\n")


class _Sender:
    def __init__(self, target: Target, topic: str, compression: str | None) -> None:
        from confluent_kafka import Producer

        defaults = {"linger.ms": 5, "message.timeout.ms": 20000}
        more = {"partitioner": "murmur2_random"} | ({} if compression is None else {"compression.type": compression})
        self._producer: Any = Producer(target.librdkafka(producer=True, defaults=defaults, **more))
        self._topic, self._where = topic, target.profile
        self._failed: list[Any] = []
        self._acked = 0

    def _delivered(self, error: Any, message: Any) -> None:
        del message
        if error is not None:
            self._failed.append(error)
        else:
            self._acked += 1

    def send(
        self,
        lines: Iterator[str] | list[str],
        encode: Callable[[str], bytes],
        key: str | None,
        separator: str | None,
        headers: list[tuple[str, bytes]],
        partition: int | None,
    ) -> int:
        where = {} if partition is None else {"partition": partition}
        try:
            for number, line in enumerate(lines, 1):
                own_key, text = key, line
                if separator:
                    own_key, mark, text = line.partition(separator)
                    if not mark:
                        raise ValueError(f"line {number} has no {separator!r} between key and value")
                self._send(encode(text), own_key, headers, where)
                if self._failed:
                    break
        except KeyboardInterrupt:
            click.echo()
        self._producer.flush(25)
        if self._failed:
            from ottla.cli.options.connecting import librdkafka_words

            words = librdkafka_words(self._failed[0], self._where)
            raise ValueError(f"{self._topic}: {words} ({self._acked} records were written before)")
        return self._acked

    def _send(self, value: bytes, key: str | None, headers: list[tuple[str, bytes]], where: dict[str, int]) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key=key, headers=headers or None, on_delivery=self._delivered, **where
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)
