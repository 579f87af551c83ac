"""Every hand-picked scenario at every version, on Apache Kafka and on Ottla at once: the answers are equal."""

from __future__ import annotations

import importlib
import itertools
import os
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ottla.broker.apis import BROKER_APIS
from tests.interop.differential import allowed, odd_requests, scenarios
from tests.interop.differential import log_sequences as longer
from tests.interop.differential.bad_frames import bad_frames, cut_frames
from tests.interop.differential.odd_requests import odd_sequences
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.replay import recorded, replay, topics_asked_for
from tests.interop.differential.scenario import SCENARIOS, Scenario
from tests.interop.differential.scenarios.groups import coordinator
from tests.interop.differential.scenarios.produce import ids_ready
from tests.interop.differential.sequences import Step, run, sequences
from tests.interop.differential.servers import two_servers
from tests.interop.differential.transactional import coordinator as transaction_coordinator

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]

for _module in pkgutil.iter_modules(scenarios.__path__):
    importlib.import_module(f"{scenarios.__name__}.{_module.name}")

FLAVOURS: dict[str, dict[str, str]] = {
    "default": {},
    "quiet": {  # for answers that list everything there is, and for what takes two folders
        "auto.create.topics.enable": "false",
        "log.dirs": "{dir}/data,{dir}/more",
        "max.incremental.fetch.session.cache.slots": "16",
    },
    "access": {  # with ACLs, and quotas of their own
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    },
    "transactions": {  # a list of everything there is, and timeouts that are looked for often
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    },
}
Servers = Callable[[str], tuple[Side, Side]]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    started: dict[str, tuple[Side, Side]] = {}
    with ExitStack() as stack:

        def get(flavour: str) -> tuple[Side, Side]:
            if flavour not in started:
                pair = two_servers(tmp_path_factory.mktemp(f"differential-{flavour}"), FLAVOURS[flavour])
                left, right = stack.enter_context(pair)
                started[flavour] = Side(left), Side(right)
            return started[flavour]

        yield get
    if "RULES" in os.environ:
        idle = [rule for rule in (*allowed.SETS, *allowed.MASKED) if rule.path not in allowed.USED]
        print("\nrules that no answer needed:", *idle, sep="\n  ")


def new_pair(servers: Servers, name: str, flavour: str = "default") -> Pair:
    left, right = (Side(side.address) for side in servers(flavour))
    return Pair(left, right, name)


@pytest.mark.parametrize("each", SCENARIOS, ids=lambda each: f"{each.name}-v{each.version}")
def test_same_answers(each: Scenario, servers: Servers) -> None:
    pair = new_pair(servers, f"{each.name}.v{each.version}", each.servers)
    each.run(pair, each.version)
    pair.check()


def test_bad_frames_have_the_same_end(servers: Servers) -> None:
    pair = new_pair(servers, "frames")
    for what, data in bad_frames():
        pair.send_bytes(data, what)
    for what, data in cut_frames():
        pair.send_bytes(data, what, end=True)
    pair.check()


def test_recorded_requests_have_the_same_answers(servers: Servers) -> None:
    pair = new_pair(servers, "recorded")
    topic = pair.create(pair.name("t"), 2)
    coordinator(pair)
    transaction_coordinator(pair)
    ids_ready(pair)
    requests = list(recorded(set(BROKER_APIS)))
    assert len(requests) > 100
    for name in topics_asked_for(requests):
        if not name.startswith("__"):
            pair.create(name, 3)
    for request in requests:
        replay(pair, request, topic)
    pair.check()


_examples = itertools.count()
_made_up_ready: list[bool] = []
_log_ready: list[bool] = []
_odd_ready: list[bool] = []


EXAMPLES = os.environ.get("EXAMPLES")
"""CI asks the same every time and shows the first difference as it is. More, others and shrunk:
`EXAMPLES=500 pytest tests/interop/test_differential.py -k made_up --hypothesis-seed=N`."""
MADE_UP_TIMEOUT_S = 3600 if EXAMPLES else 600


def made_up(examples: int) -> settings:
    """How many in CI."""
    return settings(
        max_examples=int(EXAMPLES or examples),
        derandomize=EXAMPLES is None,
        phases=list(Phase) if EXAMPLES else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )


@pytest.mark.timeout(MADE_UP_TIMEOUT_S)
@made_up(80)
@given(steps=sequences)
def test_made_up_sequences_have_the_same_answers(servers: Servers, steps: list[Step]) -> None:
    if not _made_up_ready:
        ids_ready(new_pair(servers, "made-up"))
        _made_up_ready.append(True)
    pair = new_pair(servers, f"made-up.{next(_examples)}")
    run(pair, steps)
    pair.check()


@pytest.mark.timeout(MADE_UP_TIMEOUT_S)
@made_up(25)
@given(steps=longer.log_sequences)
def test_made_up_logs_have_the_same_answers(servers: Servers, steps: list[longer.Step]) -> None:
    if not _log_ready:
        transaction_coordinator(new_pair(servers, "made-up-log"))
        _log_ready.append(True)
    pair = new_pair(servers, f"made-up-log.{next(_examples)}")
    longer.run(pair, steps)
    pair.check()


_ODD_TOPICS: tuple[dict[str, str], ...] = (
    {},
    {"cleanup_policy": "compact"},
    {"compression_type": "lz4"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_before_max_ms": "1000"},
)


@pytest.mark.timeout(MADE_UP_TIMEOUT_S)
@made_up(20)
@given(steps=odd_sequences, topic=st.integers(0, len(_ODD_TOPICS) - 1))
def test_made_up_odd_requests_have_the_same_answers(
    servers: Servers, steps: list[odd_requests.Step], topic: int
) -> None:
    if not _odd_ready:
        coordinator(new_pair(servers, "made-up-odd"))
        transaction_coordinator(new_pair(servers, "made-up-odd"))
        _odd_ready.append(True)
    pair = new_pair(servers, f"made-up-odd.{next(_examples)}")
    odd_requests.run(pair, steps, _ODD_TOPICS[topic])
    pair.check()


def test_ottla_had_no_traceback(servers: Servers) -> None:
    for flavour in FLAVOURS:
        log = servers(flavour)[1].address.log_file.read_text(errors="replace")
        assert "Traceback" not in log, log[-5000:]
        assert "request.failed" not in log, log[-5000:]
