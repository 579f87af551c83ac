"""The options of Spark's own Kafka source and sink, read and checked in one place.

Spark hands option names over in lower case. Everything under `kafka.` goes to the client, under Kafka's own names. A
value that cannot be right is one UserError that names the option.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.tables.topics import READ_COMMITTED

Bounds = dict[TopicPartition, int]
"""An offset per partition; EARLIEST and LATEST stand for themselves."""
PINS = "ottla.pins"
_STRATEGIES = ("assign", "subscribe", "subscribepattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Where a read begins or ends: one word or time for all partitions, or offsets or times for each."""

    name: str
    word: int | None = None
    timestamp_ms: int | None = None
    offsets: Bounds = field(default_factory=dict)
    timestamps_ms: Bounds = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    client: Mapping[str, str]
    path: str | None
    assign: tuple[TopicPartition, ...]
    subscribe: tuple[str, ...]
    subscribe_pattern: str | None
    starting: Limit
    ending: Limit
    latest_when_no_timestamp: bool
    fail_on_data_loss: bool
    restart_recreated: bool
    """A topic that was created again is read from its beginning, instead of an error."""
    include_headers: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    isolation_level: int
    pins: str | None
    """A folder in a checkpoint that fixes where a batch read ends, for each batch of that checkpoint's query."""

    @property
    def what(self) -> str:
        return self.subscribe_pattern or ",".join(self.subscribe) or ",".join(map(str, self.assign))


def read_options(spark_options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    options = {name.lower(): value for name, value in spark_options.items()}
    client = client_options(options)
    chosen = [name for name in _STRATEGIES if name in options]
    if len(chosen) != 1:
        raise UserError("give exactly one of the options subscribe, subscribePattern and assign")
    if "path" not in options and not client.get("bootstrap.servers"):
        raise UserError("the option kafka.bootstrap.servers is missing: give it HOST:PORT of a broker")
    if streaming and any(name.startswith("ending") for name in options):
        raise UserError("ending offsets have no meaning in a stream: leave them out or read with spark.read")
    if "auto.offset.reset" in client:
        raise UserError("kafka.auto.offset.reset is not supported: use startingOffsets")
    subscribe = tuple(part.strip() for part in options.get("subscribe", "").split(",") if part.strip())
    if "subscribe" in options and not subscribe:
        raise UserError("the option subscribe names no topic")
    starting = _limit(options, "starting", LATEST if streaming else EARLIEST)
    ending = _limit(options, "ending", LATEST)
    if not streaming and LATEST in {starting.word, *starting.offsets.values()}:
        raise UserError("startingOffsets latest has no meaning in a batch read: everything would be before it")
    if ending.word == EARLIEST:
        raise UserError("endingOffsets earliest has no meaning: nothing is before it")
    least, most = whole(options, "minoffsetspertrigger"), whole(options, "maxoffsetspertrigger")
    if streaming and least is not None and most is not None and least > most:
        raise UserError(f"minOffsetsPerTrigger ({least}) is larger than maxOffsetsPerTrigger ({most})")
    return ReadOptions(
        client=client,
        path=options.get("path"),
        assign=_assign(options["assign"]) if "assign" in options else (),
        subscribe=subscribe,
        subscribe_pattern=options.get("subscribepattern"),
        starting=starting,
        ending=ending,
        latest_when_no_timestamp=_strategy(options),
        fail_on_data_loss=boolean(options, "failondataloss", default=True),
        restart_recreated=_recreated(options),
        include_headers=boolean(options, "includeheaders", default=False),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(options.get("maxtriggerdelay", "15m")),
        min_partitions=whole(options, "minpartitions"),
        max_records_per_partition=whole(options, "maxrecordsperpartition"),
        isolation_level=READ_COMMITTED if client.get("isolation.level") == "read_committed" else 0,
        pins=options.get(PINS.lower()),
    )


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """The `kafka.*` options without their prefix."""
    return {name[6:]: value for name, value in options.items() if name.lower().startswith("kafka.")}


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise UserError(f"the option {name} is true or false, not {text!r}")
    return text.lower() == "true"


def whole(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number <= 0:
        raise UserError(f"the option {name} is a number above 0, not {text!r}")
    return number


def _limit(options: Mapping[str, str], side: str, default: int) -> Limit:
    """Spark's precedence: one timestamp for all, then timestamps, then offsets."""
    name = f"{side}Offsets"
    if (text := options.get(f"{side}timestamp")) is not None:
        return Limit(name=f"{side}Timestamp", timestamp_ms=_number(f"{side}Timestamp", text))
    if (text := options.get(f"{side}offsetsbytimestamp")) is not None:
        stamps = _per_partition(f"{side}OffsetsByTimestamp", text)
        if any(stamp < 0 for stamp in stamps.values()):
            raise UserError(f"{side}OffsetsByTimestamp holds times in milliseconds from 0")
        return Limit(name=f"{side}OffsetsByTimestamp", timestamps_ms=stamps)
    text = options.get(f"{side}offsets")
    if text is None:
        return Limit(name=name, word=default)
    if text.strip().lower() in {"earliest", "latest"}:
        return Limit(name=name, word=EARLIEST if text.strip().lower() == "earliest" else LATEST)
    offsets = _per_partition(name, text)
    if any(offset < EARLIEST for offset in offsets.values()):
        raise UserError(f"{name} holds offsets from 0, -2 (earliest) and -1 (latest)")
    if side == "ending" and EARLIEST in offsets.values():
        raise UserError("endingOffsets -2 (earliest) has no meaning: nothing is before it")
    return Limit(name=name, offsets=offsets)


def _per_partition(name: str, text: str) -> Bounds:
    try:
        offsets = json.loads(text)
        return {TopicPartition(t, int(p)): int(o) for t, parts in offsets.items() for p, o in parts.items()}
    except (ValueError, AttributeError, TypeError):
        example = '{"topic":{"0":23,"1":-2}}'
        raise UserError(f"{name} is not a word or JSON like {example}: {text!r}") from None


def _assign(text: str) -> tuple[TopicPartition, ...]:
    try:
        topics = json.loads(text)
        partitions = tuple(
            TopicPartition(topic, int(partition)) for topic, parts in topics.items() for partition in parts
        )
    except (ValueError, AttributeError, TypeError):
        partitions = ()
    if not partitions:
        raise UserError(f'assign is not JSON like {{"topic":[0,1]}}: {text!r}')
    return partitions


def _strategy(options: Mapping[str, str]) -> bool:
    text = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if text not in {"error", "latest"}:
        raise UserError(f"startingOffsetsByTimestampStrategy is error or latest, not {text!r}")
    return text == "latest"


def _recreated(options: Mapping[str, str]) -> bool:
    text = options.get("ontopicrecreated", "fail").lower()
    if text not in {"fail", "restart"}:
        raise UserError(f"onTopicRecreated is fail or restart, not {text!r}")
    return text == "restart"


def _number(name: str, text: str) -> int:
    try:
        timestamp_ms = int(text)
    except ValueError:
        timestamp_ms = -1
    if timestamp_ms < 0:  # the protocol has other meanings for those
        raise UserError(f"{name} is a time in milliseconds from 0, not {text!r}")
    return timestamp_ms


def _duration_ms(text: str) -> int:
    units = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    plain = text.strip().lower()
    digits = plain.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = plain[len(digits) :].strip() or "ms"
    if not digits.isdecimal() or not digits.isascii() or unit not in units:
        raise UserError(f"maxTriggerDelay is a time like 15m or 30s, not {text!r}")
    return int(digits) * units[unit]
