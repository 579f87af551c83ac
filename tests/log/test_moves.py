"""Moves between log directories: a copy equals the log whatever happens to it, and a kill or an error at every single
step of a promotion leaves one whole log that serves and that the next start finds."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable

import pytest
from tests.coordinator.virtual_world import SeededRandom
from tests.log.partition_files import append, batch, read_all
from tests.log.removed import carried_out
from tests.log.stepped_disk import NOW, Killed, SteppedDisk

from ottla.env.config import TopicConfig
from ottla.log.checkpoints import read_offsets
from ottla.log.log_choice import Assignment
from ottla.log.log_store import LogStore
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, Uuid

PLACE = TopicPartition("a", 0)
OTHER = TopicPartition("b", 0)
TOPIC_ID = Uuid(b"0123456789abcdef")
SOURCE, TARGET, THIRD = "/disk/s", "/disk/t", "/disk/u"
IDS = {SOURCE: Uuid(b"s" * 16), TARGET: Uuid(b"t" * 16), THIRD: Uuid(b"u" * 16)}
CONFIG = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=700, index_interval_bytes=100)
RECORDS = 12


def opened(disk: SteppedDisk, assigned: str = SOURCE, config: TopicConfig = CONFIG) -> LogStore:
    store = LogStore(disk, SeededRandom(random.Random(1).randint(0, 99)), [SOURCE, TARGET, THIRD])
    store.open_directories(IDS)
    store.load(lambda _topic: config, NOW, lambda _tp: Assignment(TOPIC_ID, IDS[assigned]))
    return store


def log_of(store: LogStore, partition: TopicPartition = PLACE) -> PartitionLog:
    log = store.get(partition)
    assert log is not None
    return log


def future_of(store: LogStore) -> PartitionLog:
    future = store.moves.future(PLACE)
    assert future is not None
    return future


def moving(disk: SteppedDisk, *, config: TopicConfig = CONFIG, copied: bool = True) -> LogStore:
    """A log of some epochs in the source, a neighbour in both directories, and a copy in the target."""
    store = opened(disk, config=config)
    log = store.create(PLACE, TOPIC_ID, config, NOW, directory=SOURCE)
    append(store.create(OTHER, TOPIC_ID, config, NOW, directory=TARGET), b"neighbour")
    for number in range(RECORDS):
        append(log, b"%d" % number, producer_id=1, epoch=0, sequence=number, leader_epoch=number // 4)
    log.advance_log_start_offset(2)
    store.checkpoint_deletion()
    store.create_future(PLACE, TARGET, NOW)
    if copied:
        catch_up(store)
    return store


def catch_up(store: LogStore) -> None:
    while not store.moves.copy(PLACE, 300, NOW):
        pass


def state(log: PartitionLog) -> tuple[object, ...]:
    return (
        read_all(log),
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.epochs.entries,
        {producer: (entry.epoch, entry.batches[-1]) for producer, entry in log.producers.producers.items()},
    )


def equal(store: LogStore) -> None:
    catch_up(store)
    assert state(future_of(store)) == state(log_of(store))


# ---------------------------------------------------------------------------------------------------------- the copy


def refetched(log: PartitionLog, first: int, values: list[bytes], epoch: int) -> None:
    """As a follower that was told to cut and got other batches from its new leader."""
    log.truncate_to(first, NOW)
    for number, value in enumerate(values, first):
        log.append_as_follower(
            batch(value, base_offset=number, leader_epoch=epoch, producer_id=1, epoch=0, sequence=number), now_ms=NOW
        )
    log.advance_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("more", [-2, 0, 3])
def test_a_log_that_is_cut_and_grows_again_meanwhile(more: int) -> None:
    """Also to the same end, which is not told from the end offset alone."""
    store = moving(SteppedDisk())
    refetched(log_of(store), 9, [b"other %d" % n for n in range(RECORDS - 9 + more)], epoch=5)
    equal(store)
    moved = store.moves.promote(PLACE, NOW)
    assert [value for _, value in read_all(moved)][7:9] == [b"other 0"][:1] + ([b"other 1"] if more > -2 else [])


def test_it_is_cut_below_an_epoch_that_the_copy_never_had() -> None:
    store = moving(SteppedDisk())
    log = log_of(store)
    refetched(log, 6, [b"x", b"y"], epoch=4)  # 4..7 were of epoch 1, 8.. of epoch 2: copied
    refetched(log, 8, [b"z"] * 4, epoch=6)
    equal(store)


def test_it_is_cut_and_not_yet_longer_than_the_copy_when_the_move_would_end() -> None:
    store = moving(SteppedDisk())
    refetched(log_of(store), 10, [b"p", b"q"], epoch=7)
    with pytest.raises(ValueError, match="not caught up"):
        store.moves.promote(PLACE, NOW)
    equal(store)


def test_batches_of_no_known_epoch_are_kept_up_to_the_high_watermark() -> None:
    store = opened(SteppedDisk())
    log = store.create(PLACE, TOPIC_ID, CONFIG, NOW, directory=SOURCE)
    for number in range(6):
        log.append_as_follower(batch(b"%d" % number, base_offset=number), now_ms=NOW)
    log.advance_high_watermark(4)
    store.create_future(PLACE, TARGET, NOW)
    catch_up(store)
    log.truncate_to(4, NOW)
    for number in (4, 5):
        log.append_as_follower(batch(b"new", base_offset=number), now_ms=NOW)
    equal(store)


def test_the_log_is_emptied_and_starts_later() -> None:
    store = moving(SteppedDisk())
    log = log_of(store)
    log.truncate_fully_and_start_at(100, NOW)
    equal(store)
    refetched(log, 100, [b"new", b"newer"], epoch=9)
    equal(store)
    log.truncate_fully_and_start_at(50, NOW)  # an unclean leader with a shorter log
    refetched(log, 50, [b"%d" % n for n in range(60)], epoch=12)
    equal(store)


def test_the_log_start_moves_while_it_is_copied() -> None:
    store = moving(SteppedDisk(), copied=False)
    log = log_of(store)
    store.moves.copy(PLACE, 300, NOW)
    log.advance_log_start_offset(9)
    equal(store)
    log.advance_log_start_offset(11)
    equal(store)
    log.advance_log_start_offset(RECORDS)
    catch_up(store)
    moved = store.moves.promote(PLACE, NOW)
    assert state(moved)[:4] == ([], RECORDS, RECORDS, RECORDS)
    assert moved.latest_epoch == 2, "the epochs of a log without records are known"
    append(moved, b"next", producer_id=1, epoch=0, sequence=RECORDS, leader_epoch=3)


def test_the_log_starts_inside_of_a_batch() -> None:
    """DeleteRecords does not stop at the batches' borders."""
    store = opened(SteppedDisk())
    log = store.create(PLACE, TOPIC_ID, CONFIG, NOW, directory=SOURCE)
    append(log, b"0", b"1", b"2", b"3")
    append(log, b"4")
    log.advance_log_start_offset(2)
    store.create_future(PLACE, TARGET, NOW)
    equal(store)
    assert [value for _, value in read_all(store.moves.promote(PLACE, NOW))] == [b"2", b"3", b"4"]


def test_the_log_ends_in_a_hole() -> None:
    """Compaction removed the last batches of what is left after a truncation."""
    store = moving(SteppedDisk(), copied=False)
    log = log_of(store)
    log.skip_to(20, NOW)
    equal(store)
    moved = store.moves.promote(PLACE, NOW)
    assert append(moved, b"next", leader_epoch=3) == 20


def test_an_open_transaction_moves_with_its_log() -> None:
    store = moving(SteppedDisk(), copied=False)
    log = log_of(store)
    append(log, b"open", producer_id=7, epoch=1, sequence=0, transactional=True, leader_epoch=3)
    verification_guard = log.producers.start_verification(8, 0, 0, NOW)
    catch_up(store)
    moved = store.moves.promote(PLACE, NOW)
    assert moved.last_stable_offset == RECORDS
    assert moved.offsets.first_unstable_offset == RECORDS
    assert moved.producers.start_verification(8, 0, 0, NOW) == verification_guard, (
        "a verification under way is not forgotten"
    )


def test_a_producer_whose_records_are_gone_is_still_known() -> None:
    disk = SteppedDisk()
    store = moving(disk, copied=False)
    log = log_of(store)
    for _ in range(3):
        append(log, b"of nobody", leader_epoch=3)
    log.advance_log_start_offset(RECORDS + 1)
    catch_up(store)
    moved = store.moves.promote(PLACE, NOW)
    assert 1 in moved.producers.producers
    store.shutdown(NOW)
    assert 1 in log_of(opened(disk, TARGET)).producers.producers


def test_compaction_waits_for_the_end_of_a_move() -> None:
    from tests.log.compaction_history import HandClock

    from ottla.log.cleaner import Cleaner

    config = TopicConfig(
        segment_bytes=1 << 20, internal_segment_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0
    )
    store = moving(SteppedDisk(), config=config)
    cleaner = Cleaner(store, HandClock())
    assert cleaner.choose() is None
    store.moves.abandon(PLACE, NOW)
    assert cleaner.choose() is not None
    steps = cleaner.clean_next()
    next(steps)
    store.create_future(PLACE, TARGET, NOW)  # a pass that is under way ends without a change
    before = read_all(log_of(store))
    for _ in steps:
        pass
    assert read_all(log_of(store)) == before
    store.moves.abandon(PLACE, NOW)
    for _ in cleaner.clean_next():
        pass
    assert len(read_all(log_of(store))) < len(before)


def test_the_cleaner_checkpoint_of_the_source_is_not_of_the_copy() -> None:
    """A log that was moved is looked through once more by compaction."""
    disk = SteppedDisk()
    config = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=700, cleanup_policy=("compact",))
    store = moving(disk, config=config)
    log_of(store).offsets.cleaned_up_to = 5
    assert store.moves.promote(PLACE, NOW).offsets.cleaned_up_to == 0
    for path in (SOURCE, TARGET):
        assert PLACE not in read_offsets(disk, f"{path}/cleaner-offset-checkpoint")
    assert log_of(opened(disk, TARGET, config)).offsets.cleaned_up_to == 0


@pytest.mark.parametrize("policy", [("compact",), ("delete",)])
def test_a_copy_of_a_compacted_log_begins_anew_after_a_restart(policy: tuple[str, ...]) -> None:
    """The cleaner may have taken a tombstone, while the copy's directory was offline, that the copy does not have."""
    disk = SteppedDisk()
    config = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=700, cleanup_policy=policy)
    moving(disk, config=config).shutdown(NOW)
    again = opened(disk, config=config)
    assert (future_of(again).log_end_offset < RECORDS) == (policy == ("compact",))
    equal(again)


def test_a_topic_name_that_leaves_no_room_for_the_suffix() -> None:
    store = opened(SteppedDisk())
    place = TopicPartition("t" * 240, 0)
    store.create(place, TOPIC_ID, CONFIG, NOW, directory=SOURCE)
    with pytest.raises(KafkaError) as refused:
        store.create_future(place, TARGET, NOW)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(store.online_directories()) == 3


# ------------------------------------------------------------------------------------------------------ the promotion


EXPECTED = [(number, b"%d" % number) for number in range(2, RECORDS)]


def whole(log: PartitionLog, more: list[bytes]) -> None:
    expected = EXPECTED + list(enumerate(more, RECORDS))
    assert read_all(log) == expected
    assert log.log_start_offset == 2
    assert [epoch for epoch, _ in log.epochs.entries][:3] == [0, 1, 2]
    assert log.producers.producers[1].batches[-1].last_sequence == RECORDS - 1


def finish(disk: SteppedDisk, assigned: str, more: list[bytes]) -> None:
    """The next start finds one whole log, ends the move, and nothing else is left of the partition."""
    store = opened(disk, assigned)
    log = store.get(PLACE) or store.moves.adopt(PLACE, TOPIC_ID, NOW)
    assert log is not None
    assert len(store.online_directories()) == 3
    whole(log, more)
    if store.moves.future(PLACE) is not None:
        catch_up(store)
        log = store.moves.promote(PLACE, NOW)
        whole(log, more)
    whole(log, more)
    append(log, b"last", leader_epoch=9)
    carried_out(store.removals(NOW + 10**9))
    assert [folder for folder in disk.folders_of("a-0") if any(n.startswith(folder + "/") for n in disk.files)] == [
        log.directory
    ]
    holders = [path for path in IDS if PLACE in read_offsets(disk, f"{path}/recovery-point-offset-checkpoint")]
    assert holders in ([log.log_dir.path], []), "checkpoints name the log where it is, or nowhere yet"
    store.shutdown(NOW)
    whole(log_of(opened(disk, log.log_dir.path)), [*more, b"last"])


def steps_of_promotion() -> int:
    disk = SteppedDisk()
    store = moving(disk)
    disk.arm(10**9)
    store.moves.promote(PLACE, NOW)
    return disk.steps


STEPS = steps_of_promotion()
POWER: list[list[str] | None] = [None, [], [SOURCE], [TARGET], [SOURCE, TARGET]]


@pytest.mark.parametrize("power", POWER, ids=["kill", "power", "power-source", "power-target", "power-both"])
@pytest.mark.parametrize("assigned", [SOURCE, TARGET])
def test_a_kill_before_every_step_of_a_promotion(power: list[str] | None, assigned: str) -> None:
    """Whether the metadata has the new directory (as it has before a promotion) or not."""
    assert STEPS > 15
    for steps in range(STEPS + 1):
        disk = SteppedDisk(seed=steps)
        store = moving(disk)
        log_of(store).flush(NOW)
        store.checkpoint_recovery_points()
        disk.arm(steps)
        try:
            store.moves.promote(PLACE, NOW)
        except Killed:
            assert steps < STEPS
        disk.disarm()
        if power is not None:
            disk.power_cut(power)
        finish(disk, assigned, [])


def test_the_target_knows_the_log_before_it_has_its_name() -> None:
    """Only checkpoints know where a log starts inside of a segment, and that a hole which compaction left is no loss."""
    disk = SteppedDisk()
    store = moving(disk)
    log = log_of(store)
    for number in (20, 21, 22):
        log.append_as_follower(batch(bytes(600), base_offset=number, leader_epoch=3), now_ms=NOW)
    log.advance_high_watermark(23)
    log.advance_log_start_offset(4)
    catch_up(store)
    assert future_of(store).segments[0].base_offset < 4
    assert 20 in [segment.base_offset for segment in future_of(store).segments], "a hole between two segments"
    store.moves.promote(PLACE, NOW)
    store.abandon()
    moved = log_of(opened(disk, TARGET))
    assert moved.log_start_offset == 4
    assert [offset for offset, _ in read_all(moved)] == [*range(4, RECORDS), 20, 21, 22]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("assigned", [SOURCE, TARGET])
def test_an_error_at_every_step_of_a_promotion(number: int, assigned: str) -> None:
    """One of the two serves and takes records; after the next start, with all disks well again, they are there."""
    ends = set()
    for steps in range(STEPS):
        disk = SteppedDisk(seed=steps)
        store = moving(disk)
        disk.arm(steps, OSError(number, "injected"))
        try:
            log = store.moves.promote(PLACE, NOW)
        except KafkaError:
            log = log_of(store)
            assert log.log_dir.path == SOURCE, disk.last
        disk.disarm()
        ends.add((log.log_dir.path, tuple(d.path for d in store.directories if d.offline)))
        assert not log.log_dir.offline
        whole(log, [])
        append(log, b"after", leader_epoch=3)
        carried_out(store.removals(NOW + 10**9))
        whole(log, [b"after"])
        if number == errno.ENOSPC and store.moves.future(PLACE) is not None:
            catch_up(store)
            whole(store.moves.promote(PLACE, NOW), [b"after"])
        store.abandon()
        finish(disk, assigned, [b"after"])
    assert {path for path, _ in ends} == {SOURCE, TARGET}, "errors hit before and after the copy has the name"


def test_a_power_cut_between_the_renames_and_records_after_it() -> None:
    """The source's rename failed with its disk, the target took more records: the longer log wins, whatever the
    metadata says."""
    for assigned in (SOURCE, TARGET):
        disk = SteppedDisk()
        store = moving(disk)
        fail_on(disk, lambda what: what.startswith(f"rename {SOURCE}/a-0 "))
        moved = store.moves.promote(PLACE, NOW)
        disk.disarm()
        assert [d.path for d in store.directories if d.offline] == [SOURCE]
        append(moved, b"more", leader_epoch=3)
        store.abandon()
        finish(disk, assigned, [b"more"])


def fail_on(disk: SteppedDisk, matches: Callable[[str], bool]) -> None:
    plain = disk.step

    def step(what: str = "write") -> None:
        if matches(what):
            disk.step = plain  # type: ignore[method-assign]
            raise OSError(errno.EIO, "injected")
        plain(what)

    disk.step = step  # type: ignore[method-assign]


# ------------------------------------------------------------------------------------------------------------- starts


def test_a_copy_beside_its_log_is_a_move_that_goes_on() -> None:
    disk = SteppedDisk()
    store = moving(disk, copied=False)
    assert not store.moves.copy(PLACE, 300, NOW)
    half = future_of(store).log_end_offset
    store.shutdown(NOW)
    again = opened(disk)
    assert future_of(again).log_end_offset == half > 2
    equal(again)


def test_an_orphan_is_adopted_only_by_its_own_topic() -> None:
    disk = SteppedDisk()
    store = moving(disk)
    future_of(store).flush(NOW)
    store.abandon()
    disk.remove_tree(f"{SOURCE}/a-0")  # what a version that renamed the log first left behind at a kill
    again = opened(disk)
    assert again.get(PLACE) is None
    assert again.moves.adopt(PLACE, Uuid(b"f" * 16), NOW) is None
    adopted = again.moves.adopt(PLACE, TOPIC_ID, NOW)
    assert adopted is not None
    assert adopted.directory == f"{TARGET}/a-0"
    whole(adopted, [])
    assert again.get(PLACE) is adopted


def test_a_log_of_another_topic_of_the_name_is_put_aside() -> None:
    disk = SteppedDisk()
    store = opened(disk)
    append(store.create(PLACE, Uuid(b"f" * 16), CONFIG, NOW, directory=SOURCE), b"old", leader_epoch=50)
    store.shutdown(NOW)
    disk._rename_folder(f"{SOURCE}/a-0", f"{THIRD}/a-0")
    store = opened(disk)
    store.mark_stray(PLACE, NOW)
    append(store.create(PLACE, TOPIC_ID, CONFIG, NOW, directory=TARGET), b"new")
    store.shutdown(NOW)
    disk._rename_folder(next(f for f in disk.folders_of("a-0") if f.startswith(THIRD)), f"{THIRD}/a-0")
    again = opened(disk, TARGET)
    assert read_all(log_of(again)) == [(0, b"new")]
    assert [folder.endswith("-stray") for folder in disk.folders_of("a-0") if folder.startswith(THIRD)] == [True]


def test_equal_logs_are_told_apart_by_the_metadata() -> None:
    for assigned in (SOURCE, TARGET):
        disk = SteppedDisk()
        store = moving(disk)
        disk.arm(10**9)
        fail_on(disk, lambda what: what.startswith(f"rename {SOURCE}/a-0 "))
        store.moves.promote(PLACE, NOW)
        store.abandon()
        again = opened(disk, assigned)
        assert log_of(again).log_dir.path == assigned
        assert len(again.online_directories()) == 3


def test_a_folder_that_a_full_disk_does_not_rename_is_never_served_again() -> None:
    """Deleted, and a topic of the same name is created in the same directory."""
    disk = SteppedDisk()
    store = opened(disk)
    append(store.create(PLACE, TOPIC_ID, CONFIG, NOW, directory=SOURCE), b"old")
    disk.arm(0, OSError(errno.ENOSPC, "full"))
    store.delete(PLACE, NOW)
    disk.disarm()
    assert store.get(PLACE) is None
    disk.arm(0, OSError(errno.ENOSPC, "full"))
    with pytest.raises(KafkaError):
        store.create(PLACE, Uuid(b"f" * 16), CONFIG, NOW, directory=SOURCE)
    disk.disarm()
    new = store.create(PLACE, Uuid(b"f" * 16), CONFIG, NOW, directory=SOURCE)
    assert read_all(new) == []
    carried_out(store.removals(NOW + 10**9))
    assert disk.folders_of("a-0") == [f"{SOURCE}/a-0"]


def test_a_folder_that_could_not_be_made_whole_leaves_nothing_behind() -> None:
    """The disk is full at every step of a creation, and then it has room again."""
    for steps in range(6):
        disk = SteppedDisk()
        store = opened(disk)
        for _ in range(2):
            disk.arm(steps, OSError(errno.ENOSPC, "full"))
            if store.get(PLACE) is None:
                with contextlib.suppress(KafkaError):
                    store.create(PLACE, TOPIC_ID, CONFIG, NOW, directory=SOURCE)
            with contextlib.suppress(KafkaError):
                if store.get(PLACE) is not None and store.moves.future(PLACE) is None:
                    store.create_future(PLACE, TARGET, NOW)
            disk.disarm()
        log = store.get(PLACE) or store.create(PLACE, TOPIC_ID, CONFIG, NOW, directory=SOURCE)
        append(log, b"x")
        folders = [log.directory, *(future.directory for future in store.moves.futures())]
        carried_out(store.removals(NOW + 10**9))
        assert disk.folders_of("a-0") == sorted(folders), steps


def test_a_kill_at_every_step_of_a_deletion_and_a_new_topic_of_the_name() -> None:
    """A folder holds records of one topic only, and the checkpoints have no entry of the deleted one for the other."""
    other_id = Uuid(b"f" * 16)
    finished, steps = False, 0
    while not finished:
        disk = SteppedDisk(seed=steps)
        store = opened(disk)
        log = store.create(PLACE, TOPIC_ID, CONFIG, NOW, directory=SOURCE)
        for _ in range(9):
            append(log, b"old")
        log.advance_log_start_offset(3)
        log.flush(NOW)
        store.checkpoint_deletion()
        disk.arm(steps)
        try:
            store.delete(PLACE, NOW)
            store.checkpoint_deletion()
            append(store.create(PLACE, other_id, CONFIG, NOW, directory=SOURCE), b"new")
            finished = True
        except Killed:
            steps += 1
        disk.disarm()
        again = opened(disk)
        found = again.get(PLACE)
        if found is not None and found.topic_id == TOPIC_ID:
            assert read_all(found) == [(offset, b"old") for offset in range(3, 9)]
        elif found is not None:
            assert read_all(found) in ([], [(0, b"new")])
            assert (found.log_start_offset, found.recovery_point) == (0, 0)
        again.abandon()
        files = {path: {f.rsplit("/", 1)[0] for f in disk.files if f.startswith(f"{path}/a-0")} for path in IDS}
        for folder in (folder for folders in files.values() for folder in folders):
            content = b"".join(bytes(f.data) for name, f in disk.files.items() if name.startswith(f"{folder}/"))
            assert not (b"old" in content and b"new" in content)
    assert steps > 10
