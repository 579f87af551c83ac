"""What the active controller does by itself: leaders go back to preferred replicas, unclean elections where allowed."""

from __future__ import annotations

from dataclasses import replace

from tests.controller.test_many_brokers import Cluster, grown

from ottla.controller.periodic import Periodic, balance_leaders, elect_uncleanly
from ottla.metadata.records import ConfigRecord
from ottla.protocol.generated.delegation_token_record import DelegationTokenRecord
from ottla.protocol.generated.remove_delegation_token_record import RemoveDelegationTokenRecord
from ottla.protocol.primitives import Message


def cluster_with_a_deposed_leader() -> tuple[Cluster, int]:
    cluster = Cluster()
    cluster.join(1, 2, 3)
    cluster.create("t", 1, 3)
    preferred = cluster.partition("t").replicas[0]
    cluster.beat(preferred, fence=True)
    cluster.beat(preferred)
    assert cluster.partition("t").leader != preferred
    return cluster, preferred


def test_leadership_goes_back_once_the_preferred_replica_is_in_sync() -> None:
    cluster, preferred = cluster_with_a_deposed_leader()
    assert balance_leaders(cluster.state) == [], "it is not in the ISR yet"
    grown(cluster, "t")
    cluster.apply(balance_leaders(cluster.state))
    assert cluster.partition("t").leader == preferred
    assert balance_leaders(cluster.state) == []


def test_leaders_are_balanced_after_an_interval_in_any_case() -> None:
    """Also for a broker that this controller has not heard of, as long as it is not fenced."""
    cluster, _ = cluster_with_a_deposed_leader()
    grown(cluster, "t")
    cluster.state.sessions.clear()
    periodic = Periodic(cluster.state)
    periodic.restart()
    assert periodic.due() == []
    cluster.clock.now += 299_000
    assert periodic.due() == []
    cluster.clock.now += 2_000
    assert len(periodic.due()) == 1
    assert periodic.due() == []


def test_a_leader_that_comes_back_leads_again_soon() -> None:
    cluster, preferred = cluster_with_a_deposed_leader()
    periodic = Periodic(cluster.state)
    periodic.restart()
    cluster.clock.now += 1_500
    assert periodic.due() == [], "it is not in sync yet"
    grown(cluster, "t")
    cluster.clock.now += 500
    assert periodic.due() == [], "others may come into sync as well"
    cluster.clock.now += 500
    cluster.apply(periodic.due())
    assert cluster.partition("t").leader == preferred
    assert cluster.state.balance_wanted_ms is None


def test_a_broker_that_is_silent_gets_nothing_to_lead() -> None:
    """It may hang: its session has not run out, and it is still in sync on paper."""
    cluster, preferred = cluster_with_a_deposed_leader()
    grown(cluster, "t")
    periodic = Periodic(cluster.state)
    periodic.restart()
    cluster.clock.now += 4_000
    assert periodic.due() == []
    cluster.beat(preferred)
    cluster.clock.now += 1_000
    cluster.apply(periodic.due())
    assert cluster.partition("t").leader == preferred


def test_leaders_stay_where_they_are_when_balancing_is_off() -> None:
    cluster, _ = cluster_with_a_deposed_leader()
    cluster.state.settings = replace(cluster.state.settings, leader_balance_interval_ms=0)
    grown(cluster, "t")
    periodic = Periodic(cluster.state)
    periodic.restart()
    cluster.clock.now += 2_000
    assert periodic.due() == []


def test_unclean_elections_only_where_the_topic_allows_them() -> None:
    cluster = Cluster()
    cluster.join(1, 2, 3)
    cluster.create("strict", 1, 1)
    cluster.create("loose", 1, 1)
    for name in ("strict", "loose"):
        owner = cluster.partition(name).leader
        if owner >= 0:  # both may have been placed on the same broker, which is fenced by now
            cluster.beat(owner, fence=True)
    cluster.apply([ConfigRecord(2, "loose", "unclean.leader.election.enable", "true")])
    assert elect_uncleanly(cluster.state) == [], "nobody who has it is alive"
    assert cluster.partition("strict").leader == cluster.partition("loose").leader == -1


def test_tokens_go_when_they_have_expired() -> None:
    cluster = Cluster()
    cluster.join(1)
    now = cluster.clock.time_ms()
    for name, lives_ms in (("short", 3_000_000), ("long", 9_000_000)):
        expires = now + lives_ms
        cluster.apply([DelegationTokenRecord("User:a", "User:a", [], now, expires, expires, name)])
    periodic = Periodic(cluster.state)
    periodic.restart()
    cluster.clock.now += 3_500_000
    assert not [record for record in _all_due(periodic) if isinstance(record, RemoveDelegationTokenRecord)]
    cluster.clock.now += 200_000
    assert _all_due(periodic) == [RemoveDelegationTokenRecord("short")]


def _all_due(periodic: Periodic) -> list[Message]:
    return [record for _ in range(3) for record in periodic.due()]
