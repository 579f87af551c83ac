"""`ottla audit`: the audit log in a topic, exported to files, syslog and other topics."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connecting import connected
from ottla.client.librdkafka_errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.cli.options.connecting import Target
    from ottla.client.audit.events import Event
    from ottla.client.audit.sinks import AuditSink

_TOPIC = "__ottla_audit"
_BATCH = 500
_PAUSE_S = 1.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def audit() -> None:
    r"""The audit log: logins, refusals and changes, of brokers (ottla.audit.enable), registry and console (--audit topic).

    \b
    Examples:
      ottla audit export --to file:/var/log/ottla/audit.log
      ottla audit export --to syslog+tcp://siem.example:601
    """


@audit.command()
@click.option("--to", "destinations", multiple=True, required=True, metavar="DESTINATION",
              help="file:PATH, syslog+(udp|tcp)://HOST:PORT, syslog+unix:PATH or topic:NAME; may be repeated.")  # fmt: skip
@click.option("--topic", default=_TOPIC, show_default=True, help="Topic that holds the audit log.")
@click.option(
    "--group",
    default="ottla-audit-export",
    show_default=True,
    help="Consumer group that stores the position of the export.",
)
@click.option("--once", is_flag=True, help="Stop at the end of the topic instead of waiting for events.")
@connected
def export(target: Target, destinations: tuple[str, ...], topic: str, group: str, once: bool) -> None:  # noqa: FBT001 - click passes flags so
    r"""Write the audit log to DESTINATIONs, until Ctrl-C. The next export continues after the last event.

    An event counts as exported once every destination has accepted it. A destination that is away is tried again. After
    a crash an event may arrive twice.

    \b
    Examples:
      ottla audit export --to file:/var/log/ottla/audit.log --once
      ottla audit export --to syslog+udp://127.0.0.1:514 --to topic:siem
    """
    from confluent_kafka import Consumer

    from ottla.cli.terminal.output import report
    from ottla.client.audit.sinks import open_sink

    if f"topic:{topic}" in destinations or ("topic" in destinations and topic == _TOPIC):
        raise click.UsageError(f"--to topic:{topic} is the topic that this command reads: name a different topic")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    sinks = [open_sink(destination, "ottla-audit", target.librdkafka(producer=True)) for destination in destinations]
    own: dict[str, Any] = {
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": once,
    }
    reader: Any = Consumer(target.librdkafka(producer=False, **own))
    reader.subscribe([topic])
    try:
        count = _copy(reader, sinks, stopping, once=once)
    finally:
        reader.close()
        for sink in sinks:
            sink.close()
    report(f"{count:,} events", target.output, {"events": count})


def _copy(reader: Any, sinks: Sequence[AuditSink], stopping: threading.Event, *, once: bool) -> int:
    from confluent_kafka import KafkaError, KafkaException

    count, ended = 0, False
    while not stopping.is_set() and not ended:
        events: list[Event] = []
        for message in reader.consume(_BATCH, 0.5):
            error = message.error()
            if error is None:
                events.append(_event(message.value()))
            elif error.code() == LocalError.PARTITION_EOF:
                ended = once
            elif not error.retriable() and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
            elif once:
                ended = True
        if events and _written(sinks, events, stopping):
            reader.commit(asynchronous=False)
            count += len(events)
    return count


def _event(value: bytes | None) -> Event:
    try:
        event = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        event = None
    return (
        event if isinstance(event, dict) else {"event": "unreadable", "text": (value or b"").decode("utf-8", "replace")}
    )


def _written(sinks: Sequence[AuditSink], events: list[Event], stopping: threading.Event) -> bool:
    """Writes the events to every destination, with retries. Returns False if `stopping` is set before all have them."""
    for sink in sinks:
        reported = False
        while True:
            try:
                sink.write(events)
                break
            except OSError as error:
                if not reported:
                    click.echo(f"ottla: {sink.name} does not accept events; retrying: {error}", err=True)
                    reported = True
            if stopping.wait(_PAUSE_S):
                return False
    return True
