"""`log.dirs` in another order, and one directory more: partitions stay where they are; the metadata log must too."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.robustness.server_process import CLUSTER_ID, ServerProcess, ottla, write_properties


def configure(server: ServerProcess, *dirs: Path) -> None:
    server.properties["log.dirs"] = ",".join(map(str, dirs))
    write_properties(server.file, server.properties)


def test_the_metadata_log_is_not_begun_anew_in_another_directory(tmp_path: Path) -> None:
    """In Apache Kafka's words. Said where the metadata log is, the order of the others does not matter."""
    first, second, third = (tmp_path / name for name in "abc")
    server = ServerProcess(tmp_path / "node")
    server.properties["log.dirs"] = f"{first},{second}"
    with server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(60)
        server.kill()
        configure(server, second, first)
        refused = ottla("server", "start", server.file, timeout=60)
        assert refused.returncode != 0
        assert "Found unexpected metadata location in data directory" in refused.stderr
        assert not (second / "__cluster_metadata-0").exists()
        server.properties["metadata.log.dir"] = str(first)
        configure(server, third, second, first)
        done = ottla(
            "storage", "format", "-t", CLUSTER_ID, "-c", server.file, "--ignore-formatted", "--no-initial-controllers"
        )
        assert done.returncode == 0, done.stderr
        server.start()
        reader = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
        assert [reader.get_watermark_offsets(TopicPartition("t", index), timeout=60) for index in range(4)] == [
            (0, 0)
        ] * 4
        reader.close()
        assert sorted(path.name for path in first.glob("t-*")) != []
        assert [path.name for path in third.glob("t-*")] == []
