"""The row and the class: a setting is declared once, as an attribute of a `Settings` class, and everything reads that.

    class LogSettings(Settings):
        __slots__ = ()
        log_segment_bytes: int = setting(INT, 1 << 30, at_least(1 << 20), "Size at which ...", mode=CLUSTER)

The attribute's name is Kafka's with dots turned into underscores. A group class only declares; the class that is
instantiated inherits its groups and adds `__slots__ = slots_of(...)`, whose descriptors hide the rows. No code is
generated (a dataclass of 360 fields would take longer to build than the server may take to start), yet instances are
frozen, slotted, keyword-only and typed. Constructing checks nothing: values that come from outside go through the
parser, values from code are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, ClassVar, Final, NamedTuple, Self, dataclass_transform

from .checks import Check


class Kind(IntEnum):
    """A setting's type; the numbers are those of DescribeConfigs' ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.SHORT, Kind.LONG
DOUBLE, LIST, CLASS, PASSWORD = Kind.DOUBLE, Kind.LIST, Kind.CLASS, Kind.PASSWORD

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"

READ_ONLY: Final = "read-only"
PER_BROKER: Final = "per-broker"
CLUSTER: Final = "cluster-wide"

USED: Final = "used"


class Required:
    """The default of a setting that must be given."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = Required()

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class Synonym(NamedTuple):
    """A server property that gives a topic or group setting its default; `factor` turns hours or minutes into ms."""

    name: str
    factor: int = 1


class Setting(NamedTuple):
    name: str
    kind: Kind
    default: Any
    check: Check | None
    doc: str
    importance: str = MEDIUM
    mode: str = READ_ONLY
    effect: str = USED
    """`used`, or `no effect here: ` and the reason."""
    synonyms: tuple[Synonym, ...] = ()
    """Most specific first."""
    internal: bool = False
    """Accepted, and shown by DescribeConfigs only where it is set."""
    undeclared: bool = False
    """Read by a plug-in of Kafka's but not in its table: DescribeConfigs takes it for an unknown name."""
    convert: Callable[[Any], Any] | None = None
    """From the parsed value to the attribute's type, where a list is better kept as a set."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def used(self) -> bool:
        return self.effect == USED

    def typed(self, value: Any) -> Any:
        return value if self.convert is None or value is None else self.convert(value)


def setting(
    kind: Kind,
    default: Any,
    check: Check | None,
    doc: str,
    *,
    importance: str = MEDIUM,
    mode: str = READ_ONLY,
    effect: str = USED,
    synonyms: tuple[Synonym, ...] = (),
    internal: bool = False,
    undeclared: bool = False,
    convert: Callable[[Any], Any] | None = None,
) -> Any:
    """A row without a name; the class that declares the row sets the name."""
    return Setting("", kind, default, check, doc, importance, mode, effect, synonyms, internal, undeclared, convert)


def no_effect(reason: str) -> str:
    return f"no effect here: {reason}"


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings:
    """Frozen values of a group of settings, and the table they come from."""

    __slots__ = ()

    TABLE: ClassVar[dict[str, Setting]] = {}
    """Kafka's name -> row, of this class and its bases, in the order of declaration."""
    _ROWS: ClassVar[list[tuple[str, Setting]]] = []
    """The same rows with their attributes."""

    def __init_subclass__(cls) -> None:
        table: dict[str, Setting] = {}
        for base in cls.__bases__:
            table.update(getattr(base, "TABLE", {}))
        for attribute, row in list(vars(cls).items()):
            if type(row) is Setting:
                name = attribute.replace("_", ".")
                table[name] = named = Setting(name, *row[1:])
                setattr(cls, attribute, named)
        cls.TABLE = table
        cls._ROWS = [(row.attribute, row) for row in table.values()]

    def __init__(self, **values: Any) -> None:
        put = object.__setattr__
        for attribute, row in self._ROWS:
            if attribute in values:
                put(self, attribute, values.pop(attribute))
            elif row.default is REQUIRED:
                raise TypeError(f"{type(self).__name__} needs {attribute}")
            else:
                put(self, attribute, row.typed(row.default))
        if values:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(values))}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; {name} cannot be deleted")

    def replace(self, **changes: Any) -> Self:
        return type(self)(**{**dict(self.items()), **changes})

    def items(self) -> Iterator[tuple[str, Any]]:
        """(attribute, value) of every setting."""
        return ((attribute, getattr(self, attribute)) for attribute, _ in self._ROWS)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(value == getattr(other, attribute) for attribute, value in self.items())

    def __hash__(self) -> int:
        return hash(tuple(value for _, value in self.items()))

    def __repr__(self) -> str:
        """Only what differs from the default, and never a password."""
        changed = (
            f"{row.attribute}={'[hidden]' if row.kind is PASSWORD else repr(getattr(self, row.attribute))}"
            for row in self.TABLE.values()
            if row.default is REQUIRED or getattr(self, row.attribute) != row.typed(row.default)
        )
        return f"{type(self).__name__}({', '.join(changed)})"


def slots_of(*groups: type[Settings]) -> tuple[str, ...]:
    return tuple(row.attribute for group in groups for row in group.TABLE.values())
