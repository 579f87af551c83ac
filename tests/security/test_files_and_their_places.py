"""Encryption at rest knows which file is which: moved, exchanged, planted and changed files are refused, and nothing is cut."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.env.config import TopicConfig
from ottla.env.seams import File
from ottla.log.checkpoints import write_partition_metadata
from ottla.log.log_store import LogStore
from ottla.model.ids import TopicPartition, Uuid
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskStorage
from ottla.security.encryption import EncryptedStorage, UnauthenticFileError
from ottla.security.file_headers import MAX_HEADER_BYTES
from ottla.security.keystore import FILE_NAME, KeyStoreError, MasterKeys
from ottla.server.errors import StartupError
from ottla.server.formatting.storage import ENCRYPTION_KEYS
from ottla.testing import Broker
from tests.log.partition_files import NOW, append
from tests.security.test_encryption import config, master_line, storage
from tests.upgrade.archive import unpack

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
FIRST, SECOND = "00000000000000000000.log", "00000000000000000100.log"
SNAPSHOT = "00000000000000000007-0000000001.checkpoint"
BEFORE_PLACES = Path(__file__).parent.parent / "upgrade" / "recorded" / "625b364" / "encrypted.tar.xz"


def folder(tmp_path: Path, name: str, topic_id: Uuid) -> Path:
    made = tmp_path / name
    made.mkdir(exist_ok=True)
    write_partition_metadata(DiskStorage(), str(made), topic_id)
    return made


def write(disk: EncryptedStorage, path: Path, data: bytes) -> None:
    file = disk.open(str(path), create=True)
    file.pwrite(data, 0)
    file.close()


def exchange(first: Path, second: Path) -> None:
    first_bytes, second_bytes = first.read_bytes(), second.read_bytes()
    first.write_bytes(second_bytes)
    second.write_bytes(first_bytes)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a-0/" + FIRST, "a-1/" + FIRST),  # partitions of a topic
        ("a-0/" + FIRST, "b-0/" + FIRST),  # topics
        ("a-0/" + FIRST, "a-0/" + SECOND),  # places in a log
        ("__cluster_metadata-0/" + FIRST, "__cluster_metadata-0/" + SNAPSHOT),  # kinds
    ],
)
def test_files_that_changed_places_are_refused(tmp_path: Path, first: str, second: str) -> None:
    disk = storage(tmp_path)
    for name, topic_id in (("a-0", A), ("a-1", A), ("b-0", B)):
        folder(tmp_path, name, topic_id)
    (tmp_path / "__cluster_metadata-0").mkdir()
    for path in (first, second):
        write(disk, tmp_path / path, path.encode())
    exchange(tmp_path / first, tmp_path / second)
    for path in (first, second):
        with pytest.raises(UnauthenticFileError, match="moved here"):
            storage(tmp_path).open(str(tmp_path / path))
    exchange(tmp_path / first, tmp_path / second)
    assert storage(tmp_path).read_bytes(str(tmp_path / first)) == first.encode()


def test_a_directory_may_move_and_a_copy_in_progress_becomes_the_log(tmp_path: Path) -> None:
    """The path is no part of a file's place; nor are the suffixes of an exchange of segments."""
    one = tmp_path / "one"
    one.mkdir()
    disk = storage(one)
    future = folder(one, f"a-0.{'0' * 32}-future", A)
    write(disk, future / f"{FIRST}.cleaned", b"data")
    disk.rename(str(future / f"{FIRST}.cleaned"), str(future / f"{FIRST}.swap"))
    disk.rename(str(future / f"{FIRST}.swap"), str(future / FIRST))
    disk.rename(str(future), str(one / "a-0"))
    assert disk.read_bytes(str(one / "a-0" / FIRST)) == b"data"
    shutil.move(one, tmp_path / "elsewhere")
    assert storage(tmp_path / "elsewhere").read_bytes(str(tmp_path / "elsewhere" / "a-0" / FIRST)) == b"data"


def test_without_topic_ids_the_keys_owner_counts(tmp_path: Path) -> None:
    """Folders of Kafka before 2.8, or whose `partition.metadata` is lost."""
    disk = storage(tmp_path)
    for name in ("a-0", "b-0"):
        (tmp_path / name).mkdir()
        write(disk, tmp_path / name / FIRST, name.encode())
    exchange(tmp_path / "a-0" / FIRST, tmp_path / "b-0" / FIRST)
    with pytest.raises(UnauthenticFileError, match="encrypted with a key of b"):
        storage(tmp_path).open(str(tmp_path / "a-0" / FIRST))


def test_every_byte_of_the_header_counts(tmp_path: Path) -> None:
    disk, path = storage(tmp_path), folder(tmp_path, "a-0", A) / FIRST
    write(disk, path, b"data")
    raw = path.read_bytes()
    for position in range(MAX_HEADER_BYTES):
        changed = bytearray(raw)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(OSError, match=r"Nothing was changed|not supported|cannot be read"):
            storage(tmp_path).open(str(path))
        assert path.read_bytes() == changed


def test_a_plain_file_is_accepted_only_if_it_was_there_before(tmp_path: Path) -> None:
    """And not any more when compaction has put an encrypted file into its place."""
    inside = folder(tmp_path, "a-0", A)
    (inside / FIRST).write_bytes(b"from before")
    disk = storage(tmp_path)
    assert disk.read_bytes(str(inside / FIRST)) == b"from before"
    (inside / SECOND).write_bytes(b"planted")
    for look in (disk, storage(tmp_path)):
        with pytest.raises(UnauthenticFileError, match="is not encrypted and was not there"):
            look.open(str(inside / SECOND))
    write(disk, inside / f"{FIRST}.cleaned", b"compacted")
    disk.rename(str(inside / f"{FIRST}.cleaned"), str(inside / f"{FIRST}.swap"))
    assert storage(tmp_path).read_bytes(str(inside / FIRST)) == b"from before", "a crash here"
    disk.rename(str(inside / f"{FIRST}.swap"), str(inside / FIRST))
    assert storage(tmp_path).read_bytes(str(inside / FIRST)) == b"compacted"
    (inside / FIRST).write_bytes(b"from before")
    with pytest.raises(UnauthenticFileError):
        storage(tmp_path).open(str(inside / FIRST))


def test_the_mark_cannot_be_taken_off(tmp_path: Path) -> None:
    inside = folder(tmp_path, "a-0", A)
    write(storage(tmp_path), inside / FIRST, b"data")
    keys = tmp_path / FILE_NAME
    written = json.loads(keys.read_text())
    planted = {"a-0": {SECOND: ""}}
    forgeries = [
        {**written, "before": planted},
        {**written, "version": 1},
        {"version": 1, "keys": written["keys"]},
        {**written, "keys": []},
        {name: value for name, value in written.items() if name != "mac"},
    ]
    for forged in forgeries:
        keys.write_text(json.dumps(forged))
        with pytest.raises(KeyStoreError):
            storage(tmp_path).check()
        assert json.loads(keys.read_text()) == forged
    keys.write_text(json.dumps({**written, "version": 3}))
    with pytest.raises(KeyStoreError, match="newer version"):
        storage(tmp_path).check()


def test_a_folder_without_its_topic_id_does_not_become_another_topics(tmp_path: Path) -> None:
    disk, inside = storage(tmp_path), folder(tmp_path, "a-0", A)
    write(disk, inside / FIRST, b"data")
    (inside / "partition.metadata").unlink()
    disk = storage(tmp_path)
    assert disk.read_bytes(str(inside / FIRST)) == b"data"
    with pytest.raises(UnauthenticFileError, match="not of this folder"):
        write_partition_metadata(disk, str(inside), B)
    write_partition_metadata(disk, str(inside), A)
    assert storage(tmp_path).read_bytes(str(inside / FIRST)) == b"data"


def test_files_of_the_version_before_stay_readable_at_their_places(tmp_path: Path) -> None:
    unpack(BEFORE_PLACES, tmp_path)
    data = next(tmp_path.rglob(FILE_NAME)).parent
    (data / "master").write_text(next(tmp_path.rglob("master")).read_text())
    segments = sorted(path for path in data.glob("*-0/*.log") if path.stat().st_size > MAX_HEADER_BYTES)
    old = [path for path in segments if path.read_bytes()[8] == 1]
    assert len(old) > 2
    disk = storage(data)
    disk.check()
    first, second = old[0], old[1]
    assert disk.read_bytes(str(first))
    exchange(first, second)
    with pytest.raises(UnauthenticFileError, match=r"encrypted in the format of older versions|key of"):
        storage(data).open(str(first))
    exchange(first, second)
    assert storage(data).read_bytes(str(first))


def test_a_first_write_that_fails_leaves_no_file_without_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = storage(tmp_path), folder(tmp_path, "a-0", A) / FIRST
    file = disk.open(str(path), create=True)
    inner: File = file._inner  # type: ignore[attr-defined]  # the disk below the encrypted file
    monkeypatch.setattr(type(inner), "pwrite", _full)
    with pytest.raises(OSError, match="full"):
        file.pwrite(b"data", 0)
    monkeypatch.undo()
    file.pwrite(b"data", 0)
    assert storage(tmp_path).read_bytes(str(path)) == b"data"


def _full(_file: File, _data: bytes, _position: int) -> None:
    raise OSError(errno.ENOSPC, "full")


@pytest.mark.timeout(180)
def test_a_node_refuses_exchanged_planted_and_keyless_directories(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The directory goes offline with a line that names the file. Every file is as it was; put right, everything is read."""
    assert ENCRYPTION_KEYS == FILE_NAME
    (tmp_path / "master").write_text(master_line())
    node, properties = tmp_path / "node", {"ottla.encryption.master.key.file": str(tmp_path / "master")}
    with Broker(directory=node, properties=properties) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(20)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition in (0, 1):
            producer.produce("t", b"of partition %d" % partition, partition=partition)
        assert producer.flush(30) == 0
    first, second = (next(node.rglob(f"t-{number}/{FIRST}")) for number in (0, 1))
    exchange(first, second)
    refused(node, properties, "moved here from elsewhere", capfd)
    exchange(first, second)
    whole = first.read_bytes()
    first.write_bytes(b"plain records" * 20)
    refused(node, properties, "is not encrypted", capfd)
    first.write_bytes(whole)
    before = logs(node)
    with pytest.raises(StartupError, match="no master key is set"):
        Broker(directory=node).start()
    assert logs(node) == before
    with Broker(directory=node, properties=properties) as broker:
        log = broker.node.broker.replicas.get("t", 0).log  # type: ignore[union-attr]  # it is a broker
        assert log.log_end_offset == 1


def refused(node: Path, properties: dict[str, str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = logs(node)
    with contextlib.suppress(StartupError), Broker(directory=node, properties=properties):
        pass
    failed = [line for line in capfd.readouterr().err.splitlines() if "directory.failed" in line]
    assert len(failed) == 1
    assert message in failed[0]
    assert FIRST in failed[0]
    assert logs(node) == before


def logs(node: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(node.rglob("t-*/*.log"))}


def test_a_directory_that_lost_its_keys_is_not_marked_again(tmp_path: Path) -> None:
    """To make a new mark would accept planted files, and new topic keys would take the place of those that a backup brings."""
    inside = folder(tmp_path, "a-0", A)
    write(storage(tmp_path), inside / FIRST, b"data")
    (tmp_path / FILE_NAME).unlink()
    (inside / SECOND).write_bytes(b"planted")
    with pytest.raises(KeyStoreError, match=f"missing, and .*{FIRST} is encrypted"):
        storage(tmp_path).check()
    assert not (tmp_path / FILE_NAME).exists()


def test_plain_files_can_be_refused_for_good(tmp_path: Path) -> None:
    """Someone who exchanges the whole directory takes the mark away; the node's own settings are not in it."""
    planted = folder(tmp_path, "a-0", A) / FIRST
    planted.write_bytes(b"planted")
    (tmp_path / "master").write_text(master_line())
    refusing = {
        "ottla.encryption.master.key.file": str(tmp_path / "master"),
        "ottla.encryption.refuse.plain": "true",
    }
    disk = EncryptedStorage(DiskStorage(), [str(tmp_path)], MasterKeys(config(tmp_path, **refusing)))
    disk.check()
    with pytest.raises(UnauthenticFileError, match="is not encrypted"):
        disk.open(str(planted))
    assert planted.read_bytes() == b"planted"
    assert storage(tmp_path).read_bytes(str(planted)) == b"planted", "without the setting it is from before the mark"


@pytest.mark.parametrize("cut_at", [0, 1])
def test_a_log_that_is_cut_back_into_a_plain_segment_goes_on_encrypted(tmp_path: Path, cut_at: int) -> None:
    """A follower is cut where its new leader says, also below the offset at which encryption was switched on."""
    partition, topic_config = TopicPartition("a", 0), TopicConfig()
    store = LogStore(DiskStorage(), SystemRandom(), [str(tmp_path / "data")])
    store.open_directories()
    log = store.create(partition, A, topic_config, NOW)
    append(log, b"PLAIN")
    append(log, b"PLAIN")
    store.shutdown(NOW)
    (tmp_path / "data" / "master").write_text(master_line())
    disk = storage(tmp_path / "data")
    store = LogStore(disk, SystemRandom(), [str(tmp_path / "data")])
    store.custody = disk
    store.open_directories()
    store.load(lambda _topic: topic_config, NOW)
    loaded = store.get(partition)
    assert loaded is not None
    append(loaded, b"SECRET")
    loaded.truncate_to(cut_at, NOW)
    append(loaded, b"SECRET")
    store.shutdown(NOW)
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*.log"))
    assert b"SECRET" not in files
    assert (b"PLAIN" in files) == bool(cut_at)
    active = f"{'0' * 19}{cut_at}.log"
    (tmp_path / "data" / "a-0" / active).write_bytes(b"planted where a plain file was once")
    with pytest.raises(UnauthenticFileError):
        storage(tmp_path / "data").open(str(tmp_path / "data" / "a-0" / active))
