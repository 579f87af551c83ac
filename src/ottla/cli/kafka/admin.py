"""How a tool comes to its cluster, and the few things that many tools print the same way."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping

from ottla.cli.kafka.options import Option, OptionError, Options
from ottla.client.cluster import Cluster
from ottla.client.errors import BadSettings, ClientError
from ottla.client.settings import client_settings, load_properties, parse_addresses
from ottla.model.errors import KafkaError

BOOTSTRAP_SERVER = Option("bootstrap-server", "String: server to connect to", "REQUIRED: brokers, as HOST:PORT,...")
BOOTSTRAP_CONTROLLER = Option(
    "bootstrap-controller", "String: controller to connect to", "Controllers, as HOST:PORT,..."
)
COMMAND_CONFIG = Option(
    "command-config", "String: command config property file", "A file with the client's properties."
)
REFUSED = (ClientError, KafkaError, OptionError, ValueError, OSError)
"""What an expected failure of a tool can be."""


class UnreadableFile(ClientError):
    """A properties file that is not there or is none, with the class and the words of Java's exception."""

    def __init__(self, error: OSError, path: str) -> None:
        exception_name = {FileNotFoundError: "NoSuchFileException", PermissionError: "AccessDeniedException"}.get(
            type(error)
        )
        super().__init__(path if exception_name else error.strerror or str(error))
        self.java_name = f"java.nio.file.{exception_name}" if exception_name else "java.io.IOException"


class ClientNotMade(ClientError):
    """In the words of Kafka's client, which gives the reason only in its stack trace."""


def open_cluster(
    bootstrap: str,
    properties: Mapping[str, str] | None = None,
    *,
    controllers: bool = False,
    client_id: str | None = None,
) -> Cluster:
    """ClientNotMade when no address is usable, as Kafka's admin client finds before its first call."""
    try:
        settings = client_settings(bootstrap, properties, controllers=controllers, client_id=client_id)
        check_resolvable(parse_addresses(bootstrap))
    except BadSettings as reason:  # a value is named before the client is made, an address only in a stack trace
        words = str(reason)
        raise ClientNotMade(
            words if words.startswith("Invalid value") else "Failed to create new KafkaAdminClient"
        ) from reason
    return Cluster(settings)


def check_resolvable(addresses: Iterable[tuple[str, int]]) -> None:
    for host, port in addresses:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            continue
        return
    raise BadSettings("No resolvable bootstrap urls given in bootstrap.servers")


def command_properties(options: Options, name: str = "command-config") -> dict[str, str]:
    return command_properties_of(options.value(name))


def command_properties_of(path: str | None) -> dict[str, str]:
    try:
        return load_properties(path) if path else {}
    except OSError as error:
        raise UnreadableFile(error, path or "") from None


def cluster_of(options: Options) -> Cluster:
    """From --bootstrap-server or --bootstrap-controller, and --command-config."""
    properties = command_properties(options)
    controllers = options.parser_has("bootstrap-controller") and options.has("bootstrap-controller")
    name = "bootstrap-controller" if controllers else "bootstrap-server"
    return open_cluster(options.required(name), properties, controllers=controllers)


def include_pattern(text: str) -> re.Pattern[str]:
    """Kafka's list of topics or patterns: commas are "or", quotes and blanks do not count; the whole name must match."""
    cleaned = re.sub(r"\s", "", text.strip().replace(",", "|"))
    cleaned = re.sub(r'^["\']+|["\']+$', "", cleaned)
    try:
        return re.compile(cleaned)
    except re.error:
        raise ValueError(f"{text} is an invalid regex.") from None


def java_list(items: Iterable[object]) -> str:
    """As Java prints a List: [1, 2]."""
    return "[" + ", ".join(map(str, items)) + "]"


def command_properties_or_usage(options: Options) -> dict[str, str]:
    """Prints the help and the reason if Java's parser would refuse the file."""
    try:
        return command_properties(options)
    except ValueError as reason:
        options.usage(str(reason))
