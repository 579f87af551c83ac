"""Encryption at rest: the file against a plain one, torn tails, keys and their rotation, and a node's whole directory."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.env.config.load import load
from ottla.env.seams import File
from ottla.runtime.disk import DiskStorage
from ottla.security.encrypted_file import EncryptedFile
from ottla.security.encryption import FRAME_BYTES, MAGIC, EncryptedStorage
from ottla.security.file_headers import MAX_HEADER_BYTES
from ottla.security.keystore import FILE_NAME, KeyStoreError, MasterKeys, TopicKeyStore, parse_master_keys
from ottla.server.errors import StartupError
from ottla.server.node import Node
from ottla.testing import Broker


def master_line(name: str = "m1", seed: bytes = b"m") -> str:
    return f"{name}:{base64.b64encode(seed * 32).decode()}\n"


def config(tmp_path: Path, **more: str) -> Any:
    return load(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": str(tmp_path),
            **more,
        }
    )


def storage(tmp_path: Path) -> EncryptedStorage:
    keys = tmp_path / "master"
    if not keys.exists():
        keys.write_text(master_line())
    settings = {"ottla.encryption.master.key.file": str(keys)}
    return EncryptedStorage(DiskStorage(), [str(tmp_path)], MasterKeys(config(tmp_path, **settings)))


def segment(tmp_path: Path) -> str:
    (tmp_path / "t-0").mkdir(exist_ok=True)
    return str(tmp_path / "t-0" / "00000000000000000000.log")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3 * FRAME_BYTES)),
        st.tuples(st.just("truncate"), st.integers(0, 6 * FRAME_BYTES)),
        st.tuples(st.just("reopen"), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 6 * FRAME_BYTES)),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_it_behaves_like_a_plain_file(tmp_path_factory: pytest.TempPathFactory, steps: list[Any], seed: int) -> None:
    directory = tmp_path_factory.mktemp("model")
    disk, path = storage(directory), segment(directory)
    file, model = disk.open(path, create=True), b""
    for number, (step, amount) in enumerate(steps):
        if step == "append":
            data = bytes((seed + number + i) % 251 for i in range(min(amount, 997))) * (amount // 997 + 1)
            data = data[:amount]
            file.pwrite(data, len(model))
            model += data
        elif step == "truncate":
            size = min(amount, len(model))
            file.truncate(size)
            model = model[:size]
        elif step == "reopen":
            file.close()
            assert disk.size(path) == len(model)
            file = disk.open(path)
        else:
            assert file.pread(70_000, amount) == model[amount : amount + 70_000]
        assert file.size() == len(model)
    assert file.pread(len(model) + 1, 0) == model
    assert disk.open(path).pread(len(model) + 1, 0) == model


def test_a_torn_tail_costs_the_torn_frame_only(tmp_path: Path) -> None:
    disk, path = storage(tmp_path), segment(tmp_path)
    file = disk.open(path, create=True)
    for number in range(5):
        file.pwrite(bytes([number]) * 1000, number * 1000)
    whole = Path(path).read_bytes()
    frame = (len(whole) - MAX_HEADER_BYTES) // 5
    for cut in range(len(whole) - frame, len(whole)):
        Path(path).write_bytes(whole[:cut])
        torn = disk.open(path)
        assert torn.size() == 4000
        assert torn.pread(9999, 0) == b"".join(bytes([n]) * 1000 for n in range(4))
    torn.pwrite(b"x" * 10, 4000)
    assert disk.open(path).pread(20, 3995) == b"\3" * 5 + b"x" * 10


def test_changed_or_moved_frames_are_not_taken(tmp_path: Path) -> None:
    disk, path = storage(tmp_path), segment(tmp_path)
    file = disk.open(path, create=True)
    file.pwrite(b"a" * 100, 0)
    file.pwrite(b"b" * 100, 100)
    raw = Path(path).read_bytes()
    header = MAX_HEADER_BYTES
    first, second = raw[header : header + 133], raw[header + 133 :]
    Path(path).write_bytes(raw[:header] + second + first)
    assert disk.open(path).pread(200, 0) == b""
    for position in range(header, len(raw), 7):
        changed = bytearray(raw)
        changed[position] ^= 1
        Path(path).write_bytes(changed)
        whole = b"a" * 100 + b"b" * 100
        named = header <= position < header + 5  # length and kind of the first frame: its place tells them again
        assert disk.open(path).pread(200, 0) in ((whole,) if named else (b"", b"a" * 100))


def test_a_damaged_frame_costs_itself_only(tmp_path: Path) -> None:
    """Whatever of a frame is damaged, and also where small frames are damaged together: those behind it are read, and stay."""
    disk, path = storage(tmp_path), segment(tmp_path)
    file, parts = disk.open(path, create=True), [bytes([65 + number]) * (40 + number) for number in range(12)]
    starts = [sum(map(len, parts[:number])) for number in range(13)]
    for start, part in zip(starts, parts, strict=False):
        file.pwrite(part, start)
    raw, plain = Path(path).read_bytes(), b"".join(parts)
    physical = [MAX_HEADER_BYTES + start + number * 33 for number, start in enumerate(starts)]
    for offset in (0, 1, 2, 3, 4, 5, 20, -1):
        changed = bytearray(raw)
        changed[physical[5 if offset < 0 else 4] + offset] ^= 1
        Path(path).write_bytes(changed)
        opened = disk.open(path)
        assert opened.size() == len(plain)
        assert opened.pread(1000, 0) == (plain if offset in range(5) else plain[: starts[4]])
        assert opened.pread(1000, starts[5]) == plain[starts[5] :]
        opened.pwrite(b"next", len(plain))
        assert disk.open(path).pread(1000, starts[5]) == plain[starts[5] :] + b"next"
    Path(path).write_bytes(raw[: physical[3]] + bytes(physical[7] - physical[3]) + raw[physical[7] :])
    opened = disk.open(path)
    assert opened.pread(1000, 0) == plain[: starts[3]]
    assert opened.pread(1000, starts[7]) == plain[starts[7] :]
    opened.truncate(starts[5])
    opened.pwrite(b"next", starts[5])
    assert disk.open(path).pread(4, starts[5]) == b"next"


def test_bytes_that_look_like_frames_stop_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = storage(tmp_path), segment(tmp_path)
    file = disk.open(path, create=True)
    file.pwrite(b"a" * 100, 0)
    with Path(path).open("ab") as planted:
        planted.write(b"\0\0\0\1\1\xff" * 100_000)
    tried: list[int] = []
    unseal = EncryptedFile._unseal

    def counted(self: EncryptedFile, frame: bytes, start: int, kind: int) -> bytes | None:
        tried.append(start)
        return unseal(self, frame, start, kind)

    monkeypatch.setattr(EncryptedFile, "_unseal", counted)
    assert disk.open(path).pread(1000, 0) == b"a" * 100
    assert len(tried) < 11_000


def test_a_corrupt_frame_is_deciphered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks for the first good batch behind it asks for every byte of it."""
    disk, path = storage(tmp_path), segment(tmp_path)
    disk.open(path, create=True).pwrite(bytes(FRAME_BYTES) + b"behind", 0)
    changed = bytearray(Path(path).read_bytes())
    changed[MAX_HEADER_BYTES + 100] ^= 1
    Path(path).write_bytes(changed)
    opened, reads = disk.open(path), []
    inner: File = opened._inner  # type: ignore[attr-defined]  # the disk below the encrypted file
    read = inner.pread
    monkeypatch.setattr(opened, "_inner", inner)
    monkeypatch.setattr(type(inner), "pread", lambda _, length, position: reads.append(1) or read(length, position))
    assert all(opened.pread(1000, position) == b"" for position in range(1000))
    assert len(reads) == 1
    assert opened.pread(1000, FRAME_BYTES) == b"behind"


def test_plain_files_stay_readable(tmp_path: Path) -> None:
    path = segment(tmp_path)
    Path(path).write_bytes(b"written before encryption")
    file = storage(tmp_path).open(path)
    assert file.pread(100, 0) == b"written before encryption"


def test_torn_headers_and_zeros_do_not_make_a_file_plain(tmp_path: Path) -> None:
    """What a power cut leaves of a new segment; what is written there next is encrypted."""
    path = segment(tmp_path)
    for left in (MAGIC[:5], MAGIC + b"\1\0", bytes(7), bytes(200)):
        Path(path).write_bytes(left)
        file = storage(tmp_path).open(path)
        assert file.size() == 0
        file.pwrite(b"SECRET", 0)
        file.close()
        assert b"SECRET" not in Path(path).read_bytes()
        assert storage(tmp_path).read_bytes(path) == b"SECRET"


@pytest.mark.timeout(180)
def test_switched_on_over_data_that_is_there(tmp_path: Path) -> None:
    """The first start begins new segments: nothing that is written from then on is plain, and all is read."""

    def write(broker: Broker, value: bytes) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", value, partition=0)
        assert producer.flush(30) == 0

    with Broker(directory=tmp_path / "node") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        write(broker, b"PLAIN-ONE")
        admin.create_topics([NewTopic("plain-name", 1, 1)])["plain-name"].result(20)
    (tmp_path / "master").write_text(master_line())
    encrypting = {"ottla.encryption.master.key.file": str(tmp_path / "master")}
    with Broker(directory=tmp_path / "node", properties=encrypting) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("secret-name", 1, 1)])["secret-name"].result(20)
        write(broker, b"SECRET-TWO")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        found = consumer.consume(2, 30)
        consumer.close()
        assert [message.value() for message in found] == [b"PLAIN-ONE", b"SECRET-TWO"]
    files = b"".join(path.read_bytes() for path in (tmp_path / "node").rglob("*.log*"))
    assert b"PLAIN-ONE" in files
    assert b"SECRET-TWO" not in files
    assert b"plain-name" in files
    assert b"secret-name" not in files, "the metadata log too begins a new segment"
    with Broker(directory=tmp_path / "node", properties=encrypting) as broker:
        names = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=20).topics
        assert {"t", "plain-name", "secret-name"} <= names.keys()


def test_a_new_master_key_wraps_the_topic_keys_again_without_a_restart(tmp_path: Path) -> None:
    disk, path = storage(tmp_path), segment(tmp_path)
    disk.open(path, create=True).pwrite(b"before", 0)
    keys_file = tmp_path / FILE_NAME
    assert '"master": "m1"' in keys_file.read_text()
    (tmp_path / "master").write_text(master_line("m2", b"n") + master_line())
    (tmp_path / "u-0").mkdir()
    disk.open(str(tmp_path / "u-0" / "00000000000000000000.log"), create=True).pwrite(b"after", 0)
    assert '"master": "m1"' not in keys_file.read_text()
    (tmp_path / "master").write_text(master_line("m2", b"n"))
    assert storage(tmp_path).read_bytes(path) == b"before"
    (tmp_path / "master").write_text(master_line("m2", b"wrong-key"[:1]))
    with pytest.raises(KeyStoreError, match=r"did not (write|wrap)"):
        storage(tmp_path).read_bytes(path)


def test_without_the_key_of_its_topic_a_file_is_gone(tmp_path: Path) -> None:
    disk, path = storage(tmp_path), segment(tmp_path)
    disk.open(path, create=True).pwrite(b"to be forgotten", 0)
    disk.renew_key(str(tmp_path), "t")
    disk.destroy_old_keys(str(tmp_path), "t")
    assert storage(tmp_path).read_bytes(path) == b"to be forgotten", "a file that is in the log keeps its own key"
    Path(path).rename(f"{path}.deleted")
    disk.destroy_old_keys(str(tmp_path), "t")
    Path(f"{path}.deleted").rename(path)
    with pytest.raises(OSError, match="cannot be read"):
        storage(tmp_path).open(path)


def test_master_keys_from_the_environment_and_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TEST_KEY", master_line())
    found = MasterKeys(config(tmp_path, **{"ottla.encryption.master.key.env": "OTTLA_TEST_KEY"}))
    assert found.current.id == "m1"
    (tmp_path / "k").write_text(master_line("c"))
    found = MasterKeys(config(tmp_path, **{"ottla.encryption.master.key.command": f"cat {tmp_path / 'k'}"}))
    assert found.current.id == "c"
    assert "bW1t" not in repr(found.current)
    for bad in ("", "x", "a:bm90IDMyIGJ5dGVz", "a b:" + master_line()):
        with pytest.raises(KeyStoreError):
            parse_master_keys(bad)
    with pytest.raises(StartupError, match="one of"):
        Node(
            config(
                tmp_path,
                **{"ottla.encryption.master.key.env": "X", "ottla.encryption.master.key.command": "true"},
            )
        )


SECRETS = {"key": b"PLAINTEXTKEY", "value": b"PLAINTEXTVALUE", "header": b"PLAINTEXTHEADER"}


@pytest.mark.timeout(180)
def test_a_scan_of_every_file_finds_no_plaintext(tmp_path: Path) -> None:
    """Keys, values, headers, offsets' metadata, SCRAM users and settings; restarted, read again, unknown without keys."""
    (tmp_path / "master").write_text(master_line())
    properties = {
        "ottla.encryption.master.key.file": str(tmp_path / "master"),
        "log.segment.bytes": str(1 << 20),
        "offsets.topic.num.partitions": "1",
    }
    with Broker(directory=tmp_path / "node", properties=properties) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("sealed", 2, 1)])["sealed"].result(20)
        upsertion = UserScramCredentialUpsertion(
            "PLAINTEXTUSER", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"p"
        )
        admin.alter_user_scram_credentials([upsertion])["PLAINTEXTUSER"].result(20)
        producer = Producer({**servers, "compression.type": "none"})
        for number in range(3000):
            producer.produce(
                "sealed", SECRETS["value"] + b"." * 500, SECRETS["key"] + str(number).encode(),
                headers={"h": SECRETS["header"]},
            )  # fmt: skip
            producer.poll(0)
        assert producer.flush(30) == 0
        assert consumed(servers, "first") == 3000
    found = scan(tmp_path / "node")
    assert found == []
    kinds = {path.suffix or path.name for path in (tmp_path / "node").rglob("*") if path.is_file()}
    assert kinds >= {".log", ".index", ".timeindex", ".checkpoint", "leader-epoch-checkpoint", FILE_NAME}, kinds
    keys = TopicKeyStore(DiskStorage(), str(tmp_path / "node" / "data"), MasterKeys(config(tmp_path, **properties)))
    keys.load()
    for secret in (b"m" * 32, *(key.key for key in keys._by_id.values())):
        shown = [secret, secret.hex().encode(), base64.b64encode(secret)]
        assert not [p for p in (tmp_path / "node").rglob("*") if p.is_file() for s in shown if s in p.read_bytes()]
    sealed = [p for p in (tmp_path / "node").rglob("*.log") if p.stat().st_size]
    assert sealed
    assert all(p.read_bytes().startswith(MAGIC) for p in sealed)
    with Broker(directory=tmp_path / "node", properties=properties) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        assert consumed(servers, "second") == 3000
    (tmp_path / "master").write_text(master_line("m1", b"q"))
    with pytest.raises(StartupError, match=r"did not (write|wrap)"):
        Broker(directory=tmp_path / "node", properties=properties).start()


def scan(directory: Path) -> list[str]:
    words = [*SECRETS.values(), b"PLAINTEXTUSER"]
    return [
        f"{path}: {word!r}"
        for path in directory.rglob("*")
        if path.is_file()
        for word in words
        if word in path.read_bytes()
    ]


def consumed(servers: dict[str, str], group: str) -> int:
    consumer = Consumer({**servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["sealed"])
    count = 0
    for _ in range(300):
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            assert message.value().startswith(SECRETS["value"])
            count += 1
        if count >= 3000:
            break
    consumer.close()
    return count


def test_the_scan_can_fail(tmp_path: Path) -> None:
    """Without encryption the same scan finds everything."""
    with Broker(directory=tmp_path / "node") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("open", SECRETS["value"], SECRETS["key"], headers={"h": SECRETS["header"]})
        assert producer.flush(20) == 0
    assert len(scan(tmp_path / "node")) == 3
