"""Published cases, as data: what each source gives predicts what it measured, or misses as recorded, with the cause."""

from __future__ import annotations

import math
from dataclasses import replace

import cases
import pytest

EXPECTATIONS = [
    pytest.param(case, item, id=f"{case.number}-{item.run}-{item.quantity}-{item.value}")
    for case in cases.load()
    for item in case.expects
]


@pytest.mark.parametrize(("case", "item"), EXPECTATIONS)
def test_published_number_is_predicted_or_missed_as_recorded(case, item) -> None:  # type: ignore[no-untyped-def]
    found = cases.predict(case, item)
    if item.expected_miss is None:
        assert item.holds(found), f"{found} should be {item.must} {item.value}"
        return
    assert not item.holds(found), f"{found} no longer misses {item.value}: take expected_miss out"
    # A recorded miss has three digits; one that has moved deserves a look, whichever way it went.
    assert math.isclose(found, item.predicted, rel_tol=0.02), f"{found} was recorded as {item.predicted}"


def test_every_case_about_the_model_is_there_and_none_is_left_out_silently() -> None:
    # Case 15 counts a host's cores and is in test_host.py.
    assert [case.number for case in cases.load()] == list(range(1, 15))
    for case in cases.load():
        assert any(not item.calibrated for item in case.expects), case.name
        assert case.source and case.given


def test_every_expectation_says_where_its_tolerance_comes_from_and_every_miss_why() -> None:
    for case in cases.load():
        for item in case.expects:
            assert item.because and item.run in case.runs and item.over in (None, *case.runs)
            assert item.must in ("exact", "within", "relative", "between", "at most", "at least")
            assert (item.expected_miss is None) == (item.predicted is None)
            assert not (item.calibrated and item.expected_miss), f"{case.name}: a calibrated number cannot miss"


def test_an_expectation_holds_up_to_its_bounds_and_no_further() -> None:
    item = cases.Expectation("gpu_idle", 0.5, "within", "test", tolerance=0.1)
    assert [item.holds(found) for found in (0.39, 0.4, 0.6, 0.61)] == [False, True, True, False]
    relative = replace(item, must="relative", value=10.0)
    assert [relative.holds(found) for found in (8.9, 9.0, 11.0, 11.1)] == [False, True, True, False]
    between = replace(item, must="between", tolerance=0.0, value=13, high=14)
    assert [between.holds(found) for found in (12, 13, 14, 15)] == [False, True, True, False]
    most, least = (replace(item, must=must, tolerance=0.0) for must in ("at most", "at least"))
    assert [most.holds(0.5), most.holds(0.51), least.holds(0.5), least.holds(0.49)] == [True, False, True, False]
    assert not replace(item, must="exact", value=4).holds(math.nan)


def test_committed_table_is_what_the_script_writes() -> None:
    assert cases.TABLE.read_text(encoding="utf-8") == cases.table(cases.rows())
