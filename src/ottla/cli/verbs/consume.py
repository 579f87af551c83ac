"""`ottla consume`: read a topic, from a place or a time, filtered, decoded, in any form."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.combinations import is_set, named, refuse_together
from ottla.cli.options.completions import topic_names
from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target
    from ottla.cli.records.group_reading import GroupReading
    from ottla.cli.records.reading import Reading
    from ottla.cli.terminal.interruption import StopSignals
    from ottla.console.messages.decode import Decoded, Decoder

FORMATS = ["auto", "text", "json", "registry", "hex", "int", "base64"]


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--from", "start", metavar="WHERE",
              help="beginning, end, an offset, -10m, 2026-01-01, or stored (with -g). With -g this is where a new "
              "group starts; refused if the group has committed offsets.  [default: beginning; stored with -g]")  # fmt: skip
@click.option(
    "-e", "--exit", "exit_", is_flag=True, help="Stop at the end of the topic instead of waiting for records."
)
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this number of records.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Read only this partition; not with -g.")
@click.option("-g", "--group", callback=named,
              help="Read in a consumer group. Records are committed after they are printed.")  # fmt: skip
@click.option(
    "-f",
    "--format",
    "form",
    metavar="FORMAT",
    help=r"Format of each output line, in kcat's notation, such as '%t %p %o %k %v\n'.",
)
@click.option(
    "--filter",
    "expression",
    metavar="EXPR",
    help="Print only records for which the expression is true, such as value.amount > 100.",
)
@click.option("--key-as", type=click.Choice(FORMATS), default="auto", help="Decoding of keys.")
@click.option("--value-as", type=click.Choice(FORMATS), default="auto", help="Decoding of values.")
@connected
def consume(
    target: Target,
    topic: str,
    start: str | None,
    exit_: bool,  # noqa: FBT001 - click passes flags so
    count: int | None,
    partition: int | None,
    group: str | None,
    form: str | None,
    expression: str | None,
    key_as: str,
    value_as: str,
) -> None:
    r"""Read a topic. Avro, JSON Schema and Protobuf are decoded through the registry: --registry, or that of `ottla up`.

    \b
    Examples:
      ottla consume orders -e -n 10
      ottla consume orders --from -10m --filter 'value.amount > 100 and key == "de"'
      ottla consume orders -f '%k %v\n' -e
      ottla consume orders -o json --registry http://localhost:8081
      ottla consume orders -g audit -e
    """
    from ottla.cli.records.encoding import NO_REGISTRY
    from ottla.cli.records.filter_expression import compile_filter
    from ottla.cli.records.node_registry import registry_url
    from ottla.cli.terminal.interruption import StopSignals
    from ottla.console.messages.decode import Decoder
    from ottla.console.registry_client import ConsoleRegistry

    refuse_together("-f", form, "-o", target.output if is_set("output") else None)
    refuse_together("-p", partition, "-g", group, "the group assigns the partitions")
    if group is not None and sys.stdout is None:  # Python's value for a closed standard output: print writes nothing
        raise click.ClickException("standard output is closed: no record could be printed, so none is committed")
    predicate = compile_filter(expression) if expression else None
    registry = ConsoleRegistry(registry_url(target))
    if "registry" in (key_as, value_as) and not registry.configured:
        raise click.ClickException(NO_REGISTRY)
    keys, values = Decoder(registry, key_as), Decoder(registry, value_as)
    write = _writer(form, target.output)
    seen = 0
    with StopSignals() as stop, closing(_reading(target, topic, start, partition, group)) as reading:
        for message in _until(stop, reading.batches(follow=not exit_)):
            key, value = _decoded(keys, message.key()), _decoded(values, message.value())
            if predicate is None or predicate(as_facts(message, key, value)):
                write(message, key, value)
                seen += 1
            reading.mark_read(message)
            if seen == count:
                return
    if stop.requested:
        click.echo(f"{seen} records", err=True)


def _reading(
    target: Target, topic: str, start: str | None, partition: int | None, group: str | None
) -> Reading | GroupReading:
    from ottla.cli.records.start_position import parse_when

    if group is not None:
        from ottla.cli.records.group_reading import GroupReading

        return GroupReading(target, topic, parse_when(start or "stored"), group)
    from ottla.cli.records.reading import Reading

    return Reading(target, topic, parse_when(start or "beginning"), partition)


def _until(stop: StopSignals, batches: Iterator[list[Any]]) -> Iterator[Any]:
    """The records of the batches one by one, until a signal asks for the end."""
    for batch in batches:
        for message in batch:
            if stop.requested:
                return
            yield message
        if stop.requested:
            return


def _decoded(decoder: Decoder, data: bytes | None) -> Decoded:
    return decoder.decode(data)


def as_facts(message: Any, key: Decoded, value: Decoded) -> dict[str, Any]:
    """A record as a filter sees it: of a repeated header the last value."""
    headers = {name: _header_text(data) for name, data in message.headers() or ()}
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _plain(key),
        "value": _plain(value),
        "headers": headers,
    }


def _plain(decoded: Decoded) -> Any:
    if decoded.kind == "null":
        return None
    return decoded.text if decoded.tree is None else decoded.tree


def _writer(form: str | None, output: str) -> Callable[[Any, Decoded, Decoded], None]:
    from ottla.cli.terminal.output import for_terminal, json_text, show_tree

    if form is not None:
        from ottla.cli.records.record_format import compile_format

        formatted = compile_format(form)
        return lambda message, key, value: click.echo(
            for_terminal(formatted(message, _text(key), _text(value))), nl=False
        )
    if output == "json":
        return lambda message, key, value: click.echo(json_text(_with_all_headers(message, key, value)))
    if output == "yaml":
        return lambda message, key, value: show_tree([_with_all_headers(message, key, value)], "yaml")
    return _line


def _with_all_headers(message: Any, key: Decoded, value: Decoded) -> dict[str, Any]:
    """A header that is there several times is a list of its values, in their order."""
    values: dict[str, list[str | None]] = {}
    for name, data in message.headers() or ():
        values.setdefault(name, []).append(_header_text(data))
    headers = {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}
    return as_facts(message, key, value) | {"headers": headers}


def _header_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _text(decoded: Decoded) -> str:
    if decoded.tree is None:
        return "" if decoded.kind == "null" else decoded.text
    return decoded.text if isinstance(decoded.tree, str) else json.dumps(decoded.tree, ensure_ascii=False, default=str)


def _line(message: Any, key: Decoded, value: Decoded) -> None:
    from ottla.cli.terminal.output import for_terminal, styled

    where = styled(f"{message.partition()}:{message.offset()}", dim=True)
    left = "" if key.kind == "null" else styled(for_terminal(_text(key)), fg="cyan") + "  "
    click.echo(f"{where}  {left}{'null' if value.kind == 'null' else for_terminal(_text(value))}")
