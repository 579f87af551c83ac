"""What real clients and Kafka's own tools do against real Kafka, for record_golden: as many APIs as they have.

A step that fails is printed and passed over: the aim is bytes of many kinds, not a check of the clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.protocol.recording_proxy import OUR_CLIENT_ID
from tests.support.frames import RawConnection
from tests.support.kafka_tools import run_tool

from ottla.protocol.api import encode_request, request_class
from ottla.protocol.generated.index import APIS

TOOLS = "org.apache.kafka.tools."


def step(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - recorded by hand; whatever a client raises is printed
        where = traceback.extract_tb(error.__traceback__)[-1]
        print(f"  step failed at {where.name}:{where.lineno}: {type(error).__name__}: {str(error)[:200]}")


def tool(name: str, *args: str, stdin: str = "", bootstrap: str) -> None:
    done = run_tool(name, "--bootstrap-server", bootstrap, *args, input=stdin, timeout=40)
    if done.returncode:
        print(f"  {name.rpartition('.')[2]} {' '.join(args)}: {(done.stderr + done.stdout)[-200:]}")


def confluent(bootstrap: str) -> None:
    from confluent_kafka import (
        Consumer,
        ConsumerGroupTopicPartitions,
        ElectionType,
        Producer,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka import admin as a

    config = {"bootstrap.servers": bootstrap}
    admin = a.AdminClient(config)

    def done(futures: Any) -> None:
        for future in futures.values() if isinstance(futures, dict) else [futures]:
            with contextlib.suppress(Exception):
                future.result(10)

    done(admin.create_topics([a.NewTopic("conf", 2, 1, config={"retention.ms": "1000000"}), a.NewTopic("gone", 1, 1)]))
    done(admin.create_partitions([a.NewPartitions("conf", 3)]))
    topic = a.ConfigResource(a.ConfigResource.Type.TOPIC, "conf")
    done(admin.describe_configs([topic]))
    entry = a.ConfigEntry("retention.ms", "5", incremental_operation=a.AlterConfigOpType.SET)
    done(
        admin.incremental_alter_configs(
            [a.ConfigResource(a.ConfigResource.Type.TOPIC, "conf", incremental_configs=[entry])]
        )
    )
    done(
        admin.alter_configs(
            [a.ConfigResource(a.ConfigResource.Type.TOPIC, "conf", set_config={"retention.ms": "900000"})]
        )
    )
    acl = a.AclBinding(
        a.ResourceType.TOPIC,
        "conf",
        a.ResourcePatternType.LITERAL,
        "User:x",
        "*",
        a.AclOperation.READ,
        a.AclPermissionType.ALLOW,
    )
    any_acl = a.AclBindingFilter(
        a.ResourceType.ANY, None, a.ResourcePatternType.ANY, None, None, a.AclOperation.ANY, a.AclPermissionType.ANY
    )
    done(admin.create_acls([acl]))
    done(admin.describe_acls(any_acl))
    done(admin.delete_acls([any_acl]))
    done(admin.describe_topics(TopicCollection(["conf"]), include_authorized_operations=True))
    done(admin.describe_cluster(include_authorized_operations=True))
    done(
        admin.alter_user_scram_credentials(
            [a.UserScramCredentialUpsertion("u", a.ScramCredentialInfo(a.ScramMechanism.SCRAM_SHA_256, 4096), b"pw")]
        )
    )
    done(admin.describe_user_scram_credentials(["u"]))

    producer = Producer({**config, "enable.idempotence": True, "compression.type": "lz4"})
    for n in range(10):
        producer.produce("conf", key=str(n), value=b"v" * n, headers={"h": b"1"})
    producer.flush(10)
    transactional = Producer({**config, "transactional.id": "tx-conf"})
    transactional.init_transactions(15)
    consumer_config = {
        **config,
        "group.id": "g-conf",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    consumer = Consumer(consumer_config)
    consumer.subscribe(["conf"])
    got = consumer.consume(5, 15)
    transactional.begin_transaction()
    transactional.produce("conf", b"in a transaction")
    transactional.send_offsets_to_transaction(
        [TopicPartition("conf", m.partition(), m.offset() + 1) for m in got[-1:]],
        consumer.consumer_group_metadata(),
        15,
    )
    transactional.commit_transaction(15)
    transactional.begin_transaction()
    transactional.produce("conf", b"aborted")
    transactional.flush(5)
    transactional.abort_transaction(15)
    consumer.commit(asynchronous=False)
    consumer.committed([TopicPartition("conf", 0)], 10)
    consumer.offsets_for_times([TopicPartition("conf", 0, 0)], 10)
    consumer.get_watermark_offsets(TopicPartition("conf", 0), 10)
    done(admin.describe_consumer_groups(["g-conf"], include_authorized_operations=True))
    consumer.close()
    with_new_protocol = Consumer({**consumer_config, "group.id": "g-conf-848", "group.protocol": "consumer"})
    with_new_protocol.subscribe(["conf"])
    with_new_protocol.consume(5, 15)
    with_new_protocol.commit(asynchronous=False)
    with_new_protocol.close()
    done(admin.list_consumer_groups())
    done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g-conf")]))
    done(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g-conf", [TopicPartition("conf", 0, 0)])]))
    done(admin.list_offsets({TopicPartition("conf", 0): a.OffsetSpec.latest()}))
    done(admin.delete_records([TopicPartition("conf", 0, 1)]))
    done(admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("conf", 0)]))
    done(admin.delete_consumer_groups(["g-conf"]))
    done(admin.delete_topics(["gone"]))


def aio(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic("aio", 1, 1)])
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip", transactional_id="tx-aio")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait("aio", b"one", key=b"k")
        await producer.stop()
        consumer = AIOKafkaConsumer("aio", bootstrap_servers=bootstrap, group_id="g-aio", auto_offset_reset="earliest")
        await consumer.start()
        await asyncio.wait_for(consumer.getone(), 15)
        await consumer.commit()
        await consumer.stop()
        await admin.list_consumer_groups()
        await admin.describe_consumer_groups(["g-aio"])
        await admin.list_consumer_group_offsets("g-aio")
        await admin.close()

    asyncio.run(run())


def kafka_python(bootstrap: str, api_version: tuple[int, ...] | None) -> None:
    import kafka
    import kafka.admin

    name = "kp" + "".join(map(str, api_version or ()))
    old = {"bootstrap_servers": bootstrap, "api_version": api_version}
    admin = kafka.KafkaAdminClient(**old)
    admin.create_topics([kafka.admin.NewTopic(name, 1, 1)])
    producer = kafka.KafkaProducer(**old, acks="all", compression_type="gzip")
    producer.send(name, b"value", key=b"key").get(10)
    producer.close(5)
    consumer = kafka.KafkaConsumer(
        name, **old, group_id="g-" + name, auto_offset_reset="earliest", consumer_timeout_ms=6000
    )
    next(consumer)
    consumer.commit()
    consumer.offsets_for_times({kafka.TopicPartition(name, 0): 0})
    step(admin.describe_cluster)
    step(lambda: admin.list_consumer_groups() if hasattr(admin, "list_consumer_groups") else admin.list_groups())
    consumer.close()
    admin.close()


def java_tools(b: str) -> None:
    run = [
        (TOOLS + "TopicCommand", ["--create", "--topic", "java", "--partitions", "2", "--replication-factor", "2"], ""),
        (TOOLS + "TopicCommand", ["--describe"], ""),
        (TOOLS + "TopicCommand", ["--alter", "--topic", "java", "--partitions", "3"], ""),
        (TOOLS + "ConsoleProducer", ["--topic", "java", "--compression-codec", "zstd"], "a\nb\nc\n"),
        (TOOLS + "ProducerPerformance", ["--topic", "java", "--num-records", "50", "--record-size", "20", "--throughput", "-1",
            "--transactional-id", "tx-java", "--transaction-duration-ms", "5"], ""),
        (TOOLS + "consumer.ConsoleConsumer", ["--topic", "java", "--from-beginning", "--max-messages", "3", "--timeout-ms", "15000",
            "--group", "g-java"], ""),
        (TOOLS + "consumer.ConsoleConsumer", ["--topic", "java", "--from-beginning", "--max-messages", "3", "--timeout-ms", "15000",
            "--group", "g-java-848", "--consumer-property", "group.protocol=consumer"], ""),
        ("kafka.admin.ConfigCommand", ["--alter", "--entity-type", "groups", "--entity-name", "g-share",
            "--add-config", "share.auto.offset.reset=earliest"], ""),
        (TOOLS + "consumer.ConsoleShareConsumer", ["--topic", "java", "--max-messages", "2", "--timeout-ms", "15000",
            "--group", "g-share"], ""),
        (TOOLS + "consumer.group.ConsumerGroupCommand", ["--describe", "--all-groups"], ""),
        (TOOLS + "consumer.group.ConsumerGroupCommand", ["--list", "--state"], ""),
        (TOOLS + "consumer.group.ConsumerGroupCommand", ["--delete-offsets", "--group", "g-java", "--topic", "java"], ""),
        (TOOLS + "consumer.group.ShareGroupCommand", ["--describe", "--group", "g-share"], ""),
        (TOOLS + "consumer.group.ShareGroupCommand", ["--describe", "--group", "g-share", "--members"], ""),
        (TOOLS + "consumer.group.ShareGroupCommand", ["--reset-offsets", "--group", "g-share", "--topic", "java", "--to-earliest", "--execute"], ""),
        (TOOLS + "consumer.group.ShareGroupCommand", ["--delete-offsets", "--group", "g-share", "--topic", "java"], ""),
        (TOOLS + "consumer.group.ShareGroupCommand", ["--delete", "--group", "g-share"], ""),
        (TOOLS + "GroupsCommand", ["--list"], ""),
        (TOOLS + "GetOffsetShell", ["--topic", "java", "--time", "-3"], ""),
        (TOOLS + "LogDirsCommand", ["--describe"], ""),
        (TOOLS + "MetadataQuorumCommand", ["describe", "--status"], ""),
        (TOOLS + "FeatureCommand", ["describe"], ""),
        (TOOLS + "FeatureCommand", ["upgrade", "--feature", "share.version=1"], ""),
        (TOOLS + "LeaderElectionCommand", ["--election-type", "preferred", "--all-topic-partitions"], ""),
        (TOOLS + "TransactionsCommand", ["list"], ""),
        (TOOLS + "TransactionsCommand", ["describe", "--transactional-id", "tx-java"], ""),
        (TOOLS + "TransactionsCommand", ["describe-producers", "--topic", "java", "--partition", "0"], ""),
        (TOOLS + "BrokerApiVersionsCommand", [], ""),
        (TOOLS + "ClientMetricsCommand", ["--alter", "--name", "m", "--metrics", "org.apache.kafka.consumer.", "--interval", "1000"], ""),
        (TOOLS + "ClientMetricsCommand", ["--list"], ""),
        (TOOLS + "AclCommand", ["--add", "--allow-principal", "User:y", "--operation", "Write", "--topic", "java"], ""),
        (TOOLS + "AclCommand", ["--list"], ""),
        ("kafka.admin.ConfigCommand", ["--describe", "--entity-type", "topics", "--entity-name", "java", "--all"], ""),
        ("kafka.admin.ConfigCommand", ["--alter", "--entity-type", "users", "--entity-name", "q", "--add-config", "producer_byte_rate=1000000"], ""),
        ("kafka.admin.ConfigCommand", ["--describe", "--entity-type", "users"], ""),
        ("kafka.admin.ConfigCommand", ["--alter", "--entity-type", "users", "--entity-name", "q", "--add-config",
            "SCRAM-SHA-256=[iterations=4096,password=pw]"], ""),
        (TOOLS + "consumer.ConsoleConsumer", ["--topic", "java", "--from-beginning", "--timeout-ms", "5000", "--group", "g-metrics"], ""),
    ]  # fmt: skip
    for name, args, stdin in run:
        step(lambda name=name, args=args, stdin=stdin: tool(name, *args, stdin=stdin, bootstrap=b))


def reassign(bootstrap: str, folder: Path) -> None:
    plan = folder / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"conf","partition":0,"replicas":[1,2]}]}')
    name = TOOLS + "reassign.ReassignPartitionsCommand"
    for action in ("--execute", "--verify", "--list"):
        args = [action] if action == "--list" else [action, "--reassignment-json-file", str(plan)]
        step(lambda args=args: tool(name, *args, bootstrap=bootstrap))
        time.sleep(2)


def sweep(port: int, listener: str) -> None:
    """Every API of this listener at every version, with a request of ours that says little: the answers are real."""
    for key, entry in APIS.items():
        if listener not in entry.listeners:
            continue
        for version in range(entry.min_version, entry.max_version + 1):
            request: Any = request_class(key)()
            if hasattr(request, "acks"):
                request.acks = 1
            with contextlib.suppress(OSError, EOFError), RawConnection("127.0.0.1", port, timeout=4) as connection:
                connection.send_raw(b"".join(encode_request(request, version, 1, OUR_CLIENT_ID)))
                connection.read_frame()
