"""What the number of cores rests on."""

from __future__ import annotations

from typing import Any

import pytest

from coresim.advise.recommend import recommend
from coresim.advise.sweep import Study
from coresim.advise.uncertain import per_rate, uncertain
from coresim.errors import InputError
from coresim.model.scenario import read_scenario
from coresim.report.document import RECOMMENDATION
from coresim.report.doubt import doubt_line, own_words, sure_words
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate

PLAN = Plan(steps=100, least=4, most=8, inputs=8)


def answer(step: dict[str, Any], preprocess: dict[str, Any], confidence: float = 0.9, **more: Any) -> Any:
    tables = {
        "workload": {"batch_size": 16, "preprocess": preprocess},
        "accelerator": {"step": step, "sync": "block"},
    }
    return recommend(read_scenario(tables | more), Study(simulate, PLAN), (2,), confidence=confidence)


def test_an_uncertain_step_is_told_first_with_what_to_run() -> None:
    found = answer({"mean": "20 ms", "uncertainty": 0.3}, {"mean": "5 ms", "uncertainty": 0.03})
    # 16 x 5 ms of work in 20 ms steps: 4 cores as likely as not; a step as short as one in ten takes a third more.
    assert found.sure is not None and found.sure.cores > 1.25 * found.point.cores
    assert found.uncertain[0].name == "step" and found.uncertain[0].share == pytest.approx(0.09 / 0.0909)
    told = doubt_line(found)
    assert told is not None and "--step" in told and "99 % of the doubt" in told
    assert sure_words(found) == f"nine in ten sure with {found.sure.cores} cores"


def test_what_another_option_surely_does_is_told_with_its_name() -> None:
    # Option 2 copies between its steps, 3.0 ms of the 4.7 that the target leaves of 90 ms; option 3 beside them.
    tables = {
        "workload": {"batch_size": 16, "preprocess": "2 ms", "copy": {"mean": "3 ms", "uncertainty": 0.6}},
        "accelerator": {"step": "90 ms", "sync": "block"},
    }
    found = recommend(read_scenario(tables), Study(simulate, PLAN), (2, 3))
    likely, surely = found.options
    assert found.point == likely.answer and likely.sure is None
    assert found.sure is not None and found.sure == surely.sure
    assert found.sure.cores == found.point.cores and sure_words(found) == "nine in ten sure with option 3 (staged)"
    told = RECOMMENDATION.write(found, metadata={}, today=None)["sure"]
    assert (told["option"], told["option_name"], told["workers"]) == (3, "staged", found.sure.workers)
    alone = recommend(read_scenario(tables), Study(simulate, PLAN), (2,))
    assert alone.sure is None and sure_words(alone) == "no core count tried is nine in ten sure"


def test_what_is_certain_needs_no_measuring() -> None:
    found = answer({"mean": "20 ms"}, {"mean": "5 ms"})
    assert found.sure == found.point and doubt_line(found) is None and found.uncertain == ()
    assert sure_words(found) == "nine in ten sure"


def test_more_confidence_takes_no_fewer_cores() -> None:
    step, work = {"mean": "20 ms", "uncertainty": 0.2}, {"mean": "5 ms"}
    counts = [answer(step, work, share).sure.cores for share in (0.5, 0.8, 0.95)]
    assert counts == sorted(counts) and counts[0] < counts[-1]


@pytest.mark.parametrize("confidence", [0.0, 0.3, 1.0])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match=r"at least 0\.5 and less than 1"):
        answer({"mean": "20 ms"}, {"mean": "5 ms"}, confidence)


def test_cores_for_a_rate_do_not_depend_on_the_step() -> None:
    rates = [answer({"mean": step}, {"mean": "5 ms"}).per_rate for step in ("20 ms", "40 ms")]
    # 1,000 samples/s of 5 ms each.
    assert [rate.cores for rate in rates] == pytest.approx([5.0, 5.0])


def test_a_job_without_work_for_cores_needs_none_for_any_rate() -> None:
    found = answer({"mean": "20 ms", "uncertainty": 0.1}, {"mean": "0 ms"})
    assert per_rate(found.scenario, found.point).cores == 0.0
    assert [one.name for one in uncertain(found.scenario, found.point)] == ["step"]


def test_the_json_says_both_numbers() -> None:
    found = answer({"mean": "20 ms", "uncertainty": 0.2}, {"mean": "5 ms"}, 0.8)
    told = RECOMMENDATION.write(found, metadata={}, today=None)
    assert told["sure"]["confidence"] == 0.8
    assert told["sure"]["cores_per_gpu"] == found.sure.cores
    assert told["sure"]["probability_within_target"] >= 0.8
    assert told["cores_per_1000_samples_per_s"]["cores"] == pytest.approx(5.0)


def test_what_todays_setting_could_become_is_told_with_its_gain() -> None:
    more = {"host": {"cores": 4}, "loader": {"workers": 1}}
    found = answer({"mean": "20 ms"}, {"mean": "5 ms"}, **more)
    # One worker prepares a batch in 80 ms; four cores four of them, where steps take 20 ms.
    assert found.own_host.gain == pytest.approx(3.0, abs=0.1)
    told = own_words(found)
    assert told is not None and "today 1 worker" in told and "% samples/s" in told


def test_a_setting_that_is_as_good_as_any_is_said_to_be() -> None:
    more = {"host": {"cores": 2}, "loader": {"workers": 2}}
    told = own_words(answer({"mean": "20 ms"}, {"mean": "5 ms"}, **more))
    assert told is not None and "today's setting is as good as any, 2 workers" in told
