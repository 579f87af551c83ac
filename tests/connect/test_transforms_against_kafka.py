"""Every transform beside Apache Kafka's own class of its name: the same settings and record in, the same record out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ottla.connect.connector import Change
from ottla.connect.transforms import chain
from ottla.model.user_error import UserError
from tests.support.kafka_tools import SHARED_CLASSES, jvm_command

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180), pytest.mark.usefixtures("requires_apache_kafka")]
RICH = {
    "a": 1,
    "b": "text",
    "c": 2.5,
    "d": None,
    "e": {"f": {"g": 300}, "h": [1]},
    "i": True,
    "j": [],
    "k": "17",
    "l": "",
}
WHOLES = ["17", "-129", "x", "1.5", 300, -129, 70000, 2.9, -1e20, True, False, None, 2**40]
CASES: list[tuple[str, dict[str, str], object]] = [
    *[("Cast$Value", {"spec": f"x:{kind}"}, {"x": value, "y": 1})
      for kind in ("int8", "int16", "int32", "int64", "float64", "boolean", "string") for value in WHOLES],
    *[("Cast$Value", {"spec": kind}, value) for kind in ("int32", "string", "boolean") for value in ("true", "5", 2.5, 1e9, 0.0001)],
    ("Cast$Value", {"spec": "no:int8"}, RICH),
    ("Cast$Value", {"spec": "a:int99"}, RICH),
    ("Cast$Value", {}, RICH),
    ("MaskField$Value", {"fields": "a,b,c,d,e,i,j"}, RICH),
    ("MaskField$Value", {"fields": "b", "replacement": "xxx"}, RICH),
    ("MaskField$Value", {"fields": "a,k", "replacement": "9"}, RICH),
    ("MaskField$Value", {"fields": "a", "replacement": "x"}, RICH),
    ("MaskField$Value", {"fields": "i", "replacement": "x"}, RICH),
    ("MaskField$Value", {"fields": "a"}, "no fields"),
    ("InsertField$Value", {"topic.field": "t", "partition.field": "p", "offset.field": "o!", "static.field": "s",
                           "static.value": "v"}, {"a": 1}),
    ("InsertField$Value", {"static.field": "s", "static.value": "v"}, None),
    ("InsertField$Value", {"static.field": "s", "static.value": "v"}, "no fields"),
    ("ReplaceField$Value", {"include": "a,b", "renames": "a:z"}, RICH),
    ("ReplaceField$Value", {"exclude": "e,j"}, RICH),
    ("Flatten$Value", {}, RICH),
    ("Flatten$Value", {"delimiter": "_"}, RICH),
    ("ExtractField$Value", {"field": "e"}, RICH),
    ("ExtractField$Value", {"field": "nothing"}, RICH),
    ("ExtractField$Value", {"field": "a"}, None),
    ("ExtractField$Value", {}, RICH),
    ("HoistField$Value", {"field": "v"}, "text"),
    ("HoistField$Value", {"field": "v"}, None),
    ("ValueToKey", {"fields": "a,nothing"}, RICH),
    ("HeaderFrom$Value", {"fields": "a,b", "headers": "x,y", "operation": "move"}, RICH),
    ("HeaderFrom$Value", {"fields": "b", "headers": "y", "operation": "copy"}, RICH),
    ("HeaderFrom$Value", {"fields": "a,b", "headers": "y", "operation": "copy"}, RICH),
    ("InsertHeader", {"header": "h", "value.literal": "text"}, RICH),
    ("InsertHeader", {"header": "h"}, RICH),
    ("Filter", {}, RICH),
    *[("RegexRouter", {"regex": regex, "replacement": to}, "v") for regex, to in (
        ("(.*)-(.*)", "$2_$1"), ("topic", "no"), (".*", "$0!"), (".*", "a\\$b"), ("(?<first>t).*", "${first}x"), ("t.*", "a.b"))],
    *[("TimestampRouter", {"timestamp.format": form, "topic.format": "${topic}.${timestamp}"}, "v") for form in (
        "yyyyMMdd", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "yy/M/d h a", "EEE MMM dd", "HH'h'mm", "yyyy-DDD")],
    ("TimestampRouter", {}, "v"),
    *[("TimestampConverter$Value", {"field": "t", "target.type": target, "format": "yyyy-MM-dd HH:mm:ss.SSS", **more}, {"t": at})
      for target, at, more in (
        ("string", 1_700_000_000_123, {}), ("unix", "2023-11-14 22:13:20.123", {}), ("unix", None, {}),
        ("unix", "2023-11-14 22:13:20.123", {"unix.precision": "seconds"}), ("string", 1_700_000_000, {"unix.precision": "seconds"}),
        ("unix", "noon", {}), ("unix", 5, {"unix.precision": "microseconds"}), ("string", -1, {}))],
    ("TimestampConverter$Value", {"target.type": "unix", "format": "yyyy-MM-dd"}, "2023-11-14"),
    ("TimestampConverter$Value", {"target.type": "string"}, 5),
    ("TimestampConverter$Value", {"target.type": "other"}, 5),
]  # fmt: skip


def ours(kind: str, settings: dict[str, str], value: object) -> object:
    config = {
        "transforms": "x",
        "transforms.x.type": kind,
        **{f"transforms.x.{name}": text for name, text in settings.items()},
    }
    change = Change(topic="topic-1", key="k", value=value, partition=2, offset=7, timestamp_ms=1_700_000_000_123)
    try:
        made = chain(config)(change)
    except (UserError, ValueError, TypeError, KeyError):
        return "error"
    if made is None:
        return "dropped"
    headers = [[name, data.decode() if data is not None else "null"] for name, data in made.headers]
    return {"topic": made.topic, "key": made.key, "value": made.value, "headers": headers}


def test_each_transform_equals_kafkas() -> None:
    source = Path(__file__).with_name("Transforms.java")
    given = [{"type": kind, "settings": settings, "key": "k", "value": value} for kind, settings, value in CASES]
    command = jvm_command(
        ("-Xmx128m", "-XX:TieredStopAtLevel=1", SHARED_CLASSES, "-Duser.timezone=UTC"), str(source), log_level="error"
    )
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=120, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    different = [
        (case, mine, found)
        for case, found in zip(CASES, theirs, strict=True)
        if (mine := json.loads(json.dumps(ours(*case)))) != found
    ]
    assert not different, "\n".join(f"{case}\n  ours   {mine}\n  Kafka's {found}" for case, mine, found in different)
