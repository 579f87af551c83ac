"""A position names records of one topic and one history of its log; anything else is an error or a stated new start.

Spark calls `StreamReader` with its own checkpoints; these tests call the same methods without a session.
"""

from __future__ import annotations

import json

import pytest

from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines import history
from ottla.pipelines.options import read_options
from ottla.pipelines.positions import Positions
from ottla.pipelines.reader import StreamReader
from ottla.protocol.generated.fetch_response import PartitionData
from ottla.tables import fetch
from ottla.tables.topics import TopicMetadata, settings_from

pytestmark = pytest.mark.timeout(300)


class Stream:
    """A stream's batches as Spark asks for them: every offset goes through the checkpoint's text."""

    def __init__(self, topics, topic, **options):
        self._options = topics.options(subscribe=topic, startingOffsets="earliest", **options)
        self.start()

    def start(self):
        self.reader = StreamReader(read_options(self._options, streaming=True))

    def begin(self):
        return _stored(self.reader.initialOffset())

    def plan(self, start):
        return _stored(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))

    def rows(self, start, end):
        pieces = self.reader.partitions(start, end)
        batches = [batch for piece in pieces for batch in self.reader.read(piece)]
        return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())


def _stored(offsets):
    return json.loads(json.dumps(offsets))


def numbered(topics, topic, stem, count):
    topics.send(topic, [(None, f"{stem}{n:04}".encode()) for n in range(count)])
    return [f"{stem}{n:04}" for n in range(count)]


@pytest.fixture
def again(topics):
    """Deletes a topic and creates it again under the same name."""

    def recreate(topic, partitions=2):
        topics.delete(topic)
        topics.make(topic, partitions)
        topics.await_topic(topic)

    return recreate


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("count", [40, 300])
def test_a_topic_that_was_created_again_is_an_error_by_default(topics, again, running, count):
    """Fewer records than before, and more: the offsets alone show only the first."""
    topic = topics.new("again", 2)
    stream = Stream(topics, topic, failOnDataLoss="false")
    expected = numbered(topics, topic, "old", 100)
    start = stream.begin()
    end = stream.plan(start)
    assert stream.rows(start, end) == expected
    again(topic)
    numbered(topics, topic, "new", count)
    if not running:
        stream.start()
    with pytest.raises(UserError, match=rf"topic {topic} has the id .*deleted and created again.*onTopicRecreated"):
        stream.plan(end)


def test_a_topic_that_was_created_again_is_read_from_its_beginning_by_option(topics, again):
    topic = topics.new("restart", 3)
    stream = Stream(topics, topic, onTopicRecreated="restart")
    numbered(topics, topic, "old", 90)
    end = stream.plan(stream.begin())
    again(topic, 2)
    expected = numbered(topics, topic, "new", 200)
    stream.start()
    following = stream.plan(end)
    assert stream.rows(end, following) == expected
    assert stream.rows(end, following) == expected, "a repeated batch has the same rows"
    assert stream.plan(following) == following
    more = numbered(topics, topic, "more", 10)
    assert stream.rows(following, stream.plan(following)) == more


def test_a_planned_batch_never_has_records_of_a_new_topic(topics, again):
    """The topic is created again between the driver's plan and the executors' reads."""
    topic = topics.new("planned", 1)
    stream = Stream(topics, topic)
    numbered(topics, topic, "old", 20)
    start = stream.begin()
    end = stream.plan(start)
    again(topic, 1)
    new = numbered(topics, topic, "new", 50)
    with pytest.raises(UserError, match="deleted and created again"):
        stream.rows(start, end)
    patient = Stream(topics, topic, onTopicRecreated="restart")
    assert patient.rows(start, end) == []
    assert patient.rows(end, patient.plan(end)) == new


def test_a_checkpoint_of_the_version_before_takes_the_ids_of_the_moment(topics, again):
    topic = topics.new("before", 1)
    stream = Stream(topics, topic)
    numbered(topics, topic, "old", 20)
    end = stream.plan({topic: {"0": 5}})
    assert len(stream.rows({topic: {"0": 5}}, end)) == 15
    again(topic, 1)
    with pytest.raises(UserError, match="deleted and created again"):
        stream.plan(end)


def test_a_repeated_batch_is_cut_as_at_its_first_run(topics):
    topic = topics.new("cut", 1)
    numbered(topics, topic, "n", 60)
    stream = Stream(topics, topic, minPartitions="3")
    start = stream.begin()
    end = stream.plan(start)
    other = Stream(topics, topic, minPartitions="7", maxRecordsPerPartition="5")
    cuts = [piece.range for piece in stream.reader.partitions(start, end)]
    assert len(cuts) == 3
    assert [piece.range for piece in other.reader.partitions(start, end)] == cuts


def test_a_low_high_watermark_of_a_new_leader_skips_nothing(topics, monkeypatch):
    """KIP-207: a new leader has not heard yet how far its followers are."""
    topic = topics.new("fresh", 1)
    expected = numbered(topics, topic, "n", 50)
    stream = Stream(topics, topic, failOnDataLoss="false")
    receive, answers = fetch._Stream._receive, []

    def fresh(self, connection):
        answer = receive(self, connection)
        answers.append(answer)
        return PartitionData(high_watermark=3, log_start_offset=0, records=b"") if len(answers) < 3 else answer

    monkeypatch.setattr(fetch._Stream, "_receive", fresh)
    start = stream.begin()
    assert stream.rows(start, stream.plan(start)) == expected


def test_a_leader_names_the_end_of_an_epoch(topics):
    topic = topics.new("epochs", 1)
    numbered(topics, topic, "n", 7)
    partition = TopicPartition(topic, 0)
    with TopicMetadata(settings_from({"bootstrap.servers": topics.servers})) as metadata:
        epoch = metadata.states([topic])[partition].leader_epoch
        assert metadata.epoch_ends({partition: epoch}) == {partition: 7}
        assert metadata.epoch_ends({partition: epoch + 100}) == {partition: -1}


PARTITION = TopicPartition("t", 0)


class Cut:
    """A log whose leader changed: epoch 3 ends at an offset."""

    def __init__(self, end):
        self._end = end

    def earliest(self, partitions):
        return dict.fromkeys(partitions, 0)

    def epoch_ends(self, epochs):
        assert epochs == {PARTITION: 3}
        return {PARTITION: self._end}


def at(offset, epoch):
    return Positions(offsets={PARTITION: offset}, topic_ids={"t": "id"}, leader_epochs={PARTITION: epoch})


@pytest.mark.parametrize(
    ("epoch_end", "latest", "begins"),
    [
        (100, at(250, 4), None),  # nothing was cut
        (80, at(250, 4), 80),  # cut, and longer again than what was read
        (80, at(90, 4), 80),
        (-1, at(250, 4), None),  # the leader has no epochs: as long as before is all that is known
        (-1, at(90, 4), 90),
        (-1, at(250, 2), 100),  # an older cluster
    ],
)
def test_a_log_that_a_new_leader_cut_is_an_error_or_begins_at_the_cut(epoch_end, latest, begins):
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
    strict = read_options(options, streaming=True)
    lenient = read_options({**options, "failOnDataLoss": "false"}, streaming=True)
    if begins is None:
        assert history.new_beginnings(Cut(epoch_end), strict, at(100, 3), latest) == {}
        return
    with pytest.raises(UserError, match="t-0: the log ends before what was already read"):
        history.new_beginnings(Cut(epoch_end), strict, at(100, 3), latest)
    assert history.new_beginnings(Cut(epoch_end), lenient, at(100, 3), latest) == {PARTITION: begins}
