"""No event leaves a trace when its records are refused: random groups of every kind and random transactions, each event of
which is decided and dropped before it runs (`rehearsal`)."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.coordinator.rehearsal import rehearsed
from tests.coordinator.test_consumer_properties import ConsumerGroups
from tests.coordinator.test_group_properties import Groups
from tests.coordinator.test_streams_properties import StreamsGroups
from tests.share.test_share_groups import ShareGroupsMachine
from tests.transactions.test_transaction_properties import Transactions

FEW = settings(max_examples=60, stateful_step_count=30, deadline=None, phases=(Phase.generate,))


@pytest.mark.parametrize("machine", [ConsumerGroups, Groups, ShareGroupsMachine, StreamsGroups, Transactions])
def test_a_refused_event_leaves_no_trace(machine: type[RuleBasedStateMachine]) -> None:
    with rehearsed() as counts:
        run_state_machine_as_test(machine, settings=FEW)
    assert sum(counts.values()) > 20, counts
