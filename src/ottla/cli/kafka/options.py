"""A small option parser with the messages of the one that most of Kafka's tools use (jopt-simple).

`--name value`, `--name=value`, flags, options that repeat; unknown options and missing arguments are OptionError, a
wrong combination is UsageError: the message, then the help, exit code 1.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

KAFKA_VERSION = "4.3.1"
INTERRUPTED = 130
"""What a shell sees of a Java tool that Ctrl-C ended: 128 + SIGINT."""
CTRL_C = (KeyboardInterrupt, SystemError)
"""confluent-kafka makes a SystemError of an interrupt that arrives while it calls back."""
_NEGATIVE = re.compile(r"-\d+")


class OptionError(Exception):
    """The arguments cannot be parsed; each tool prints this error in Kafka's words for that tool."""


class Exit(Exception):
    """The tool ends with this exit code; everything is already printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Option(NamedTuple):
    name: str
    """Without dashes; other spellings after commas."""
    argument: str = ""
    """As the help shows it, such as "String: topic"; empty for a flag; "[...]" when the argument may be left out."""
    text: str = ""
    default: str | None = None

    @property
    def names(self) -> list[str]:
        return self.name.split(",")

    @property
    def takes_argument(self) -> bool:
        return bool(self.argument)

    @property
    def optional_argument(self) -> bool:
        return self.argument.startswith("[") and self.argument.endswith("]")

    @property
    def numeric(self) -> bool:
        return self.argument.lstrip("[").startswith(("Integer", "Long"))

    @property
    def label(self) -> str:
        """As in messages: [topic], or [d, deep] with its spellings sorted by length."""
        return "[" + ", ".join(sorted(self.names, key=lambda name: (len(name) > 1, name))) + "]"


HELP = Option("help", text="Show this help.")
VERSION = Option("version", text="Show the Kafka version that these tools implement.")


class Options:
    """The options of one call."""

    def __init__(
        self, parser: OptionParser, option_values: dict[str, list[str]], words: list[str], order: list[str]
    ) -> None:
        self._parser = parser
        self._option_values = option_values
        self.words = words
        self.order = order
        """The options' names as they stood on the line, each as often as it stood there."""

    def has(self, name: str) -> bool:
        return name in self._option_values

    def parser_has(self, name: str) -> bool:
        """Whether this tool has such an option at all."""
        return self._parser.knows(name)

    def values(self, name: str) -> list[str]:
        default = self._parser.option(name).default
        return self._option_values.get(name) or ([default] if default is not None else [])

    def value(self, name: str) -> str | None:
        values = self.values(name)
        if len(values) > 1:
            raise OptionError(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else None

    def required(self, name: str) -> str:
        value = self.value(name)
        if value is None:
            self._parser.usage(f'Missing required argument "{self._parser.option(name).label}"')
        return value

    def integer(self, name: str) -> int | None:
        return _as_integer(name, self.value(name))

    # ----------------------------------------------------------------------------------------------- checks

    def require(self, *names: str) -> None:
        for name in names:
            if name not in self._option_values:
                self._parser.usage(f'Missing required argument "{self._parser.option(name).label}"')

    def refuse(self, used: str, excluded: Iterable[str]) -> None:
        """Prints the help with exit code 1 if `used` is given together with one of `others`."""
        if used in self._option_values:
            for other in excluded:
                if other in self._option_values:
                    labels = self._parser.option(used).label, self._parser.option(other).label
                    self._parser.usage('Option "{}" can\'t be used with option "{}"'.format(*labels))

    def usage(self, message: str) -> NoReturn:
        self._parser.usage(message)


def is_integer(text: str, bits: int = 32) -> bool:
    """Whether Java's Integer.parseInt (or Long's) takes it."""
    return bool(re.fullmatch(r"[-+]?\d+", text)) and -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1)


def _as_integer(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 1 << 31
    if not -(1 << 31) <= number < 1 << 31:
        raise OptionError(f"Cannot parse argument '{text}' of option {name}")
    return number


class OptionParser:
    def __init__(self, options: Sequence[Option], *, own_help: bool = False) -> None:
        self._options = list(options) if own_help else [*options, HELP, VERSION]
        self._by_name = {name: option for option in self._options for name in option.names}

    def option(self, name: str) -> Option:
        return self._by_name[name]

    def knows(self, name: str) -> bool:
        return name in self._by_name

    def parse(self, arguments: Sequence[str]) -> Options:
        option_values: dict[str, list[str]] = {}
        words: list[str] = []
        order: list[str] = []
        remaining = list(arguments)
        while remaining:
            token = remaining.pop(0)
            if token == "--":  # noqa: S105 - the end of the options, no secret
                words += remaining
                break
            if not token.startswith("-") or token == "-" or (token[1:2].isdigit() and token[1:2] not in self._by_name):  # noqa: S105 - a lone dash
                words.append(token)
                continue
            name, equals, value = token.lstrip("-").partition("=")
            option = self._by_name.get(name)
            if option is None:
                raise OptionError(f"{name} is not a recognized option")
            order.append(option.names[0])
            name_values = option_values.setdefault(name, [])
            for other in option.names:
                option_values[other] = name_values
            if not option.takes_argument:
                continue
            if equals:
                name_values.append(value)
            elif option.optional_argument:
                if remaining and (
                    not remaining[0].startswith("-") or (option.numeric and _NEGATIVE.fullmatch(remaining[0]))
                ):
                    name_values.append(remaining.pop(0))
            elif not remaining:
                raise OptionError(f"Option {_label(option)} requires an argument")
            else:
                name_values.append(remaining.pop(0))
        return Options(self, option_values, words, order)

    def usage(self, message: str) -> NoReturn:
        """The message and the help on standard error, exit code 1: as Kafka's tools do it, even for --help."""
        print(message, file=sys.stderr)
        print(self.help_text(), end="", file=sys.stderr)
        raise Exit(1)

    def begin(self, arguments: Sequence[str], about: str, empty: str | None = None) -> Options:
        """Parse; --help and no arguments at all print the help (exit code 1), --version the version (0)."""
        options = self.parse(arguments)
        if not arguments or options.has("help"):
            self.usage(about if arguments or empty is None else empty)
        if options.has("version"):
            print(KAFKA_VERSION)
            raise Exit(0)
        return options

    def help_text(self, width: int = 80) -> str:
        rows = []
        for option in sorted(self._options, key=lambda option: option.name):
            dashes = ", ".join(("-" if len(name) == 1 else "--") + name for name in option.names)
            argument = option.argument if option.optional_argument else f"<{option.argument}>"
            text = option.text + (f" (default: {option.default})" if option.default is not None else "")
            rows.append((f"{dashes} {argument}" if option.takes_argument else dashes, text))
        left = min(max((len(name) for name, _ in rows), default=6), width // 2)
        lines = [f"{'Option':<{left}} {'Description':<{width - left - 1}}", f"{'------':<{left}} -----------"]
        for name, text in rows:
            names = textwrap.wrap(name, left, subsequent_indent="  ") or [""]
            texts = textwrap.wrap(text, width - left - 3, subsequent_indent="  ") or [""]
            for index in range(max(len(names), len(texts))):
                first = names[index] if index < len(names) else ""
                second = texts[index] if index < len(texts) else ""
                lines.append(f"{first:<{left}} {second}".rstrip())
        return "\n".join(lines) + "\n"


def _label(option: Option) -> str:
    return option.name if len(option.names) == 1 else option.label
