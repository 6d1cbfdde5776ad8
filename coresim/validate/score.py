"""How good the predictions were: errors, coverage, the noise floor, and what each effect of the model was worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coresim import stats
from coresim.model.option import Option
from coresim.model.service import read_service
from coresim.sim.estimate import Engine
from coresim.sim.run import RunLength
from coresim.validate.ledger import Ledger, RecordedJob, RecordedPoint
from coresim.validate.predict import Costs, Prediction, effects_of, predict, rate_period, without

KNEE = (0.8, 1.25)
#: Relative change that an input must show before it is named as a cause.
NOTABLE = 0.05
#: The name of all points together, beside those of workloads.
ALL = "all"
SAMPLE, RECEIVING = "a sample's CPU time", "receiving a batch"


@dataclass(frozen=True)
class Score:
    """Errors over a set of points; shares, not percent. The throughput's are relative.

    Attributes:
        points: how many.
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


def is_calibrated(point: RecordedPoint) -> bool:
    """Whether the setting is the one that the costs come from: one worker beside free cores, in order, prefetch 2.

    Such points are a kind of their own: they say little of what the model adds.
    """
    s = point.setting
    return (
        (s.option, s.workers, s.prefetch_factor, s.ordered, s.sync) == (Option.OVERLAPPED, 1, 2, True, "block")
        and s.cores > 1
        and s.ranks == 1
    )


def headline(points: Iterable[RecordedPoint]) -> list[RecordedPoint]:
    """The points that count for a headline: all but those at the calibrated setting itself, where there are others."""
    found = list(points)
    return [point for point in found if not is_calibrated(point)] or found


def grouped(points: Iterable[RecordedPoint], of: Callable[[RecordedPoint], str]) -> dict[str, Score]:
    """Scores by kind of point, in order of first appearance."""
    kinds: dict[str, list[RecordedPoint]] = {}
    for point in points:
        kinds.setdefault(of(point), []).append(point)
    return {kind: score(found) for kind, found in kinds.items()}


def near_knee(points: Iterable[RecordedPoint], jobs: Sequence[RecordedJob] = ()) -> list[RecordedPoint]:
    """Overlapped and staged points whose preparation and ingestion rates are about equal.

    Args:
        points: any.
        jobs: their ledger's; needed where a setting names a model, whose step is its own and makes the ratio.
    """
    chosen = (p for p in points if p.setting.option != Option.NO_OVERLAP and not p.setting.at and not p.setting.step_s)
    return [p for p in chosen if KNEE[0] <= _ratio(p, jobs) <= KNEE[1]]


def _ratio(point: RecordedPoint, jobs: Sequence[RecordedJob]) -> float:
    """Preparation rate over ingestion rate at that setting, by rates alone."""
    if not point.setting.model:
        return point.setting.ratio
    return point.step_s / rate_period(jobs[point.job].costs, point.setting)


def worth(ledger: Ledger, engine: Engine) -> dict[str, dict[str, float]]:
    """What each effect of the model is worth: mean absolute error of idle without it, less with it.

    By effect, the most worth first; then over `ALL` points and over those of each workload. Predicted at the pace
    around each trial, so that the machine's changes hide less of it. Nothing, in trials that cannot show an effect.
    """
    full = at_pace(ledger, engine)
    found = {}
    for effect in dict.fromkeys(name for job in ledger.jobs for name in effects_of(job.costs)):
        groups: dict[str, list[float]] = {ALL: []}
        for point in full:
            shown = effect in effects_of(ledger.job_of(point).costs)
            more = abs(_without(effect, ledger, point, engine) - point.idle) - abs(point.error) if shown else 0.0
            groups[ALL].append(more)
            groups.setdefault(point.setting.workload, []).append(more)
        found[effect] = {name: stats.mean(values) for name, values in groups.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1][ALL]))


def _without(effect: str, ledger: Ledger, point: RecordedPoint, engine: Engine) -> float:
    costs = ledger.job_of(point).costs
    length = RunLength(point.warm_up + point.steps, point.warm_up)
    setting = replace(point.setting, step_s=point.step_s)
    found = [without(effect, costs.at(trial.pace), setting, length, engine) for trial in point.clean]
    return stats.mean(found)


def repredict(ledger: Ledger, engine: Engine) -> Ledger:
    """The ledger with today's predictions for its recorded trials: what a changed model is judged by."""

    def again(point: RecordedPoint) -> RecordedPoint:
        costs = ledger.job_of(point).costs
        length = RunLength(point.warm_up + point.steps, point.warm_up)
        setting = replace(point.setting, step_s=point.step_s)
        return replace(point, prediction=predict(costs, setting, length, engine))

    return replace(ledger, points=tuple(again(point) for point in ledger.points))


def at_pace(ledger: Ledger, engine: Engine) -> tuple[RecordedPoint, ...]:
    """The points predicted for the pace that was sampled during each one's trials: it is no part of them."""

    def again(point: RecordedPoint) -> RecordedPoint:
        costs = ledger.job_of(point).costs
        length = RunLength(point.warm_up + point.steps, point.warm_up)
        setting = replace(point.setting, step_s=point.step_s)
        found = [predict(costs.at(trial.pace), setting, length, engine) for trial in point.clean]
        mean = {name: stats.mean([getattr(one, name) for one in found]) for name in Prediction.__dataclass_fields__}
        return replace(point, prediction=Prediction(**mean))

    return tuple(again(point) for point in ledger.scored)


def with_own_costs(ledger: Ledger, engine: Engine) -> tuple[RecordedPoint, ...]:
    """The points predicted anew from the mean costs that each one's own workers and trainer noted: not ahead.

    What a trial does not note (what a batch takes beyond its samples, option 3's threads) is taken at its sampled pace.

    What is still missed is the model's structure (order, buffers, sharing of cores, the hand-over); what is not, was
    that costs differed from the calibration: the machine's speed, or a contention that s(k) does not know.
    """
    return tuple(_with_own_costs(point, ledger.job_of(point).costs, engine) for point in ledger.scored)


def _with_own_costs(point: RecordedPoint, costs: Costs, engine: Engine) -> RecordedPoint:
    length = RunLength(point.warm_up + point.steps, point.warm_up)
    pace = stats.mean([trial.pace for trial in point.clean])
    changes = cost_changes(point, costs)
    tables = dict(costs.tables)
    tables["workload"] = dict(tables["workload"])
    for key, name in (("preprocess", SAMPLE), ("consumer", RECEIVING)):
        if name in changes and key in tables["workload"]:
            # The rest is taken at the sampled pace, so this part is told beside it.
            factor = (1.0 + changes[name]) / pace
            service = read_service(tables["workload"][key], key)
            tables["workload"][key] = service.scaled(factor).to_table()
    setting = replace(point.setting, step_s=point.step_s)
    return replace(point, prediction=predict(replace(costs.at(pace), tables=tables), setting, length, engine))


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
