"""What `ottla.validate.records` costs: the broker's processor time for each produced record, with it and without.

    python -m bench.validate_records [--batches 2000]

The same batches of 16 KiB are sent again and again over one connection, so that nothing but the broker's part differs.
Processor time counts: it says the same where the machine is busy with other things. Some 30 seconds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.ottla_server import OttlaServer
from tests.interop.settled import await_led
from tests.support.frames import RawConnection

from bench.process import cpu_seconds
from ottla.protocol.compression import LZ4, NONE, ZSTD
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, build_batch

BATCH_BYTES = 16 * 1024
VERSION = 9
CODECS = {"none": NONE, "lz4": LZ4, "zstd": ZSTD}


def cost_us(server: OttlaServer, topic: str, record_bytes: int, codec: int, batches: int) -> float:
    """Microseconds of the broker's processor time for a record."""
    count = max(BATCH_BYTES // (record_bytes + 10), 1)
    value = bytes(range(256)) * (record_bytes // 256 + 1)
    records = [SimpleRecord(1, b"k%d" % n, value[:record_bytes]) for n in range(count)]
    batch = bytes(build_batch(records, compression=codec))
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    pieces: list[bytes] = []
    ProduceRequest(None, 1, 10_000, data).encode(pieces, VERSION)
    body = b"".join(pieces)
    before = 0.0
    with RawConnection("127.0.0.1", server.port) as connection:
        for number in range(batches + 1):
            if number == 1:  # the first loads what it needs
                before = cpu_seconds(server.pid)
            if connection.request(ProduceRequest.API_KEY, VERSION, body, flexible=True) is None:
                raise ConnectionError("the broker closed the connection")
    return (cpu_seconds(server.pid) - before) / batches / count * 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--batches", type=int, default=2000)
    batches = arguments.parse_args().batches
    with tempfile.TemporaryDirectory() as folder:
        server = OttlaServer(Path(folder), properties={"log.retention.ms": "-1"})
        server.start()
        try:
            admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
            for name, value in (("opaque", "false"), ("walked", "true")):
                admin.create_topics([NewTopic(name, 1, 1, config={"ottla.validate.records": value})])[name].result(20)
                await_led(server.bootstrap_servers, name)
            print(f"{'records':>10} {'codec':>6} {'opaque us':>10} {'walked us':>10} {'walk alone':>11}")
            for size in (100, 1000):
                for codec_name, codec in CODECS.items():
                    opaque, walked = (cost_us(server, topic, size, codec, batches) for topic in ("opaque", "walked"))
                    print(f"{size:>8} B {codec_name:>6} {opaque:>10.2f} {walked:>10.2f} {walked - opaque:>11.2f}")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
