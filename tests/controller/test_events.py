"""Events of the controller in slices: no event sees half of an earlier event, and a lost leadership drops decisions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.controller.node import Answered, Node

from ottla.broker import slices
from ottla.broker.slices import Job, ResultT, Slices
from ottla.controller.events import ControllerEvents
from ottla.controller.state import ControllerRequestContext
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.primitives import Message


class Steps(Slices):
    """Slices whose turns the test takes; while `paused` is False, work is done at once."""

    paused = False

    def start(self, work: Callable[[Job[ResultT]], ResultT], max_elements: int = sys.maxsize) -> Job[ResultT]:
        self._scheduled = self.paused
        return super().start(work, max_elements)

    def _schedule(self) -> None:
        """No loop takes turns."""

    def step(self) -> None:
        self._turn()

    def all(self) -> None:
        while len(self):
            self.step()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()
    monkeypatch.setattr(slices, "SLICE_UNITS", sys.maxsize)
    return steps


@pytest.fixture
def node(tmp_path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path / "data", in_slices=steps.start)
    node.format()
    node.start().join()
    steps.paused = True
    monkeypatch.setattr(slices, "SLICE_UNITS", 1)  # every counted loop pauses
    return node


def creation(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1)], timeout_ms=1000)


def submit(node: Node, request: Message) -> Answered:
    answer: Any = node.runtime.submit(request, ControllerRequestContext(version=type(request).MAX_VERSION))
    return answer


def heartbeat(node: Node) -> Answered:
    return submit(node, BrokerHeartbeatRequest(1, node.broker_epoch, node.runtime.publisher.offset))


def test_an_event_waits_for_the_replay_of_the_event_before(node: Node, steps: Steps) -> None:
    first, second = submit(node, creation("t")), submit(node, creation("t"))
    end_offset = node.raft.end_offset
    while node.raft.end_offset == end_offset:
        steps.step()  # the first decision; its records are appended and not yet replayed
    assert len(steps) == 1
    assert not first.done()
    assert "t" not in node.state.image.topics_by_name
    steps.all()
    assert first.result.topics[0].error_code == 0
    assert second.result.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_heartbeat_does_not_wait_for_the_requests_of_clients(node: Node, steps: Steps) -> None:
    answers = [submit(node, creation(f"t{index}")) for index in range(5)]
    beat = heartbeat(node)
    while not beat.done():
        steps.step()
    assert [answer.done() for answer in answers] == [True, False, False, False, False]
    steps.all()
    assert all(answer.done() for answer in answers)


def test_what_a_commit_causes_is_one_step(node: Node, steps: Steps) -> None:
    """A loop of a subscriber must not pause: half of the published image would be served."""
    calls: list[str] = []

    def subscriber(_delta: MetadataDelta, _image: MetadataImage) -> None:
        calls.append("begin")
        for _ in paced(range(100)):
            pass
        calls.append("end")

    node.runtime.publisher.subscribe(subscriber)
    calls.clear()
    submit(node, creation("a"))
    while len(steps):
        steps.step()
        assert calls in ([], ["begin", "end"])
    assert calls == ["begin", "end"]


def test_a_decision_of_a_lost_leadership_is_not_appended(node: Node, steps: Steps) -> None:
    answers = [submit(node, creation("a")), submit(node, creation("b"))]
    end_offset = node.raft.end_offset
    node.runtime.on_resigned()
    steps.all()
    for answer in answers:
        assert isinstance(answer.exception, KafkaError)
        assert answer.exception.code is ErrorCode.NOT_CONTROLLER
    assert node.raft.end_offset == end_offset


def test_a_decision_that_began_in_an_earlier_term_is_not_appended(node: Node, steps: Steps) -> None:
    """The controller loses and regains its leadership while a decision is under way."""
    answer = submit(node, creation("a"))
    steps.step()
    node.runtime.on_resigned()
    node.runtime.on_leader()
    end_offset = node.raft.end_offset
    steps.all()
    assert isinstance(answer.exception, KafkaError)
    assert node.raft.end_offset == end_offset
    again = submit(node, creation("a"))
    steps.all()
    assert again.result.topics[0].error_code == 0


def test_a_request_whose_peer_has_left_is_dropped(node: Node, steps: Steps) -> None:
    _, gone = submit(node, creation("a")), submit(node, creation("gone"))
    gone.set_result("cancelled")
    steps.all()
    assert "gone" not in node.image.topics_by_name
    assert "a" in node.image.topics_by_name


def test_a_failure_ends_one_event(node: Node, steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    decide: Callable[..., Any] = node.runtime.controller.decide

    def fails(request: Any, context: ControllerRequestContext) -> Any:
        return 1 // 0 if request.topics[0].name == "bad" else decide(request, context)

    monkeypatch.setattr(node.runtime.controller, "decide", fails)
    bad, good = submit(node, creation("bad")), submit(node, creation("good"))
    steps.all()
    assert isinstance(bad.exception, ZeroDivisionError)
    assert good.result.topics[0].error_code == 0


def test_duties_wait_once_however_often_the_clock_ticks(node: Node, steps: Steps) -> None:
    answer = submit(node, creation("a"))
    for _ in range(10):
        node.runtime.tick()
    steps.all()
    assert answer.done()
    node.runtime.tick()
    assert len(steps) == 1
    steps.all()


def test_a_duty_that_fails_does_not_hold_the_events_behind_it(steps: Steps) -> None:
    """The failure of a duty is raised to the loop: the waiting requests must run all the same."""
    events, ended, steps.paused = ControllerEvents(steps.start), [], True

    def failing() -> None:
        raise ZeroDivisionError

    def reraise(error: Exception) -> None:
        raise error

    events.run(failing, reraise)
    for name in ("first", "second"):
        events.run(lambda name=name: ended.append(name), reraise)  # type: ignore[misc]
    events.run(failing, reraise)
    events.run(lambda: ended.append("third"), reraise)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            steps.all()
    steps.all()
    assert ended == ["first", "second", "third"]


def test_an_event_that_another_event_asks_for_runs_after_it(steps: Steps) -> None:
    events, ended = ControllerEvents(steps.start), []

    def first() -> None:
        events.run(lambda: ended.append("second"), ended.append)
        ended.append("first")

    events.run(first, ended.append)
    assert ended == ["first", "second"]
