"""What the console consumers have in common: the formatter's options, their old spellings, and the formatter they give."""

from __future__ import annotations

from ottla.cli.kafka.client_properties import RenamedOption, key_values
from ottla.cli.kafka.formatters import Write, formatter_for
from ottla.cli.kafka.options import Option, OptionError, Options
from ottla.client.settings import load_properties

RENAMED = "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
FORMATTER = RenamedOption("formatter-property", "property", RENAMED)
PROPERTY = RenamedOption("command-property", "consumer-property", RENAMED)
_PROPERTIES = (
    "Property of the formatter: print.timestamp, print.key, print.offset, print.partition, print.headers, print.value, "
    "key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer"
)


def reading_options(old_config: str) -> tuple[Option, ...]:
    """`old_config` is the older spelling of --command-config, which is not the same everywhere."""
    return (
        Option("bootstrap-server", "String: server to connect to", "REQUIRED: brokers, as HOST:PORT,..."),
        Option("topic", "String: topic", "The topic to read."),
        Option("max-messages", "Integer: num_messages", "Stop after this number of records."),
        Option("timeout-ms", "Long: timeout_ms", "Stop when no record arrived for this number of milliseconds."),
        Option(
            "formatter",
            "String: class",
            "Formatter class that prints records.",
            "org.apache.kafka.tools.consumer.DefaultMessageFormatter",
        ),
        Option("formatter-property", "String: prop", _PROPERTIES),
        Option("property", "String: prop", "(DEPRECATED) The same as --formatter-property."),
        Option("formatter-config", "String: config file", "A file with the formatter's properties."),
        Option("key-deserializer", "String: deserializer for keys", "Deserializer class of keys."),
        Option("value-deserializer", "String: deserializer for values", "Deserializer class of values."),
        Option("command-property", "String: consumer_prop", "A property of the consumer."),
        Option("consumer-property", "String: consumer_prop", "(DEPRECATED) The same as --command-property."),
        Option("command-config", "String: config file", "A file with the consumer's properties."),
        Option(old_config, "String: config file", "(DEPRECATED) The same as --command-config."),
        Option("enable-systest-events", text="Log the start and end of the consumer too."),
    )


def formatter_of(options: Options) -> Write:
    path = options.value("formatter-config")
    properties = load_properties(path) if path else {}
    for what in ("key", "value"):
        if name := options.value(f"{what}-deserializer"):
            properties[f"{what}.deserializer"] = name
    try:
        return formatter_for(options.required("formatter"), properties | key_values(FORMATTER.values(options)))
    except OptionError as reason:
        options.usage(str(reason))


def check_subscription(topic: str | None, pattern: str | None = None) -> None:
    """ValueError for a name or a pattern that is empty, which Kafka's consumer does not subscribe to."""
    if topic == "":
        raise ValueError("Topic collection to subscribe to cannot contain null or empty topic")
    if pattern == "":
        raise ValueError("Topic pattern to subscribe to cannot be empty")


def check_groups(options: Options, properties: dict[str, str], old: tuple[str, str]) -> str | None:
    """The one group that --group and the properties name; the help when they name two. `old` are the spellings it uses."""
    groups = [name for name in (options.value("group"), properties.get("group.id")) if name is not None]
    if len(set(groups)) > 1:
        listed = ", ".join(f"'{name}'" for name in groups)
        options.usage(
            f"The group ids provided in different places (directly using '--group', via '--{old[0]}', "
            f"or via '--{old[1]}') do not match. Detected group ids: {listed}"
        )
    return groups[0] if groups else None
