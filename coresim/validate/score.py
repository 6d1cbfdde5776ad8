"""How good the predictions were: errors, coverage, the noise floor, and what a miss shows of its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coresim import stats
from coresim.model.option import Option
from coresim.validate.ledger import Ledger, RecordedJob, RecordedPoint
from coresim.validate.predict import Costs

#: Relative change that an input must show before it is named as a cause.
NOTABLE = 0.05
SAMPLE, RECEIVING = "a sample's CPU time", "receiving a batch"


@dataclass(frozen=True)
class Score:
    """Errors over a set of points; shares, not percent. The throughput's are relative.

    Attributes:
        idle_mean, idle_p90, idle_p95, idle_max: absolute error of GPU idle.
        bias: mean of predicted less measured idle.
        throughput_median, throughput_p90: absolute relative error of throughput.
        covered: share of the trials that the stated interval holds, each point counting as one.
        noise_median, noise_p90: spread of repeats of one point, where there are repeats.
        rate_mean, buffer_mean: mean absolute error of idle by min(F, P, G) and by M/M/1/K.
    """

    points: int
    idle_mean: float
    idle_p90: float
    idle_p95: float
    idle_max: float
    bias: float
    throughput_median: float
    throughput_p90: float
    covered: float
    noise_median: float | None
    noise_p90: float | None
    rate_mean: float
    buffer_mean: float


def score(points: Sequence[RecordedPoint]) -> Score:
    """The score of points that have clean trials; one at least."""
    errors = [abs(point.error) for point in points]
    speeds = [abs(point.throughput_error) for point in points]
    spreads = [point.spread for point in points if point.spread is not None]
    return Score(
        points=len(points),
        idle_mean=stats.mean(errors),
        idle_p90=stats.quantile(errors, 0.9),
        idle_p95=stats.quantile(errors, 0.95),
        idle_max=max(errors),
        bias=stats.mean([point.error for point in points]),
        throughput_median=stats.median(speeds),
        throughput_p90=stats.quantile(speeds, 0.9),
        covered=stats.mean([point.held for point in points]),
        noise_median=stats.median(spreads) if spreads else None,
        noise_p90=stats.quantile(spreads, 0.9) if spreads else None,
        rate_mean=stats.mean([abs(point.rate_idle - point.idle) for point in points]),
        buffer_mean=stats.mean([abs(point.buffer_idle - point.idle) for point in points]),
    )


def cause(point: RecordedPoint, job: RecordedJob) -> str:
    """What the trial itself shows of why its prediction missed: dearer work of more idle than predicted, or cheaper."""
    changes = _explaining(point, job.costs)
    named = [
        f"{name} {change:+.0%} against the calibration" for name, change in changes.items() if abs(change) > NOTABLE
    ]
    spread = point.spread
    if spread is not None and spread >= abs(point.error):
        named.append(f"its repeats differ by {100 * spread:.1f} points")
    return "; ".join(named) or "not explained by the costs that the trial noted: the model's structure"


def cost_changes(point: RecordedPoint, costs: Costs) -> Mapping[str, float]:
    """Relative change of what the sampler, the workers and the trainer noted against what was predicted with.

    A sample beside other busy cores is held against the calibrated one over s(k), as the prediction has it.
    """
    found = {}
    trials, scenario = point.clean, costs.at(1.0).scenario
    workload, speeds = scenario.workload, scenario.host.speed
    found["the machine's pace"] = stats.mean([t.pace for t in trials]) - 1.0
    # In option 3 the calibration has the time that a thread needs for a sample, which trials do not note.
    if point.setting.option != Option.STAGED and workload.preprocess.mean > 0:
        speed = speeds[min(point.setting.busy, len(speeds)) - 1]
        found[SAMPLE] = stats.mean([t.sample_s for t in trials]) * speed / workload.preprocess.mean - 1.0
    if point.setting.option == Option.OVERLAPPED and workload.consumer.mean > 0:
        found[RECEIVING] = stats.mean([t.receive_s for t in trials]) / workload.consumer.mean - 1.0
    return found


def _explaining(point: RecordedPoint, costs: Costs) -> Mapping[str, float]:
    """The changes, 0 where one would have made the point miss the other way."""
    return {name: c if c * point.error < 0 else 0.0 for name, c in cost_changes(point, costs).items()}


def missing_term(ledger: Ledger) -> str:
    """The term that most likely lacks: the largest common change of a noted cost that explains misses, or structure."""
    changes: dict[str, list[float]] = {}
    for point in ledger.scored:
        for name, change in _explaining(point, ledger.job_of(point).costs).items():
            changes.setdefault(name, []).append(change)
    medians = {name: stats.median(found) for name, found in changes.items()}
    if not medians:
        return "no cost was noted"
    name = max(medians, key=lambda known: abs(medians[known]))
    if abs(medians[name]) > NOTABLE:
        return f"{name} changed by {medians[name]:+.0%} (median) between the calibration and the trials"
    return (
        "the costs held, so it is the organisation: order, buffers, sharing of cores or something that is not modelled"
    )
