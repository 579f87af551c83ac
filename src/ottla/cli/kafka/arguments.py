"""Sub-commands as the other half of Kafka's tools parse them (argparse4j): its messages and exit code 1."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import NoReturn

from ottla.cli.kafka.options import KAFKA_VERSION, Exit


class ArgumentError(Exception):
    """Some tools print the parser's complaint in words of their own."""


class ToolParser(argparse.ArgumentParser):
    """`quiet` parsers raise ArgumentError instead of printing usage and complaint."""

    def __init__(self, prog: str, about: str = "", *, quiet: bool = False, top: str | None = None) -> None:
        super().__init__(prog=prog, description=about, add_help=True, allow_abbrev=False)
        self._quiet = quiet
        self._top = top or prog

    def command(self, commands: argparse._SubParsersAction[ToolParser], name: str, about: str) -> ToolParser:
        made = commands.add_parser(name, prog=f"{self.prog} {name}", help=about)
        made.description, made._quiet, made._top = about, self._quiet, self._top
        return made

    def commands(self, metavar: str | None = None) -> argparse._SubParsersAction[ToolParser]:
        return self.add_subparsers(dest="command", required=True, metavar=metavar, parser_class=ToolParser)

    def error(self, message: str) -> NoReturn:
        words = java_words(message)
        if self._quiet:
            raise ArgumentError(words)
        self.print_usage(sys.stderr)
        print(f"{self._top}: error: {words}", file=sys.stderr)
        raise Exit(1)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            print(message, end="", file=sys.stderr)
        raise Exit(status)


def java_words(message: str) -> str:
    if match := re.match(r"the following arguments are required: (.+)", message):
        missing = match[1].split(", ")
        if any(not name.startswith("-") for name in missing):
            return "too few arguments"
        return f"argument {_long_first(missing[0])} is required"
    if match := re.match(r"one of the arguments (.+) is required", message):
        return f"one of the arguments {match[1]} is required"
    if match := re.match(r"unrecognized arguments: (.+)", message):
        return f"unrecognized arguments: '{match[1].split()[0]}'"
    if match := re.match(r"(?:argument [^:]+: )?invalid choice: '?([^']*?)'? \(choose from (.*)\)", message):
        choices = ", ".join(f"'{word.strip(chr(39))}'" for word in match[2].split(", "))
        return f"invalid choice: '{match[1]}' (choose from {choices})"
    return message


def _long_first(name: str) -> str:
    """`-t/--cluster-id` as Java lists it, long name first."""
    return "/".join(sorted(name.split("/"), key=lambda part: not part.startswith("--")))


def java_integer(bits: int = 32) -> Callable[[str], int]:
    def convert(text: str) -> int:
        kind = "Integer" if bits == 32 else "Long"
        if not re.fullmatch(r"[-+]?\d+", text) or not -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1):
            raise argparse.ArgumentTypeError(f"could not convert '{text}' to {kind} ({bits} bit integer)")
        return int(text)

    return convert


class PrintVersion(argparse.Action):
    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help="Show Kafka's version.")

    def __call__(self, *unused: object) -> None:
        del unused
        print(KAFKA_VERSION)
        raise Exit(0)
