"""One setting has one interval wherever a report, the terminal or JSON shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from surface import read

import coresim
from coresim.advise.surface import surface_of
from coresim.advise.sweep import Point, Study
from coresim.advise.what_if import what_if
from coresim.cli.main import main
from coresim.model.option import Option
from coresim.report.answer import Answer
from coresim.report.content import Table
from coresim.report.plan import plan_report
from coresim.report.remedies import remedies_sections
from coresim.report.words import interval
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate

pytestmark = pytest.mark.usefixtures("few_places")
VARIED = {"mean": "10 ms", "cv": 1, "distribution": "lognormal", "uncertainty": 0.2}
#: What a case shows beside the recommended setting and the host's own cores, each of which it must.
MET, SURE, SHORT, TODAY = "an answer", "a surer answer", "one core short", "today's setting"
CURVE, SURFACE = "the host's cores in the curve", "the host's cores in the surface"
ALL = {MET, SURE, SHORT, CURVE, SURFACE}
JOBS: dict[str, tuple[dict[str, Any], int | None, set[str]]] = {
    "few cores": ({"cores": 2}, None, ALL),
    "the answer's cores": ({"cores": 4}, None, ALL),
    # The table of the curve ends where more cores gain nothing.
    "more cores": ({"cores": 12}, None, ALL - {CURVE}),
    "no core count": ({"cores": 2}, 3, {SHORT, CURVE, SURFACE}),
}
TOML = """
[workload]
batch_size = 64
preprocess = { mean = "6 ms", cv = 0.4, distribution = "lognormal", uncertainty = 0.1 }
collate = "2 ms"
fetch = "0.5 ms"
[accelerator]
step = { mean = "60 ms", uncertainty = 0.1 }
launch = "4 ms"
[host]
cores = 4
"""


def job(host: dict[str, Any]) -> dict[str, Any]:
    return {
        "workload": {"batch_size": 4, "preprocess": VARIED, "fetch": "1 ms"},
        "accelerator": {"step": {"mean": "10 ms", "uncertainty": 0.1}, "sync": "block"},
        "host": host,
    }


def one_interval(answer: Answer) -> set[str]:
    """Compare all that is said of one setting; which of the settings that need not be there were."""
    result, there = answer.result, set[str]()
    chosen, study = result.point.option, Study(simulate, Plan())
    remedies = what_if(result.scenario, study, ["more-workers", "more-cores"], chosen, result)
    report = plan_report(answer, simulate, {}, remedies=remedies_sections(remedies))
    facts = dict(report.facts)
    tables = [block for section in report.sections for block in section.blocks if isinstance(block, Table)]
    options = next(table.rows for table in tables if table.columns[0] == "Options")
    curve, beside = (
        next(table.rows for table in tables if table.title.startswith(words)) for words in ("GPU idle over", "On ")
    )
    by_cores = {int(row[0]): row[2] for row in curve}
    own, point = result.own_host, result.point
    assert own is not None

    def cell(found: Point) -> str:
        return interval(found.estimate)

    assert facts["Predicted GPU idle"].startswith(cell(point)) and cell(point) in str(answer).replace("\n    ", " ")
    assert by_cores[point.cores] == cell(point)
    assert cell(point) in next(row for row in options if row[0].startswith(f"{chosen} "))
    assert cell(own.point) in facts[f"On the host's {own.cores:g} cores per GPU"]
    if own.point.cores in by_cores:
        assert by_cores[own.point.cores] == cell(own.point)
        there.add(CURVE)
    assert beside[0][1] == cell(own.today or own.point)
    if own.today is not None:
        assert own.today.option == chosen
        there.add(TODAY)
    if result.meets_target:
        more = next(row for row in beside if row[0] == "more-cores")
        assert more[1] == cell(point) and beside[0][4] == str(point.cores)
        there.add(MET)
    if result.sure is not None and result.sure.option == chosen:
        assert by_cores[result.sure.cores] == cell(result.sure)
        there.add(SURE)
    if point.cores - 1 in by_cores:
        assert by_cores[point.cores - 1] in facts["One core short"]
        there.add(SHORT)
    else:
        assert "no fewer" in facts["One core short"]
    surface = surface_of(result, simulate)
    assert surface is not None
    assert point.cores in surface.cores
    for found in (point, own.point):
        if found.cores in surface.cores:
            idle, _ = read(surface, surface.step, surface.cost, found.cores)
            assert idle == pytest.approx(found.estimate.gpu_idle, abs=1e-3)
    return there | ({SURFACE} if own.point.cores in surface.cores else set())


def test_a_limit_of_cores_is_no_reason_to_buy_none() -> None:
    """Three cores are too few and five are enough: who asked for three at the most is not told that none are."""
    scenario = coresim.recommend(job({"cores": 2}), max_cores=3, options=(2,)).result
    assert not scenario.meets_target
    found = what_if(scenario.scenario, Study(simulate, Plan()), ["more-cores"], Option.OVERLAPPED, scenario)
    assert found.need_cores and found.today.minimum_cores[0] > 3


#: What the others may show is among what these show; CI tries all.
SHORT_JOBS = ("more cores", "no core count")


@pytest.mark.parametrize(
    "name", [pytest.param(job, marks=[pytest.mark.slow] * (job not in SHORT_JOBS)) for job in JOBS]
)
def test_headline_tables_verdict_and_remedies_say_the_same_of_one_setting(name: str) -> None:
    host, most, there = JOBS[name]
    assert one_interval(coresim.recommend(job(host), max_cores=most, options=(2, 3))) == there


@pytest.mark.slow
def test_so_do_they_for_a_saved_profile_and_a_scenario_s_file(profile_path: Path, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(TOML)
    small = coresim.recommend(profile_path, settings=["workload.batch_size=16", "accelerator.step=20 ms"])
    # Another option than the recommended one has the surer answer, which its curve does not show.
    assert small.result.sure is not None and small.result.sure.option != small.result.point.option
    assert one_interval(small) == ALL - {SURE}
    assert one_interval(coresim.recommend(tmp_path / "job.toml")) == ALL


def test_so_do_they_where_today_s_setting_is_known() -> None:
    today = {**job({"cores": 2}), "loader": {"workers": 3}}
    assert TODAY in one_interval(coresim.recommend(today, options=(2, 3)))


def test_recommend_and_whatif_say_the_same_of_todays_setting(
    profile_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("loader.workers=2", "workload.batch_size=16", "accelerator.step=20 ms")
    settings = ["--json", *(word for key in keys for word in ("--set", key))]
    main(["recommend", str(profile_path), *settings])
    recommended = json.loads(capsys.readouterr().out)
    main(["whatif", str(profile_path), "--remedy", "more-cores", *settings])
    beside = json.loads(capsys.readouterr().out)
    today, there = beside["today"], recommended["own_host"]["today"]
    for key in ("gpu_idle", "gpu_idle_low", "gpu_idle_high"):
        assert today[key] == there[key]
    assert beside["recommended_option"] == recommended["recommendation"]["option"]
    option = next(found for found in recommended["options"] if found["option"] == beside["option"])
    assert today["minimum_cores_low"] == option["cores_per_gpu"]


@pytest.mark.slow
def test_todays_setting_that_is_the_best_one_has_the_interval_of_the_best() -> None:
    best = coresim.recommend(job({"cores": 2}), options=(2,)).result.own_host
    assert best is not None
    loader = {"workers": best.point.workers, "prefetch_factor": best.point.prefetch_factor}
    own = coresim.recommend({**job({"cores": 2}), "loader": loader}, options=(2,)).result.own_host
    assert own is not None and own.today is not None
    assert interval(own.today.estimate) == interval(own.point.estimate)
    assert own.gain == pytest.approx(0.0, abs=1e-9)


def test_what_the_next_batch_was_in_is_not_called_the_cause() -> None:
    simulated = str(coresim.simulate(job({"cores": 2}), workers=2))
    assert re.search("starved, next batch in", simulated, re.IGNORECASE) and "starved by" not in simulated.lower()
