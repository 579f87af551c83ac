"""An Avro schema as a graph of shapes, and what follows from the graph alone: which payloads need no walk.

fastavro recurses in C without a limit and believes every count. `free_bytes` is the length up to which no payload of a
schema can break a limit, so that most records cost one comparison; `avro_walk` looks at the others first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 200
"""Records, arrays and maps inside each other. Protobuf allows 100; 5,000 overflow the stack of fastavro."""
MAX_VALUES = 1_000_000
"""Values in one payload, each field and item counted: about 100 MB of Python objects."""
FREE_VALUES = 10_000
VALUES_A_BYTE = 8
"""A payload of n bytes has at most FREE_VALUES + n * VALUES_A_BYTE values: nulls and empty records take no bytes, so that a
few bytes could name MAX_VALUES of them."""
QUICK_VALUES = 50_000
"""What fastavro reads in a few milliseconds, during which no other thread of the process runs."""
MAX_DECIMAL_BYTES = 4096
"""Of one decimal: Python converts an integer to a decimal in quadratic time (4 kB: 2 ms, 256 kB: 7 s)."""
_MAX_PASSES = 20
ALWAYS = -1
"""`free_bytes` of a schema whose payloads are all walked."""

VARINT, PLAIN, BYTES, DECIMAL, RECORD, ARRAY, MAP, UNION = range(8)
_CONTAINERS = frozenset({RECORD, ARRAY, MAP})
_ENDLESS = 1 << 60
_PLAIN_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class AvroLimitError(ValueError):
    """A schema or a payload beyond the limits, or a payload that is not of its schema."""


class AvroShape:
    """One type of the schema; `size` is that of a PLAIN value in bytes."""

    __slots__ = ("inner", "kind", "min_bytes", "size")

    def __init__(self, kind: int, size: int = 0) -> None:
        self.kind = kind
        self.size = size
        self.inner: list[AvroShape] = []
        self.min_bytes = _ENDLESS


class Shapes:
    """The graph of a schema that fastavro has parsed; names are full in it, and `named` has their definitions."""

    def __init__(self, parsed: Any, named: Mapping[str, Any]) -> None:
        self._named = named
        self._by_name: dict[str, AvroShape] = {}
        self._all: list[AvroShape] = []
        self.root = self._shape(parsed, 0)
        self.free_bytes = self._free_bytes() if self._find_min_bytes() else ALWAYS
        self.quick_bytes = self._quick_bytes()

    def _new(self, kind: int, size: int = 0) -> AvroShape:
        shape = AvroShape(kind, size)
        self._all.append(shape)
        return shape

    def _shape(self, schema: Any, depth: int) -> AvroShape:
        if depth > MAX_DEPTH:
            raise AvroLimitError(f"the schema nests more than {MAX_DEPTH} types")
        if isinstance(schema, list):
            union = self._new(UNION)
            union.inner = [self._shape(branch, depth + 1) for branch in schema]
            return union
        if isinstance(schema, str):
            return self._by_name.get(schema) or self._named_or_primitive(schema, depth)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._shape(kind, depth + 1)
        if kind in {"record", "error"}:
            record = self._by_name[schema["name"]] = self._new(RECORD)
            record.inner = [self._shape(field["type"], depth + 1) for field in schema["fields"]]
            return record
        if kind in {"array", "map"}:
            block = self._new(ARRAY if kind == "array" else MAP)
            block.inner = [self._shape(schema["items" if kind == "array" else "values"], depth + 1)]
            return block
        decimal = schema.get("logicalType") == "decimal"
        if kind == "fixed":
            if not isinstance(schema["size"], int) or schema["size"] < 0:
                raise AvroLimitError(f"the schema has a fixed type of {str(schema['size'])[:50]} bytes")
            if decimal and schema["size"] > MAX_DECIMAL_BYTES:
                raise AvroLimitError(f"the schema has a decimal of more than {MAX_DECIMAL_BYTES} bytes")
            return self._new(PLAIN, schema["size"])
        if kind == "bytes" and decimal:
            return self._new(DECIMAL)
        return self._new(VARINT) if kind == "enum" else self._shape(kind, depth + 1)

    def _named_or_primitive(self, name: str, depth: int) -> AvroShape:
        if name in _PLAIN_SIZES:
            return self._new(PLAIN, _PLAIN_SIZES[name])
        if name in {"int", "long"}:
            return self._new(VARINT)
        if name in {"string", "bytes"}:
            return self._new(BYTES)
        if name not in self._named:
            raise AvroLimitError(f"the schema names an unknown type {name[:200]!r}")
        return self._shape(self._named[name], depth + 1)

    def _find_min_bytes(self) -> bool:
        """Find the fewest bytes of each type; the number stays _ENDLESS for a type that contains itself without an end.

        The passes go from the last type to the first and back in turn. Types inside types need the first direction,
        names of earlier types the second. Returns False when `_MAX_PASSES` passes are not enough: a long chain of types
        must not take quadratic time.
        """
        for _ in range(_MAX_PASSES):
            changed = False
            self._all.reverse()
            for shape in self._all:
                size = min(_min_bytes(shape), _ENDLESS)
                if size < shape.min_bytes:
                    shape.min_bytes = size
                    changed = True
            if not changed:
                return True
        return False

    def _free_bytes(self) -> int:
        endless = any(shape.min_bytes >= _ENDLESS for shape in self._all)
        if endless or any(shape.kind == ARRAY and shape.inner[0].min_bytes == 0 for shape in self._all):
            return ALWAYS
        try:
            depth, values, rate = _Growth().of(self.root)
        except _RecursiveError:
            return ALWAYS
        if depth > MAX_DEPTH or values > FREE_VALUES:
            return ALWAYS
        free = int((MAX_VALUES - values) / rate) if rate else _ENDLESS
        if rate > VALUES_A_BYTE:
            free = min(free, int((FREE_VALUES - values) / (rate - VALUES_A_BYTE)))
        return min(free, MAX_DECIMAL_BYTES) if self._decimals() else free

    def _quick_bytes(self) -> int:
        """The length up to which a payload has no more than QUICK_VALUES."""
        if self.free_bytes == ALWAYS:
            return (QUICK_VALUES - FREE_VALUES) // VALUES_A_BYTE
        _, values, rate = _Growth().of(self.root)
        quick = int((QUICK_VALUES - values) / rate) if rate else _ENDLESS
        return min(quick, 4 * MAX_DECIMAL_BYTES) if self._decimals() else quick

    def _decimals(self) -> bool:
        return any(shape.kind == DECIMAL for shape in self._all)


def _min_bytes(shape: AvroShape) -> int:
    if shape.kind == PLAIN:
        return shape.size
    if shape.kind == RECORD:
        return sum(field.min_bytes for field in shape.inner)
    if shape.kind == UNION:
        return 1 + min((branch.min_bytes for branch in shape.inner), default=_ENDLESS)
    return 1


class _RecursiveError(Exception):
    """The type contains itself."""


class _Growth:
    """Depth and growth of a type that does not contain itself. The growth is a line (values at no bytes, values per
    byte): an upper bound for the number of values in a payload of n bytes.
    """

    def __init__(self) -> None:
        self._costs: dict[int, tuple[int, int, float]] = {}
        self._open: set[int] = set()

    def of(self, shape: AvroShape) -> tuple[int, int, float]:
        cost = self._costs.get(id(shape))
        if cost is not None:
            return cost
        if id(shape) in self._open:
            raise _RecursiveError
        self._open.add(id(shape))
        inner = [self.of(part) for part in shape.inner]
        self._open.discard(id(shape))
        depth = max((cost[0] for cost in inner), default=0) + (shape.kind in _CONTAINERS)
        rate = max((cost[2] for cost in inner), default=0.0)
        values = 1
        if shape.kind == RECORD:
            values += sum(cost[1] for cost in inner)
        elif shape.kind == UNION:
            values += max((cost[1] for cost in inner), default=0)
        elif shape.kind in _CONTAINERS:
            key = shape.kind == MAP
            rate += (inner[0][1] + key) / (shape.inner[0].min_bytes + key)
        # Types that name each other twice double: 2 ** 1,100 values do not fit into a float.
        self._costs[id(shape)] = depth, min(values, _ENDLESS), rate
        return self._costs[id(shape)]
