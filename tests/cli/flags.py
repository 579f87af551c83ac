"""Every flag of a tool with how many values it takes, read from what the tool prints as its help.

Both parsers that Kafka's tools use print tables: jopt-simple "Option  Description" with `--name <value>`, argparse4j
"optional arguments:" with `--name NAME`. Ours print the same shapes, so one reader does for both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.cli.tools import Printed

Runs = Callable[[str, list[str]], Printed]

SUBCOMMANDS = {
    "cluster": ("cluster-id", "unregister", "list-endpoints"),
    "features": ("describe", "upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies"),
    "metadata-quorum": ("describe", "add-controller", "remove-controller"),
    "storage": ("info", "format", "random-uuid", "version-mapping", "feature-dependencies"),
    "transactions": (
        "list", "describe", "describe-producers", "abort", "find-hanging", "forceTerminateTransaction",
    ),
}  # fmt: skip
ASKED_WITH = {"e2e-latency": []}
"""Tools that show their help for something else than --help."""
_TABLE = re.compile(r"^Option (?:\(.*\))? +Description", re.MULTILINE)
_NAMES = re.compile(r"(?<![\w.-])--?[A-Za-z][\w.-]*")


def flags(run: Runs, tool: str) -> list[str]:
    """`--topic 1` for a flag with a value, 0 for none, ? for one that may be left out, + for several."""
    found = _read(run(tool, ASKED_WITH.get(tool, ["--help"])))
    for command in SUBCOMMANDS.get(tool, ()):
        found |= {f"{command} {flag}" for flag in _read(run(tool, [command, "--help"]))}
    return sorted(found)


def _read(printed: Printed) -> set[str]:
    text = printed.out + printed.err
    specs = _jopt_specs(text) if _TABLE.search(text) else _argparse_specs(text)
    return {flag for spec in specs for flag in _flags_of(spec)}


def _jopt_specs(text: str) -> Iterator[str]:
    lines = iter(text.splitlines())
    column = next(line.index("Description") for line in lines if _TABLE.match(line))
    spec = ""
    for line in lines:
        left = line[:column].rstrip().removeprefix("* ")
        if left.startswith("-") and not left.startswith("------"):
            yield spec
            spec = left
        elif spec and left:
            spec += " " + left.strip()
    yield spec


def _argparse_specs(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if match := re.match(r"  (-\S.*?)(?:\s{2,}.*)?$", line):
            yield match[1]


def _flags_of(spec: str) -> Iterator[str]:
    value = re.search(r"[<\[]|(?<= )[^\s-]", spec)
    names = _NAMES.findall(spec[: value.start()] if value and spec[value.start()] in "<[" else spec)
    if value is None:
        arity = "0"
    elif "..." in spec and "<" not in spec:
        arity = "+"
    else:
        arity = "?" if spec[value.start()] == "[" else "1"
    for name in names:
        yield f"{name} {arity}"


def main() -> None:
    from pathlib import Path

    from tests.cli.tools import JAVA, javas

    lines = [f"{tool} {flag}\n" for tool in sorted(JAVA) for flag in flags(javas, tool)]
    Path(__file__).with_name("flags.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
