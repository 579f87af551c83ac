"""Events of the controller in slices: no event sees half of an earlier event, and a lost leadership drops decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.controller.node import Answered, Node

from ottla.controller.events import ControllerEvents, Event, OnDone, Outcome, Work
from ottla.controller.state import ControllerRequestContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.primitives import Message


class Steps:
    """Work that waits until the test does it; at once while `held` is False."""

    def __init__(self) -> None:
        self.held = False
        self.waiting: deque[tuple[Work, OnDone]] = deque()

    def __call__(self, work: Work, on_done: OnDone) -> Outcome | None:
        if not self.held:
            return outcome(work)
        self.waiting.append((work, on_done))
        return None

    def step(self) -> None:
        work, on_done = self.waiting.popleft()
        on_done(*outcome(work))

    def all(self) -> None:
        while self.waiting:
            self.step()


def outcome(work: Work) -> Outcome:
    try:
        return work(), None
    except ZeroDivisionError as error:
        return None, error


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def node(tmp_path: Path, steps: Steps) -> Node:
    node = Node(tmp_path / "data", in_slices=steps)
    node.format()
    node.start().join()
    steps.held = True
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
    steps.step()  # the first decision; its records are appended and not yet replayed
    assert len(steps.waiting) == 1
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
    assert len(steps.waiting) == 1
    steps.all()


def test_a_duty_that_fails_does_not_hold_the_events_behind_it(steps: Steps) -> None:
    """The failure of a duty is raised to the loop: the waiting requests must run all the same."""
    events, ended, steps.held = ControllerEvents(steps), [], True

    def failing() -> Event:
        yield lambda: 1 / 0

    def ending(name: str) -> Event:
        yield lambda: None
        ended.append(name)

    def reraise(error: Exception) -> None:
        raise error

    events.run(failing(), reraise)
    for name in ("first", "second"):
        events.run(ending(name), reraise)
    events.run(failing(), reraise)
    events.run(ending("third"), reraise)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            steps.all()
    steps.all()
    assert ended == ["first", "second", "third"]


def test_an_event_that_fails_before_its_first_work_does_not_hold_the_others(steps: Steps) -> None:
    events, ended, steps.held = ControllerEvents(steps), [], True

    def broken() -> Event:
        raise ZeroDivisionError
        yield

    def ending() -> Event:
        yield lambda: None
        ended.append(True)

    def reraise(error: Exception) -> None:
        raise error

    events.run(ending(), reraise)
    events.run(broken(), reraise)
    events.run(ending(), reraise)
    with pytest.raises(ZeroDivisionError):
        steps.all()
    steps.all()
    assert ended == [True, True]
