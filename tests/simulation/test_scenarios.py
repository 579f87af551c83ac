"""Scenarios of users: the verdicts of the lessons, reasons against facts, bad files, and the same bytes everywhere."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ottla.env import logging
from ottla.simulation.scenario.drawing import draw_scenario
from ottla.simulation.scenario.facts import (
    Facts,
    FinalLog,
    LeaderAppend,
    Leadership,
    PartitionFacts,
    ProducerAck,
    ReplicaHistory,
    SendAttempt,
    SentRecord,
    Span,
    StoredRecord,
)
from ottla.simulation.scenario.places import ScenarioError
from ottla.simulation.scenario.reading import parse_scenario
from ottla.simulation.scenario.report import verdict_lines, verdict_tree
from ottla.simulation.scenario.verdict import Verdict, judge_facts, judge_scenario
from ottla.simulation.scenario.writing import scenario_text

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "examples/simulate"
SMALL = """
[run]
duration = "9s"
[cluster]
broker.session.timeout.ms = 3000
[[topic]]
name = "orders"
replicas = [[1, 2, 3]]
[[producer]]
topic = "orders"
rate = 50
count = 200
"""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    logging.configure(io.StringIO(), level="error")
    yield
    logging._sink = kept


@cache
def lesson(name: str) -> Verdict:
    path = LESSONS / f"{name}.toml"
    scenario = parse_scenario(path.read_bytes(), name)
    return judge_scenario(scenario, scenario.run.seed)


def run(text: str, seed: int = 1) -> Verdict:
    return judge_scenario(parse_scenario(text.encode(), "test.toml"), seed)


def seconds_in(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(\d+\.\d{3}) s", text)]


# --------------------------------------------------------------------------------------------------------- the lessons


def test_the_lessons_have_the_same_faults() -> None:
    trees = [
        tomllib.loads((LESSONS / f"{name}.toml").read_text()) for name in ("acks-1", "unclean-election", "min-isr-2")
    ]
    assert trees[0]["fault"] == trees[1]["fault"] == trees[2]["fault"]
    assert trees[0]["cluster"] == trees[1]["cluster"] == trees[2]["cluster"]


def test_acks_1_loses_what_no_follower_has() -> None:
    """Every sentence of the reason is compared with the facts of the world."""
    verdict = lesson("acks-1")
    (lost,) = verdict.lost
    partition = verdict.facts.partitions["orders", 0]
    assert verdict.failed
    assert verdict.total("lost") == len(lost.records) > 0
    assert verdict.total("committed_and_lost") == 0
    successor = partition.leaderships[1]
    killed_ms = 5_000.0
    for record_id, offset in zip(lost.records, lost.offsets, strict=True):
        record = verdict.facts.records[record_id]
        assert record.acknowledged is not None
        assert (record.acknowledged.broker, record.acknowledged.offset) == (1, offset)
        assert record.acknowledged.at_ms < successor.took_ms
        assert partition.holders(offset, 0, killed_ms) == [1]
        assert not partition.replicas[successor.leader].held(offset, 0, successor.took_ms)
        assert offset >= successor.start_end
        removal = partition.replicas[1].removal(offset, 0)
        assert removal is not None
        assert removal.removed_ms > successor.took_ms
    text = "\n".join(lost.reason)
    assert "acknowledged by leader 1 (epoch 0) with acks=1" in text
    assert "not replicated at that time" in text
    assert "kill broker 1 (leader of orders-0) for 5s at 5.000 s" in text
    assert (
        f"broker {successor.leader} became leader at {successor.took_ms / 1000:.3f} s (clean election, epoch 1, "
        in text
    )
    assert f"with log end {successor.start_end}" in text
    assert "broker 1 removed its copy at" in text
    stored = {record.id for record in verdict.partitions[0].final.records}
    assert not stored & set(lost.records)


def test_an_unclean_election_loses_committed_records() -> None:
    verdict = lesson("unclean-election")
    (lost,) = verdict.lost
    assert verdict.total("committed_and_lost") == verdict.total("lost") == len(lost.records) > 100
    assert verdict.partitions[0].elections("unclean") == 1
    term = next(term for term in verdict.facts.partitions["orders", 0].leaderships if term.election == "unclean")
    assert min(lost.offsets) == term.start_end
    assert f"UNCLEAN election, epoch {term.epoch}" in "\n".join(lost.reason)
    assert "with acks=all" in lost.reason[0]
    assert "ISR 1;" in lost.reason[0]
    (consumer,) = verdict.consumers
    assert consumer.lost == verdict.total("lost")
    assert consumer.facts.went_back == 1


def test_min_isr_2_loses_nothing_at_the_same_faults() -> None:
    verdict = lesson("min-isr-2")
    assert not verdict.failed
    assert verdict.lost == []
    assert verdict.total("acknowledged") == verdict.total("committed") == 2_500
    assert verdict.partitions[0].below_min_isr_ms > 3_000
    offsets = [stored.offset for stored in verdict.partitions[0].final.records]
    assert offsets == sorted(set(offsets))


def test_a_report_has_the_verdict_the_leaders_and_the_timeline() -> None:
    lines = verdict_lines("acks-1.toml", lesson("acks-1"))
    text = "\n".join(lines)
    assert f"VERDICT: {lesson('acks-1').total('lost')} lost of 2,500 acknowledged records" in text
    chart = next(line for line in lines if line.startswith("  orders-0 |"))
    assert set(chart.split("|")[1]) <= set("123-x ")
    assert "  5.000 s  fault: kill broker 1 (leader of orders-0) for 5s" in text
    tree = verdict_tree("acks-1.toml", lesson("acks-1"))
    assert tree["totals"]["lost"] == len(tree["lost"][0]["records"])
    assert [event["at"] for event in tree["timeline"]] == sorted(event["at"] for event in tree["timeline"])


# ---------------------------------------------------------------------------------------------- clients and their faults


def test_a_producer_without_idempotence_doubles_what_it_sends_again() -> None:
    """The answers of the leader are held back, so that the producer sends again what the log already has."""
    verdict = run(
        SMALL.replace("[[producer]]", "[[producer]]\nidempotence = false\nrequest_timeout = '1s'")
        + "\n[[fault]]\nat = '2s'\nkind = 'slow_network'\ntarget = 'broker 1'\ndelay = '1s'\nfor = '2s'\n"
    )
    assert verdict.total("doubled") == sum(len(doubled.offsets) - 1 for doubled in verdict.doubled) > 0
    assert verdict.failed
    doubled = verdict.doubled[0]
    record = verdict.facts.records[doubled.record]
    assert len(record.attempts) > 1
    assert "attempt 1 to broker 1" in doubled.reason[0]
    assert "no answer" in doubled.reason[0]
    appended = [line for line in doubled.reason if line.startswith("appended by broker 1")]
    assert len(appended) == len(doubled.offsets)


def test_idempotence_keeps_the_same_records_single() -> None:
    verdict = run(
        SMALL.replace("[[producer]]", "[[producer]]\nidempotence = true\nrequest_timeout = '1s'")
        + "\n[[fault]]\nat = '2s'\nkind = 'slow_network'\ntarget = 'broker 1'\ndelay = '1s'\nfor = '2s'\n"
    )
    assert any(len(record.attempts) > 1 for record in verdict.facts.records.values())
    assert (verdict.total("doubled"), verdict.total("reordered"), verdict.total("lost")) == (0, 0, 0)
    assert verdict.total("acknowledged") == 200


def test_a_power_cut_of_the_only_replica_is_named_as_the_cause() -> None:
    text = (
        SMALL.replace("[[1, 2, 3]]", "[[1]]")
        + "\n[[fault]]\nat = '4s'\nkind = 'power_cut'\ntarget = 'broker 1'\nfor = '1s'\n"
    )
    verdict = run(text)
    assert verdict.total("lost") > 0
    sentences = "\n".join(sentence for lost in verdict.lost for sentence in lost.reason)
    assert "lost in the power cut at 4.000 s" in sentences
    assert "power_cut broker 1 for 1s at 4.000 s" in sentences


def test_a_partition_without_a_leader_is_out_of_reach_and_not_lost() -> None:
    text = SMALL.replace('duration = "9s"', 'duration = "9s"\nheal = false\nsettle = "1s"').replace(
        "[[1, 2, 3]]", "[[1]]"
    )
    verdict = run(text + "\n[[fault]]\nat = '4s'\nkind = 'stop'\ntarget = 'broker 1'\n")
    assert verdict.total("lost") == 0
    assert verdict.total("unreachable") == verdict.total("acknowledged") > 0
    assert verdict.failed


def test_a_producer_gives_up_after_its_delivery_timeout() -> None:
    """With an ISR below min.insync.replicas nothing is acknowledged; what the log has then is no loss."""
    text = SMALL.replace("[[producer]]", "min.insync.replicas = 3\n[[producer]]\ndelivery_timeout = '1s'")
    verdict = run(text + "\n[[fault]]\nat = '3s'\nkind = 'stop'\ntarget = 'follower of orders-0'\nfor = '4s'\n")
    assert verdict.total("given_up") > 50
    assert verdict.total("acknowledged") + verdict.total("given_up") == verdict.total("sent") == 200
    assert not verdict.failed
    assert "Given up: orders-0" in "\n".join(verdict_lines("test.toml", verdict))


def test_acks_0_loses_without_an_answer() -> None:
    text = SMALL.replace("[[producer]]", "[[producer]]\nacks = 0")
    verdict = run(text + "\n[[fault]]\nat = '3s'\nkind = 'pause'\ntarget = 'broker 1'\nfor = '5s'\n")
    never = [lost for lost in verdict.lost if min(lost.offsets) < 0]
    assert sum(len(lost.records) for lost in verdict.lost) == verdict.total("lost") > 0
    assert all(record not in verdict.facts.appends for lost in never for record in lost.records)


def test_no_election_is_unclean_unless_a_topic_allows_it() -> None:
    """A broker leads for a moment only, in the batch of metadata that fences two brokers."""
    text = SMALL + "\n[[fault]]\nat = '5s'\nkind = 'kill'\ntarget = 'brokers'\nfor = '3s'\n"
    (partition,) = run(text).partitions
    assert [term.election for term in partition.facts.leaderships] == ["first", "none", "last leader", "clean"]


def test_members_of_a_group_read_everything() -> None:
    text = SMALL.replace("[[1, 2, 3]]", "[[1, 2, 3], [2, 3, 1]]")
    verdict = run(text + "\n[[consumer]]\ntopic = 'orders'\ngroup = 'readers'\nmembers = 2\ncommit_interval = '1s'\n")
    (consumer,) = verdict.consumers
    assert len(consumer.facts.read) == 200
    assert not verdict.failed


# ------------------------------------------------------------------------------------------------- facts without a world


def _facts(*, offset: int = 5, epoch: int = 0) -> Facts:
    """One record at an offset of broker 1, acknowledged at 1 s; broker 2 leads from 3 s on."""
    facts = Facts(end_ms=9_000.0)
    partition = facts.partitions["t", 0] = PartitionFacts(("t", 0), 1)
    partition.leaderships = [
        Leadership(0, 1, 0.0, (1, 2), "first", (), 0.0, 0),
        Leadership(1, 2, 3_000.0, (2,), "clean", (1, 2), 3_000.0, offset),
    ]
    partition.isrs = [(0.0, (1, 2)), (3_000.0, (2,))]
    partition.replicas = {1: ReplicaHistory(1), 2: ReplicaHistory(2)}
    partition.replicas[1].appended(0, offset + 1, epoch, 900.0)
    partition.replicas[2].appended(0, offset, epoch, 950.0)
    record = SentRecord("p", 0, ("t", 0), b"k", 1, 800.0, [SendAttempt(850.0, 1)], ProducerAck(1_000.0, 1, offset))
    facts.records[record.id] = record
    facts.appends[record.id] = [LeaderAppend(900.0, 1, epoch, offset)]
    return facts


def _judge(facts: Facts, final: FinalLog) -> Verdict:
    return judge_facts(parse_scenario(SMALL.encode(), "small"), 1, facts, {("t", 0): final})


def test_a_record_that_the_last_leader_lacks_is_lost() -> None:
    verdict = _judge(_facts(), FinalLog(leader=2, start=0, end=5, compacted=False))
    assert verdict.total("lost") == 1
    assert verdict.lost[0].reason == (
        "acknowledged by leader 1 (epoch 0) with acks=1 at 1.000 s; ISR 1,2; not replicated at that time",
        "broker 2 became leader at 3.000 s (clean election, epoch 1, ISR before 1,2) with log end 5",
        "broker 1 has a copy that no leader has",
    )


@pytest.mark.parametrize(("successor_end", "column"), [(6, "deleted"), (5, "lost")], ids=["with it", "without it"])
@pytest.mark.parametrize("compacted", [True, False], ids=["compaction", "retention"])
def test_a_deleted_record_is_lost_if_a_leader_began_without_it(
    successor_end: int, column: str, compacted: bool
) -> None:
    facts = _facts()
    partition = facts.partitions["t", 0]
    partition.committed = [Span(0, 6, 0)]
    partition.leaderships[1].start_end = successor_end
    later = StoredRecord(offset=8, epoch=1, id="p:9", key=b"k")
    final = FinalLog(leader=2, start=0 if compacted else 6, end=9, compacted=compacted, records=(later,))
    verdict = _judge(facts, final)
    assert {name: verdict.total(name) for name in ("lost", "deleted")} == {"lost": 0, "deleted": 0, column: 1}


def test_a_later_record_first_is_reordered() -> None:
    facts = _facts()
    facts.records["p:1"] = SentRecord("p", 1, ("t", 0), b"k", 1, 810.0)
    stored = tuple(StoredRecord(offset=n, epoch=0, id=f"p:{number}", key=b"k") for n, number in enumerate((1, 0, 1)))
    verdict = _judge(facts, FinalLog(leader=2, start=0, end=3, compacted=False, records=stored))
    assert (verdict.total("reordered"), verdict.total("doubled"), verdict.total("lost")) == (1, 1, 0)


# ---------------------------------------------------------------------------------------------------------- determinism


def test_the_same_seed_prints_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    """Neither the process nor its hashes of strings decide anything."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL + "\n[[fault]]\nat = '3s'\nkind = 'kill'\ntarget = 'leader of orders-0'\nfor = '2s'\n")
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "ottla.cli.main", "simulate", str(path), "-o", "json", "--seed", "5"]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=150, check=False)
        assert done.returncode in {0, 1}, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 1_000


def test_a_drawn_scenario_is_read_back_as_it_was_drawn() -> None:
    for seed in range(50):
        scenario = draw_scenario(seed)
        text = scenario_text(scenario, "drawn")
        assert parse_scenario(text.encode(), "drawn") == scenario
    assert draw_scenario(1) != draw_scenario(2)


# ------------------------------------------------------------------------------------------------------------ bad files

BAD = [
    ("name =", "not valid TOML"),
    ("\xff", "not UTF-8"),
    ("a = " + "[" * 5_000, "nested too deeply|not valid TOML"),
    ("[cluser]\nbrokers = 3", 'line 1, .*unknown section "cluser"; did you mean cluster?'),
    ("[topic]\nname = 'a'", r"line 1, \[\[topic\]\].*two brackets"),
    ("[[run]]\nseed = 1", r"\[run\].*one bracket"),
    ("[run]\nseed = 1", "no topic"),
    ("[cluster]\nbrokers = 8", r"line 2, \[cluster\], brokers: 8 is out of range; write a number from 1 to 7"),
    ("[cluster]\nbrokers = '3'", 'brokers: "3" is not a whole number'),
    ("[cluster]\nbroker.sesion.timeout.ms = 1", "did you mean broker.session.timeout.ms?"),
    ("[cluster]\nnode.id = 4", "the scenario decides this property"),
    ("[cluster]\nbroker.session.timeout.ms = 'soon'", "broker.session.timeout.ms"),
    ("[run]\nduration = 30", 'duration: 30 has no unit; write duration = "30s"'),
    ("[run]\nduration = '30 parsecs'", 'unknown unit "parsecs"; units are ms, s, m and h'),
    ("[run]\nduration = '2h'", '"2h" is out of range; write a time from 1s to 1h'),
    (SMALL.replace('name = "orders"', 'nme = "orders"'), 'line 7, .*unknown key "nme"; did you mean name?'),
    (SMALL.replace("replicas = [[1, 2, 3]]", "replicas = 4"), "4 replicas do not fit on 3 brokers"),
    (SMALL.replace("replicas = [[1, 2, 3]]", "replicas = [[1, 9, 3]]"), "broker 9 does not exist"),
    (SMALL.replace("replicas = [[1, 2, 3]]", "min.insync.replica = 2"), "did you mean min.insync.replicas?"),
    (SMALL.replace("replicas = [[1, 2, 3]]", "min.insync.replicas = 'two'"), "min.insync.replicas"),
    (SMALL.replace('topic = "orders"', 'topic = "order"'), 'unknown topic "order"; did you mean orders?'),
    (SMALL.replace("rate = 50", "acks = 2"), 'acks: 2 is not a value of acks; write 0, 1 or "all"'),
    (SMALL.replace("rate = 50", "acks = 1\nidempotence = true"), "idempotence needs acks"),
    (SMALL.replace("count = 200", "count = 100001"), "100001 is out of range"),
    (SMALL + "[[consumer]]\ntopic = 'orders'\nisolation = 'read_comitted'", "did you mean read_committed?"),
    (SMALL + "[[consumer]]\ntopic = 'orders'\nmembers = 2", "members has an effect only in a group"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'kil'\ntarget = 'broker 1'", 'unknown kind "kil"; did you mean kill?'),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'kill'", "kill needs target; add target"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'kill'\ntarget = 'broker 4'", "broker 4 does not exist; .*ids 1 to 3"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'kill'\ntarget = 'leader of orders-1'", "orders has 1 partitions"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'kill'\ntarget = 'leader of order-0'", "did you mean orders?"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'kill'\ntarget = 'chief of orders-0'", "unknown role"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'kill'\ntarget = 'broker 1'\ndelay = '1s'", "delay has no effect on kill"),
    (SMALL + "[[fault]]\nat = '20s'\nkind = 'kill'\ntarget = 'broker 1'", "after the end of the run"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'wipe_disk'\ntarget = 'controller 101'", "possible on brokers only"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'start'\ntarget = 'same as first'", "no earlier fault has the name"),
    (SMALL + "[[fault]]\nat = '3s'\nkind = 'partition'\ntarget = 'broker 1'", "partition needs peer"),
    (
        SMALL.replace("[[1, 2, 3]]", "1") + "[[fault]]\nat = '3s'\nkind = 'kill'\ntarget = 'follower of orders-0'",
        "has 1 replica and no follower",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_file_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message.replace("?", r"\?").replace("\\\\?", r"\?")) as raised:
        parse_scenario(text.encode("latin-1"), "bad.toml")
    problem = str(raised.value)
    assert problem.startswith("bad.toml")
    assert "\n" not in problem
    assert "Traceback" not in problem


def test_the_line_of_an_error_is_the_line_of_the_key() -> None:
    text = (
        SMALL
        + "[[fault]]\nat = '3s'\nkind = 'pause'\ntarget = 'broker 1'\n[[fault]]\nat = '4s'\nkind = 'pause'\ntarget = 'broker 7'\n"
    )
    with pytest.raises(ScenarioError) as raised:
        parse_scenario(text.encode(), "bad.toml")
    line = text.splitlines().index("target = 'broker 7'") + 1
    assert str(raised.value).startswith(f"bad.toml, line {line}, [[fault]] number 2, target: ")
