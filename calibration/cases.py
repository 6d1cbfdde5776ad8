"""Published cases predicted from what their sources give: ``python calibration/cases.py`` writes CASES.md beside it.

The cases are in ``coresim/data/cases.toml``, which says what its fields mean.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from case_file import Case, Expectation, Setting, Value, load
from pages import table as markdown

from coresim.advise.recommend import Recommendation, recommend
from coresim.advise.sweep import Study
from coresim.files import write_text
from coresim.model.build import build
from coresim.model.load import scenario_of
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Scenario
from coresim.model.storage import misses_of
from coresim.sim.draws import Draws, draw
from coresim.sim.estimate import Estimate, Plan, estimate
from coresim.sim.fast import simulate
from coresim.sim.run import Run, RunLength

TABLE = Path(__file__).with_name("CASES.md")


@dataclass(frozen=True)
class Row:
    """One line of the table: an expectation and what was predicted for it."""

    case: Case
    expectation: Expectation
    predicted: Value

    @property
    def holds(self) -> bool:
        """Whether the prediction is within its tolerance."""
        return self.expectation.holds(self.predicted)


def _scenario(case: Case, run: str) -> Scenario:
    return scenario_of(dict(case.scenario), f"case {case.number} {run}", case.runs[run].set)


def _pipeline(case: Case, run: str, workers: int | None = None) -> Pipeline:
    setting = case.runs[run]
    workers = setting.workers if workers is None else workers
    pipeline = build(_scenario(case, run), setting.option, setting.cores, workers, setting.prefetch_factor)
    # Independent jobs share the host and wait for one another nowhere.
    return pipeline if setting.jobs == 1 else replace(pipeline, ranks=setting.jobs, barrier=False)


def _simulate(setting: Setting, pipeline: Pipeline, draws: Draws, length: RunLength) -> Run:
    if not setting.samples:
        return simulate(pipeline, draws, length)
    batch = np.resize(setting.samples, pipeline.batch_size * len(setting.samples))
    sums = batch.reshape(-1, pipeline.batch_size).sum(axis=1)[:, None]
    return simulate(pipeline, Draws({**draws.service_times, "loader.preprocess": sums}), length)


@cache
def _estimate(case: Case, run: str, workers: int | None = None) -> Estimate:
    setting = case.runs[run]
    plan = Plan(case.steps, least=setting.replications, most=setting.replications)
    return estimate(_pipeline(case, run, workers), plan, lambda *job: _simulate(setting, *job))


@cache
def _recommend(case: Case, run: str) -> Recommendation:
    plan = Plan(steps=200, least=2, most=2, inputs=0)
    return recommend(_scenario(case, run), Study(simulate, plan), case.runs[run].options)


def _steps_per_s(case: Case, run: str) -> float:
    pipeline = _pipeline(case, run)
    return _estimate(case, run).throughput_samples_per_s / pipeline.batch_size / pipeline.total_ranks


def _scaling(case: Case, run: str) -> float:
    base = case.runs[run].base
    assert base is not None, f"case {case.number}, {run}: scaling needs a base"
    return _estimate(case, run).throughput_samples_per_s / _estimate(case, base).throughput_samples_per_s


def _knee_workers(case: Case, run: str) -> int:
    """Fewest workers whose idle is within a point of the least: what a recommendation calls the knee."""
    counts = range(1, case.runs[run].most_workers + 1)
    idles = {count: _estimate(case, run, count).gpu_idle for count in counts}
    return next(count for count in counts if idles[count] <= min(idles.values()) + 0.01)


def _stall_period(case: Case, run: str) -> float:
    """Steps from one stall to the next, after the line has filled; NaN unless it is always the same."""
    pipeline = _pipeline(case, run)
    trace = simulate(pipeline, draw(pipeline, case.steps, seed=1), RunLength(case.steps, trace=True)).traces[0]
    waits = [start - end for end, start in zip(trace.end, trace.start[1:], strict=False)][case.steps // 4 :]
    longest = max(waits)
    stalls = [step for step, wait in enumerate(waits) if wait > longest / 2]
    periods = {after - before for before, after in pairwise(stalls)}
    return periods.pop() if len(periods) == 1 else math.nan


def _own_verdict(case: Case, run: str) -> str:
    own = _recommend(case, run).own_host
    return "no cores given" if own is None else own.verdict.name


def _missed_share(case: Case, run: str) -> float:
    misses = misses_of(_scenario(case, run))
    assert misses is not None, f"case {case.number}, {run}: missed_share needs the sizes of the set and the memory"
    return misses.share


QUANTITIES: dict[str, Callable[[Case, str], Value]] = {
    "gpu_idle": lambda case, run: _estimate(case, run).gpu_idle,
    "samples_per_s": lambda case, run: _estimate(case, run).throughput_samples_per_s,
    "steps_per_s": _steps_per_s,
    "s_per_step": lambda case, run: 1.0 / _steps_per_s(case, run),
    "busy_cores": lambda case, run: _estimate(case, run).busy_cores,
    "scaling": _scaling,
    "knee_workers": _knee_workers,
    "stall_period": _stall_period,
    "missed_share": _missed_share,
    "recommended_cores": lambda case, run: _recommend(case, run).point.cores,
    "recommended_workers": lambda case, run: _recommend(case, run).point.workers,
    "own_verdict": _own_verdict,
}


def predict(case: Case, expectation: Expectation) -> Value:
    """What coresim says of an expectation's quantity."""
    quantity = QUANTITIES[expectation.quantity]
    found = quantity(case, expectation.run)
    return found if expectation.over is None else float(found) / float(quantity(case, expectation.over))


def rows() -> list[Row]:
    """Every expectation with its prediction; the misses first, then by case."""
    found = [Row(case, item, predict(case, item)) for case in load() for item in case.expects]
    return sorted(found, key=lambda row: (row.holds, row.case.number))


def table(found: list[Row]) -> str:
    """The text of CASES.md."""
    predictions = [row for row in found if not row.expectation.calibrated]
    misses = sum(not row.holds for row in predictions)
    head = (
        "# Published cases: predicted and measured\n\n"
        "Written by `calibration/cases.py` from `coresim/data/cases.toml`; do not edit. Misses come first.\n\n"
        f"Of {len(predictions)} predictions {len(predictions) - misses} are within their tolerance and {misses} miss.\n"
        f"The other {len(found) - len(predictions)} rows, marked *given*, follow from numbers that went into the"
        " inputs:\nthey show only that the inputs are in order. These are other people's machines, of which each\n"
        "source states a part: they test the shape of the model, not its accuracy."
    )
    lines = ["case", "quantity", "predicted", "published", "must be", "error", "why"]
    return "\n".join([head, "", markdown(lines, map(_cells, found)), "", *_sources(), ""])


def _cells(row: Row) -> list[str]:
    item, case = row.expectation, row.case
    what = item.quantity.replace("_", " ") + (f" over {item.over}" if item.over else "")
    why = "*given*; " + item.because if item.calibrated else item.expected_miss or item.because
    mark = "" if row.holds else "**miss** "
    place = f"{case.number} {case.name}" + (f": {item.run}" if item.run else "")
    published = _show(item, item.value) + (f" to {item.high:g}" if item.high else "")
    return [place, what, _show(item, row.predicted), published, _bounds(item), mark + _error(row), why]


def _is_share(item: Expectation) -> bool:
    return item.quantity in ("gpu_idle", "missed_share") and item.over is None


def _show(item: Expectation, value: Value) -> str:
    if isinstance(value, str):
        return value
    if _is_share(item):
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _bounds(item: Expectation) -> str:
    if item.must == "relative":
        return f"+- {100 * item.tolerance:g} %"
    if item.must == "within":
        return f"+- {100 * item.tolerance:g} points" if _is_share(item) else f"+- {item.tolerance:g}"
    return item.must


def _error(row: Row) -> str:
    found, value = row.predicted, row.expectation.value
    if isinstance(found, str) or isinstance(value, str):
        return "none" if row.holds else "differs"
    if row.holds and row.expectation.must in ("at most", "at least", "between"):
        return "none"
    share = _is_share(row.expectation)
    error = 100 * (found - value if share else found / value - 1)
    # Adding zero turns -0.0, which rounding may give or not, into +0.0.
    return f"{round(error, 1) + 0.0:+.1f} {'points' if share else '%'}"


def _sources() -> list[str]:
    cells = [[f"{case.number} {case.name}", case.source, case.given, case.assumed] for case in load()]
    return ["## What each case takes from its source", "", markdown(["case", "source", "given", "assumed"], cells)]


def main() -> int:
    """Write the table; the exit status says whether every prediction is as recorded, misses included."""
    found = rows()
    text = table(found)
    write_text(TABLE, text)
    print(text)
    return int(any(row.holds is (row.expectation.expected_miss is not None) for row in found))


if __name__ == "__main__":
    sys.exit(main())
