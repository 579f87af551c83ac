"""docs/seeds.md names the tests that only `make soak` runs, as the tests are marked."""

from __future__ import annotations

import pytest
from tools.seeds_docs import NONE, PAGE, PART, WHOLE, mark_of, page

MODULE = "pytestmark = [pytest.mark.timeout(9), pytest.mark.soak]\ndef test_a(): ...\nclass TestB:\n    def test_b(self): ..."
SINGLE = "slow = pytest.mark.soak\n@slow\ndef test_a(): ...\ndef test_b(): ..."
PARAMETER = "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=[pytest.mark.soak])])\ndef test_a(n): ..."
NAMED = "SIZES = [1, pytest.param(2, marks=pytest.mark.soak)]\n@pytest.mark.parametrize('n', SIZES)\ndef test_a(n): ..."
CLASS = "@pytest.mark.soak\nclass TestA:\n    def test_a(self): ...\ndef test_b(): ..."


def test_the_page_has_the_marks_of_the_tests():
    text = PAGE.read_text()
    assert page(text) == text, "run `make docs`"
    assert "`tests/pipelines/test_vocabulary.py` (soak)" in text
    assert "`tests/pipelines/test_vocabulary_compact.py`," in text, "runs in `make test`"


def test_wrong_marks_are_replaced():
    assert page("`tests/pipelines/test_vocabulary.py`") == "`tests/pipelines/test_vocabulary.py` (soak)"
    assert page("`tests/test_docs.py` (soak) and more") == "`tests/test_docs.py` and more"
    assert page("`tests/test_docs.py::test_links_lead_somewhere` (in part soak)") == (
        "`tests/test_docs.py::test_links_lead_somewhere`"
    )


@pytest.mark.parametrize(
    ("source", "test", "mark"),
    [
        (MODULE, None, WHOLE),
        (MODULE, "test_b", WHOLE),
        (SINGLE, None, PART),
        (SINGLE, "test_a", WHOLE),
        (SINGLE, "test_b", NONE),
        (PARAMETER, "test_a", PART),
        (NAMED, None, PART),
        (CLASS, "test_a", WHOLE),
        (CLASS, "test_b", NONE),
    ],
)
def test_the_mark_of_a_test(source, test, mark):
    assert mark_of(source, test) == mark
