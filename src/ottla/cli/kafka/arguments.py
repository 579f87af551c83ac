"""Sub-commands as the other half of Kafka's tools parse them (argparse4j): its messages and exit code 1."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from ottla.cli.kafka.options import KAFKA_VERSION, Exit


class ArgumentError(Exception):
    """Some tools print the parser's complaint in words of their own."""


class ToolParser(argparse.ArgumentParser):
    """`quiet` parsers raise ArgumentError instead of printing usage and complaint.

    Errors come in the order of argparse4j: first unknown arguments, then the last required argument that is missing.
    """

    def __init__(
        self, prog: str, about: str = "", *, quiet: bool = False, top: str | None = None, help_code: int = 1
    ) -> None:
        super().__init__(prog=prog, description=about, add_help=True, allow_abbrev=False)
        self.quiet = quiet
        self.top = top or prog
        self.help_code = help_code
        self.missing: list[str] = []

    def command(self, commands: argparse._SubParsersAction[ToolParser], name: str, about: str) -> ToolParser:
        made = commands.add_parser(name, prog=f"{self.prog} {name}", help=about)
        made.description, made.quiet, made.top = about, self.quiet, self.top
        made.help_code, made.missing = self.help_code, self.missing
        return made

    def commands(self, metavar: str | None = None) -> argparse._SubParsersAction[ToolParser]:
        return self.add_subparsers(dest="command", required=True, metavar=metavar, parser_class=ToolParser)

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """Unlike parse_args: with Java's order of complaints."""
        self.missing.clear()
        parsed, unknown = self.parse_known_args(arguments)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        if self.missing:
            self.error(self.missing[0])
        return parsed

    def parse_known_args(  # type: ignore[override]  # no namespace but ours comes in
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Also parses sub-commands: reports a missing argument of the outer command before those of the sub-command."""
        options = [action for action in self._actions if action.required and action.option_strings]
        groups = [group for group in self._mutually_exclusive_groups if group.required]
        self._demand(options, groups, required=False)
        try:
            parsed, unknown = super().parse_known_args(args, namespace)
        finally:
            self._demand(options, groups, required=True)
        missing = [action for action in options if getattr(parsed, action.dest, None) is None]
        if missing:
            self.missing.insert(0, f"the following arguments are required: {'/'.join(missing[-1].option_strings)}")
            return parsed, unknown
        for group in groups:
            members = group._group_actions  # noqa: SLF001 - argparse lists the options of a group nowhere else
            if all(getattr(parsed, action.dest, action.default) == action.default for action in members):
                names = " ".join("/".join(action.option_strings) for action in members)
                self.missing.insert(0, f"one of the arguments {names} is required")
        return parsed, unknown

    @staticmethod
    def _demand(
        options: list[argparse.Action], groups: list[argparse._MutuallyExclusiveGroup], *, required: bool
    ) -> None:
        for option in options:
            option.required = required
        for group in groups:
            group.required = required

    def error(self, message: str) -> NoReturn:
        words = java_words(message)
        if self.quiet:
            raise ArgumentError(words)
        self.print_usage(sys.stderr)
        print(f"{self.top}: error: {words}", file=sys.stderr)
        raise Exit(1)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Only --help ends so."""
        if message:
            print(message, end="", file=sys.stderr)
        raise Exit(status or self.help_code)


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
    if match := re.match(r"argument (\S+): not allowed with argument (\S+)", message):
        return f"argument {_long_first(match[1])}: not allowed with argument {_long_first(match[2])}"
    if match := re.match(r"argument (-\S+): (.*)", message, re.DOTALL):
        return f"argument {_long_first(match[1])}: {match[2]}"
    return message


def _long_first(name: str) -> str:
    """`-t/--cluster-id` as Java lists it, long name first."""
    return "/".join(sorted(name.split("/"), key=lambda part: not part.startswith("--")))


def java_integer(bits: int = 32) -> Callable[[str], int]:
    def convert(text: str) -> int:
        kind = "Integer" if bits == 32 else "Long"
        if not re.fullmatch(r"[-+]?\d+", text) or not -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1):
            raise _not_a(kind, text)
        return int(text)

    return convert


def java_double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _not_a("Double", text) from None


def _not_a(kind: str, text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"could not convert '{text}' to {kind} (For input string: \"{text}\")")


class PrintVersion(argparse.Action):
    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help="Show Kafka's version.")

    def __call__(self, *unused: object) -> None:
        del unused
        print(KAFKA_VERSION)
        raise Exit(0)
