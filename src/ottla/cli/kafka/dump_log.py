"""kafka-dump-log: segments, indexes, snapshots and checkpoints as text. Files are only read, and one at a time."""

from __future__ import annotations

import itertools
import json
import struct
import sys
from pathlib import Path

from ottla.cli.kafka.dump_log_decoders import Decoded, decoder_for
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.model.errors import KafkaError
from ottla.protocol.records_header import BatchHeader, crc_matches, iterate_batches
from ottla.protocol.records_walk import Record, iterate_records

PARSER = OptionParser((
    Option("files", "String: file1, file2, ...", "REQUIRED: the files, with commas between them."),
    Option("print-data-log", text="Show keys and values too."),
    Option("deep-iteration", text="Show each record."),
    Option("verify-index-only", text="Only check the index against the log."),
    Option("index-sanity-check", text="Only check that the index is sane."),
    Option("max-message-size", "Integer: size", "Accepted.", "5242880"),
    Option("max-bytes", "Integer: size", "Most bytes of a log to read.", "2147483647"),
    Option("value-decoder-class", "[String]", "Accepted; values are shown as text.", "org.apache.kafka.tools.api.StringDecoder"),
    Option("key-decoder-class", "[String]", "Accepted; keys are shown as text.", "org.apache.kafka.tools.api.StringDecoder"),
    Option("offsets-decoder", text="Decode __consumer_offsets."),
    Option("transaction-log-decoder", text="Decode __transaction_state."),
    Option("cluster-metadata-decoder", text="Decode __cluster_metadata."),
    Option("remote-log-metadata-decoder", text="Accepted."),
    Option("share-group-state-decoder", text="Decode __share_group_state."),
    Option("skip-record-metadata", text="Print only keys and values."),
))  # fmt: skip
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ABOUT = (
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly corrupt "
    "log segment."
)


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, _ABOUT)
        options.require("files")
        for name in options.required("files").split(","):
            print(f"Dumping {name}")
            _dump(name, options)
    except Exit as end:
        return end.code
    except (OptionError, OSError, KafkaError) as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _dump(name: str, options: Options) -> None:
    path = Path(name)
    suffix = path.suffix
    if suffix in {".log", ".checkpoint"}:
        _dump_log(path, options)
    elif suffix == ".index":
        _dump_index(path, options)
    elif suffix == ".timeindex":
        _dump_time_index(path, options)
    elif suffix == ".txnindex":
        for version, producer, first, last, stable in _structs(path, ">hqqqq"):
            print(
                f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} lastStableOffset: {stable}"
            )
    elif suffix == ".snapshot":
        _dump_producers(path)
    else:
        print(f"Ignoring unknown file {name}", file=sys.stderr)


def _dump_log(path: Path, options: Options) -> None:
    data = path.read_bytes()[: options.integer("max-bytes")]
    print(_headline(path))
    decode = decoder_for(options)
    deep = decode is not None or options.has("print-data-log") or options.has("deep-iteration")
    end = 0
    for position, header in iterate_batches(data):
        print(_batch_line(data, position, header))
        end = position + header.size
        if deep:
            for record in iterate_records(data, position):
                print(_record_line(header, record, decode, options))
    if end < len(data):
        print(f"Found {len(data) - end} invalid bytes at the end of {path.name}")


def _headline(path: Path) -> str:
    if path.suffix == ".log":
        return f"Log starting offset: {path.name.split('.')[0].split('-')[0].lstrip('0') or 0}"
    numbers = [part.lstrip("0") or "0" for part in path.stem.split("-")]
    if len(numbers) != 2 or not all(map(str.isdigit, numbers)):
        return "KRaft bootstrap snapshot"
    return f"Snapshot end offset: {numbers[0]}, epoch: {numbers[1]}"


def _batch_line(data: bytes, position: int, header: BatchHeader) -> str:
    horizon = header.delete_horizon_ms
    valid = str(crc_matches(data, position, header.size)).lower()
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence if header.base_sequence >= 0 else -1} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {str(header.is_transactional).lower()} "
        f"isControl: {str(header.is_control).lower()} "
        f"deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
        f"position: {position} {_time_name(header)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {_CODECS[header.compression]} crc: {header.crc & 0xFFFFFFFF} isvalid: {valid}"
    )


def _time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type else "CreateTime"


def _record_line(header: BatchHeader, record: Record, decode: Decoded | None, options: Options) -> str:
    cells = ["|"]
    if not options.has("skip-record-metadata"):
        key_size, value_size = (-1 if part is None else len(part) for part in (record.key, record.value))
        sequence = header.base_sequence + record.offset - header.base_offset if header.base_sequence >= 0 else -1
        keys = ",".join(name for name, _ in record.headers)
        cells.append(
            f"offset: {record.offset} {_time_name(header)}: {record.timestamp} keySize: {key_size} "
            f"valueSize: {value_size} sequence: {sequence} headerKeys: [{keys}]"
        )
    if header.is_control:
        cells.append(_control(record))
    elif decode is not None:
        key, value = decode(record.key, record.value)
        cells += [f"key: {key}"] if key is not None else []
        cells += [f"payload: {value}"] if value is not None else []
    elif options.has("print-data-log"):
        cells += [f"key: {_text(record.key)}"] if record.key is not None else []
        cells += [f"payload: {_text(record.value)}"] if record.value is not None else []
    return " ".join(cell for cell in cells if cell)


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


_CONTROLS = {2: ("LeaderChange", "leader_change_message", "LeaderChangeMessage"),
             3: ("SnapshotHeader", "snapshot_header_record", "SnapshotHeaderRecord"),
             4: ("SnapshotFooter", "snapshot_footer_record", "SnapshotFooterRecord"),
             5: ("KRaftVersion", "k_raft_version_record", "KRaftVersionRecord"),
             6: ("KRaftVoters", "voters_record", "VotersRecord")}  # fmt: skip


def _control(record: Record) -> str:
    _, kind = struct.unpack_from(">hh", record.key or b"\0\0\xff\xff")
    if kind in {0, 1}:
        _, epoch = struct.unpack_from(">hi", record.value or b"\0" * 6)
        return f"endTxnMarker: {'COMMIT' if kind else 'ABORT'} coordinatorEpoch: {epoch}"
    if kind not in _CONTROLS:
        return f"controlType: {kind}"
    from importlib import import_module

    from ottla.cli.kafka.formatters_internal import jsonable

    name, module, cls = _CONTROLS[kind]
    message = getattr(import_module(f"ottla.protocol.generated.{module}"), cls)
    (version,) = struct.unpack_from(">h", record.value or b"\0\0")
    decoded, _ = message.decode(record.value or b"", 0 if "version" in message.__slots__ else 2, version)
    body = jsonable(decoded)
    colon = ":" if name == "LeaderChange" else ""
    return f"{name}{colon} {json.dumps(body, separators=(',', ':'))}"


def _structs(path: Path, layout: str) -> list[tuple[int, ...]]:
    data = path.read_bytes()
    size = struct.calcsize(layout)
    return [struct.unpack_from(layout, data, at) for at in range(0, len(data) - size + 1, size)]


def _base_offset(path: Path) -> int:
    return int(path.stem)


def _dump_index(path: Path, options: Options) -> None:
    rows = _structs(path, ">ii")
    base = _base_offset(path)
    used = rows[: next((index for index, row in enumerate(rows) if index and row[0] == 0), len(rows))]
    if options.has("index-sanity-check"):
        sane = all(first[0] < second[0] for first, second in itertools.pairwise(used))
        print(f"{path} passed sanity check." if sane else f"{path} failed sanity check: offsets do not increase")
        return
    log = path.with_suffix(".log")
    data = log.read_bytes() if log.exists() else b""
    mismatches = []
    for relative, position in used:
        offset = base + relative
        if relative == 0 and position == 0:
            continue
        indexed_batch = next(iterate_batches(data, position), None) if position < len(data) else None
        if indexed_batch is None or indexed_batch[1].last_offset != offset:
            mismatches.append((offset, -1 if indexed_batch is None else indexed_batch[1].last_offset))
        if not options.has("verify-index-only"):
            print(f"offset: {offset} position: {position}")
    for offset, actual in mismatches:
        print(f"  Index offset: {offset}, log offset: {actual}", file=sys.stderr)


def _dump_time_index(path: Path, options: Options) -> None:
    base = _base_offset(path)
    if options.has("index-sanity-check"):
        print(f"{path} passed sanity check.")
        return
    for timestamp, relative in _structs(path, ">qi"):
        if not options.has("verify-index-only") and (timestamp or relative):
            print(f"timestamp: {timestamp} offset: {base + relative}")


def _dump_producers(path: Path) -> None:
    from ottla.protocol.generated.producer_snapshot import ProducerSnapshot

    data = path.read_bytes()
    (version,) = struct.unpack_from(">h", data)
    snapshot, _ = ProducerSnapshot.decode(data, 2, version)
    for row in snapshot.producer_entries:
        first = row.current_txn_first_offset
        print(
            f"producerId: {row.producer_id} producerEpoch: {row.epoch} coordinatorEpoch: {row.coordinator_epoch} "
            f"currentTxnFirstOffset: {f'OptionalLong[{first}]' if first >= 0 else 'OptionalLong.empty'} "
            f"lastTimestamp: {row.timestamp} firstSequence: {max(row.last_sequence - row.offset_delta, -1)} "
            f"lastSequence: {row.last_sequence} lastOffset: {row.last_offset} offsetDelta: {row.offset_delta} timestamp: {row.timestamp}"
        )
