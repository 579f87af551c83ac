"""Whether an Avro reader can read a writer, and why not, with the path to each reason.

The rules are Avro's schema resolution. A test compares them with Apache avro's own checker: both must find the
same pairs incompatible. That checker takes 40 s for two unions of 1,000 branches. Each step is spent from a budget; a
pair is compared once.
"""

from __future__ import annotations

from typing import Any

from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.parsed import Incompatibility

MAX_FOUND = 100
"""At most this many reasons are listed; the first one already decides the verdict."""

_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}


_NAMED = frozenset({"record", "error", "enum", "fixed"})
_UNIONS = frozenset({"union", "error_union"})
_Pair = tuple[int, int]


class Explanation:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._shown: dict[_Pair, None] = {}
        """Pairs that hold if those do that are being compared, in the order of their comparison."""
        self._refuted: set[_Pair] = set()
        self._explained: dict[_Pair, Incompatibility] = {}
        self._quiet = False
        self._branches: dict[int, dict[str, list[Any]]] = {}
        self._alias_names: dict[int, set[str]] = {}

    def holds(self, reader: Any, writer: Any) -> bool:
        """Whether the reader can read the writer, without the reasons."""
        quiet, self._quiet = self._quiet, True
        try:
            return not self.compare(reader, writer, "")
        finally:
            self._quiet = quiet

    def compare(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        self._budget.spend()
        pair = (id(reader), id(writer))
        if pair in self._shown:
            return []
        if pair in self._explained:
            # Explained elsewhere in full: here its first reason only.
            return [self._explained[pair]]
        if self._quiet and pair in self._refuted:
            return [_REFUTED]
        mark = len(self._shown)
        self._shown[pair] = None
        reasons = self._compare(reader, writer, path)[:MAX_FOUND]
        if reasons:
            while len(self._shown) > mark:
                self._shown.popitem()
            self._refuted.add(pair)
            if not self._quiet:
                self._explained[pair] = reasons[0]
        return reasons

    def _compare(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        if writer.type in _UNIONS:
            return self._from_union(reader, writer, path)
        if reader.type in _UNIONS:
            if any(self.holds(branch, writer) for branch in self._candidates(reader, writer)):
                return []
            text = f"the union at path {path} has no branch for {_name(writer)}"
            return [_reason("MISSING_UNION_BRANCH", path, text)]
        if reader.type != writer.type:
            if writer.type in _PROMOTIONS.get(reader.type, set()):
                return []
            text = f"the type {_name(reader)} at path {path} does not match the type {_name(writer)}"
            return [_reason("TYPE_MISMATCH", path, text)]
        if reader.type == "array":
            return self.compare(reader.items, writer.items, f"{path}items/")
        if reader.type == "map":
            return self.compare(reader.values, writer.values, f"{path}values/")
        if reader.type in _NAMED:
            return self._named(reader, writer, path)
        return []

    def _candidates(self, union: Any, writer: Any) -> list[Any]:
        """The branches that might read the writer: of named types, those of its name or with an alias for it."""
        branches_by_name = self._branches.get(id(union))
        if branches_by_name is None:
            self._budget.spend(len(union.schemas))
            branches_by_name = self._branches[id(union)] = {}
            for branch in union.schemas:
                names = (
                    {branch.name, *(f":{alias}" for alias in self._aliases(branch))} if branch.type in _NAMED else {""}
                )
                for name in names:
                    branches_by_name.setdefault(name, []).append(branch)
        if writer.type not in _NAMED:
            return branches_by_name.get("", [])
        return [*branches_by_name.get(writer.name, []), *branches_by_name.get(f":{writer.fullname}", [])]

    def _aliases(self, schema: Any) -> set[str]:
        """Full names, put together once for each schema."""
        full_names = self._alias_names.get(id(schema))
        if full_names is None:
            namespace = schema.fullname.rpartition(".")[0]
            aliases = _listed(schema.props.get("aliases"))
            self._budget.spend(len(aliases))
            full_names = {alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in aliases}
            self._alias_names[id(schema)] = full_names
        return full_names

    def _from_union(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        reasons = []
        for index, branch in enumerate(writer.schemas):
            if reader.type not in _UNIONS:
                reasons.extend(self.compare(reader, branch, path))
            elif not self.holds(reader, branch):
                text = f"the union at path {path} lacks the branch {_name(branch)} that the other schema has"
                reasons.append(_reason("MISSING_UNION_BRANCH", f"{path}{index}", text))
        return reasons

    def _named(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        reasons = []
        if reader.name != writer.name and writer.fullname not in self._aliases(reader):
            text = f"the name {reader.fullname} at path {path}name differs from {writer.fullname} without an alias"
            reasons.append(_reason("NAME_MISMATCH", f"{path}name", text))
        if reader.type == "fixed":
            if reader.size != writer.size:
                text = f"the size {reader.size} at path {path}size differs from {writer.size}"
                reasons.append(_reason("FIXED_SIZE_MISMATCH", f"{path}size", text))
        elif reader.type == "enum":
            self._budget.spend((len(writer.symbols) + len(reader.symbols)) // 4)
            missing = sorted(set(writer.symbols) - set(reader.symbols))[:20]
            if missing and not reader.props.get("default"):
                text = f"the enum at path {path}symbols lacks the symbols {missing} and has no default"
                reasons.append(_reason("MISSING_ENUM_SYMBOLS", f"{path}symbols", text))
        else:
            reasons.extend(self._fields(reader, writer, path))
        return reasons

    def _fields(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        reasons = []
        self._budget.spend(len(writer.fields) + len(reader.fields))
        by_name = {candidate.name: candidate for candidate in writer.fields}
        for index, field in enumerate(reader.fields):
            at = f"{path}fields/{index}/"
            names = (field.name, *_listed(field.props.get("aliases")))
            self._budget.spend(len(names) // 4)
            written = next((by_name[name] for name in names if name in by_name), None)
            if written is not None:
                reasons.extend(self.compare(field.type, written.type, f"{at}type/"))
            elif not field.has_default:
                text = f"the field {field.name} at path {at} has no default value and the other schema lacks it"
                reasons.append(_reason("READER_FIELD_MISSING_DEFAULT_VALUE", at, text))
        return reasons


def _listed(names: Any) -> list[str]:
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _name(schema: Any) -> str:
    return str(getattr(schema, "fullname", None) or schema.type)


def _reason(kind: str, path: str, message: str) -> Incompatibility:
    return Incompatibility(kind, path[:500], message[:500])


_REFUTED = _reason("REFUTED", "", "")
