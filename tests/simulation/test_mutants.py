"""The mutation tool and the run of all mutants: what may be changed, what is drawn, and how verdicts add up."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata.image import RECOVERING, PartitionRegistration
from ottla.model.ids import Uuid
from ottla.raft.roles.ballot import Ballot
from ottla.simulation.group_ledger import AnsweredRequest, GroupLedger
from ottla.simulation.invariants import Violation
from ottla.simulation.ledger import Ledger
from ottla.simulation.replica_invariants import ReplicaInvariants
from tests.simulation import drawn_mutations, mutants, one_mutant, planted
from tests.simulation.drawn_mutations import COUNT, DrawnMutation, draw, read_list, write_list
from tests.simulation.mutant_results import Results
from tests.simulation.mutation_operators import mutated, sites

SOURCE = '''
class Log:
    def __init__(self, size: int) -> None:
        self.size = size

    def append(self, offset: int) -> None:
        """Docs."""
        if offset < self.size and not isinstance(offset, str):
            raise ValueError(f"{offset} is below {self.size + 1}")
        log.info("appended", offset=offset + 1)
        self.write(offset)
        self.end = offset + 1

    async def close(self) -> None:
        await self.flush()
        self.files.clear()

    def __repr__(self) -> str:
        return f"{self.size - 1}"
'''


def _names(source: str) -> list[str]:
    return [f"{site.line}:{site.operator}" for site, _, _ in sites("log.py", source)]


def _changed(source: str, operator: str) -> str:
    identity = next(site.identity for site, _, _ in sites("log.py", source) if site.operator == operator)
    return ast.unparse(mutated("log.py", source, identity)[1])


def test_what_may_be_changed() -> None:
    """Not the log line, the text of the error, the check of a type, `__repr__`, nor what `__init__` sets."""
    assert _names(SOURCE) == [
        "8:drops_guard", "8:swaps_and_or", "8:swaps_bound", "11:drops_call", "11:off_by_one", "12:keeps_old_value",
        "12:off_by_one", "11:returns_early", "15:drops_await", "16:drops_call", "16:returns_early",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("drops_guard", "pass\n        log.info"),
        ("swaps_and_or", "if offset < self.size or not isinstance"),
        ("swaps_bound", "if offset <= self.size and"),
        ("drops_call", "pass\n        self.end = offset + 1"),
        ("off_by_one", "self.write(offset + 1)"),
        ("keeps_old_value", "self.write(offset)\n        pass"),
        ("returns_early", "return\n        self.write(offset)"),
        ("drops_await", "pass\n        self.files.clear()"),
    ],
)
def test_a_change(operator: str, text: str) -> None:
    assert text not in ast.unparse(ast.parse(SOURCE))
    assert text in _changed(SOURCE, operator)


def test_a_negated_condition_and_a_value_of_two() -> None:
    source = "def f(a, b):\n    while a:\n        a = b.get(a[0] if b else 7)\n    return 2 * a\n"
    assert _names(source) == ["2:negates", "3:negates", "3:off_by_one", "3:off_by_one", "4:off_by_one"]
    assert "while not a:" in _changed(source, "negates")


def test_a_place_keeps_its_identity_while_other_lines_change() -> None:
    identity = next(site.identity for site, _, _ in sites("log.py", SOURCE) if site.operator == "keeps_old_value")
    site, _ = mutated("log.py", SOURCE.replace("class Log:", "import os\n\n\nclass Log:"), identity)
    assert (site.name, site.identity) == ("log.py:15:keeps_old_value", identity)
    with pytest.raises(LookupError):
        mutated("log.py", SOURCE.replace("self.end = offset + 1", "self.end = offset + 2"), identity)


def _lines(*modules: str) -> dict[str, dict[str, set[int]]]:
    """As if the simulator executed every line of these modules."""
    return {"odd": {}, "even": {module: set(range(1_000)) for module in modules}}


def test_the_draw_repeats_itself_and_a_changed_module_changes_only_its_own_part() -> None:
    first = draw(_lines("log/moves.py", "log/cleaner.py"), [], 20)
    assert first == draw(_lines("log/moves.py", "log/cleaner.py"), [], 20)
    assert len({(row.site.module, row.site.function) for row in first}) == 20
    moves = [row for row in first if row.site.module == "log/moves.py"]
    alone = draw(_lines("log/moves.py"), [], 20)
    assert 0 < len(moves) < 20
    assert alone[: len(moves)] == moves


def test_an_equivalent_place_stays_and_the_next_place_joins() -> None:
    first = draw(_lines("log/moves.py"), [], 5)
    note = DrawnMutation(first[1].site, "even", first[1].change, equivalent="only the speed changes")
    second = draw(_lines("log/moves.py"), [first[0], note], 5)
    assert [row.site for row in second[:5]] == [row.site for row in first]
    assert (second[1].equivalent, len(second)) == ("only the speed changes", 6)


def test_the_list_is_what_was_written(tmp_path: Path) -> None:
    drawn = [*draw(_lines("log/moves.py"), [], 3)]
    drawn[0] = DrawnMutation(drawn[0].site, "all", 'a "quoted" \\ change', survives="a reason")
    write_list(drawn, tmp_path / "list.toml")
    assert read_list(tmp_path / "list.toml") == drawn


def test_most_drawn_bugs_have_their_line_still() -> None:
    """If many lines have changed: `python -m tests.simulation.drawn_mutations` draws others in their place."""
    drawn = [mutation for mutation in read_list() if not mutation.equivalent]
    present = [mutation for mutation in drawn if drawn_mutations.current(mutation) is not None]
    assert len(drawn) == COUNT
    assert len(present) > COUNT * 0.6


def test_a_bug_comes_too_late_for_a_module_that_is_imported() -> None:
    mutation = next(iter(draw(_lines("log/moves.py"), [], 1)))
    assert "ottla.log.moves" in sys.modules
    with pytest.raises(RuntimeError, match="imported already"):
        drawn_mutations.plant(mutation)


def test_a_drawn_bug_is_planted_before_the_import() -> None:
    """In a process of its own: the module has the changed line, and no file has changed."""
    code = (
        "from tests.simulation import drawn_mutations as d;"
        "rows = d.draw({'odd': {}, 'even': {'raft/roles/ballot.py': set(range(99))}}, [], 9);"
        "d.plant(next(row for row in rows if row.site.function == 'Ballot.majority'));"
        "from ottla.raft.roles.ballot import Ballot;"
        "print(Ballot(frozenset(range(7)), set()).majority)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert Ballot(frozenset(range(7)), set()).majority == 4
    assert done.stdout.strip() != "4"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("module", "function", "operator", "violation"),
    [
        ("coordinator/transactions/end_transaction.py", "EndRequest.prepared", "negates", "of the aborted transaction"),
        ("replication/put_off.py", "PutOff.do_now", "negates", "'NoneType' object is not callable"),
    ],
)
def test_a_drawn_bug_is_found(module: str, function: str, operator: str, violation: str, tmp_path: Path) -> None:
    """In one seed, which the product without the bug survives; `make mutants` has all bugs."""
    place = next(p for p in drawn_mutations.places(module) if (p.function, p.operator) == (function, operator))
    write_list([DrawnMutation(place, "even", "a change")], tmp_path / "list.toml")
    answer = mutants._process(place.name, "--list", str(tmp_path / "list.toml"), "--seeds", "1")
    assert answer["seeds"] == 1
    [[seed, found]] = answer["broken"]
    assert (seed, violation in found) == (2, True), found


def test_the_order_of_the_seeds_of_a_mutant() -> None:
    assert one_mutant.Seeds("odd").first(4) == [1, 3, 5, 7]
    assert one_mutant.Seeds("even").first(4) == [2, 4, 6, 8]
    assert one_mutant.Seeds("all").first(8) == [1, 3, 5, 2, 7, 9, 11, 4]
    with_work = [seed for seed in range(2, 81, 2) if "share" in one_mutant.kinds_of(seed)]
    assert 5 < len(with_work) < 20
    assert one_mutant.Seeds("even", ("share",)).first(40)[: len(with_work)] == with_work
    assert sorted(one_mutant.Seeds("even", ("share",)).first(40)) == list(range(2, 81, 2))


def test_every_bug_with_its_work_is_in_a_table() -> None:
    assert sorted(set(planted.WORK) - set(planted.TABLES)) == []


def test_a_seed_that_does_not_end_is_a_violation() -> None:
    with pytest.raises(one_mutant.SeedHangs), one_mutant.ended_after(0.05):
        sum(number for number in count())


def test_verdicts_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 seeds in the first run, which a later run does not repeat; seed 50 fails without a bug, and does not count."""
    asked: list[list[str]] = []

    def process(name: str, *arguments: str, seconds: float | None = None) -> dict[str, object]:
        del seconds
        asked.append([name, *arguments])
        if not name:
            return {"seeds": 1, "broken": [[50, "fails by itself"]] if arguments[1] == "50" else [], "cpu_s": 1.0}
        start = int(arguments[1])
        seed = {20: 50, 25: 62}.get(start)
        return {"seeds": 20 if seed is None else 5, "broken": [[seed, "lost"]] if seed else [], "cpu_s": 2.0}

    monkeypatch.setattr(mutants, "_process", process)
    mutant = mutants.Mutant("data/a_bug", "data", "data/a_bug")
    path = tmp_path / "verdicts"
    first = mutants.Run(Results(path), 20, None).judge(mutant)
    assert (first.found, first.seeds) == (False, 20)
    second = mutants.Run(Results(path), 200, None).judge(mutant)
    assert (second.seed, second.violation, second.seeds, second.cpu_s) == (62, "lost", 30, 6.0)
    assert [row[:3] for row in asked] == [
        ["data/a_bug", "--start", "0"], ["data/a_bug", "--start", "20"], ["", "--healthy", "50"],
        ["data/a_bug", "--start", "25"], ["", "--healthy", "62"],
    ]  # fmt: skip
    results = Results(path)
    assert (results.of("data/a_bug").seed, results.healthy, results.broken) == (62, {62}, {50: "fails by itself"})
    assert mutants.Run(results, 200, None).judge(mutant).seeds == 30
    assert [json.loads(line).get("seeds") for line in path.read_text().splitlines()] == [20, None, 5, None, 5]


# Checks that mutants asked for


def _exchange(broker: int, sent_ms: float) -> AnsweredRequest:
    return AnsweredRequest(broker, sent_ms, sent_ms + 5)


def test_a_commit_of_a_former_owner_is_a_violation() -> None:
    ledger, key = GroupLedger("group"), (Uuid(bytes(16)), 0)
    ledger.granted("a", None, key, _exchange(1, 100))
    ledger.may_commit("a", key, _exchange(1, 200))
    ledger.granted("b", None, key, _exchange(1, 300))
    ledger.may_commit("b", key, _exchange(1, 400))
    ledger.may_commit("a", key, _exchange(2, 400))  # a different coordinator, which may not be the newest
    ledger.may_commit("a", key, _exchange(1, 302))  # sent before the answer to b
    with pytest.raises(Violation, match="which b owns since 305"):
        ledger.may_commit("a", key, _exchange(1, 400))


def test_a_group_that_reads_and_never_commits_is_a_violation() -> None:
    ledger, key = GroupLedger("group"), (Uuid(bytes(16)), 0)
    ledger.polled("a", key, 0, 0, 19)
    ledger.any_commit()
    ledger.polled("a", key, 19, 19, 20)
    with pytest.raises(Violation, match="20 records were read, and no commit"):
        ledger.any_commit()
    ledger.committed("a", key, 20, -1)
    ledger.any_commit()


def _registration(epoch: int, leader: int, isr: tuple[int, ...], **more: Any) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3), isr, leader, epoch, epoch, **more)


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"),
    [
        (_registration(4, -1, (1,)), _registration(5, 2, (2,), leader_recovery_state=RECOVERING), False),
        (_registration(4, -1, ()), _registration(5, 2, (2,), leader_recovery_state=RECOVERING), False),
        (_registration(4, -1, (), last_known_elr=(1,)), _registration(5, 2, (2,), leader_recovery_state=RECOVERING), False),
        (_registration(4, -1, (), last_known_elr=(2,)), _registration(5, 2, (2,), leader_recovery_state=RECOVERING), True),
        (_registration(4, -1, (2,)), _registration(5, 2, (2,)), True),
        (_registration(3, -1, (1,)), _registration(5, 2, (2,), leader_recovery_state=RECOVERING), True),
    ],
)  # fmt: skip
def test_an_unclean_election_that_no_setting_allows_is_a_violation(
    before: PartitionRegistration, after: PartitionRegistration, is_allowed: bool
) -> None:
    """The last known leader of a partition without an ISR may lead; of epochs that nobody saw nothing is said."""
    invariants = ReplicaInvariants([], Ledger())
    for registration in (before, after):
        invariants._check_election((Uuid(bytes(16)), 0), registration)
    if is_allowed:
        invariants.check([])
    else:
        with pytest.raises(Violation, match="no setting allows the unclean election of 2"):
            invariants.check([])
