"""What the pages of this folder ask of a ledger: kinds of points, and its trials predicted anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pandas as pd

from coresim import stats
from coresim.model.option import Option
from coresim.model.service import read_service
from coresim.sim.estimate import Engine
from coresim.validate.grid import Setting
from coresim.validate.ledger import Ledger, RecordedJob, RecordedPoint
from coresim.validate.predict import Costs, Prediction, chance, predict, rate_period
from coresim.validate.score import LAUNCHING, PINNING, RECEIVING, WORK, Score, cost_changes, score

KNEE = (0.8, 1.25)
#: Workers from which on a setting is a kind of its own.
MANY = 8


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


def kind_of(point: RecordedPoint) -> str:
    """What kind of setting it is, in words."""
    s = point.setting
    if s.option != Option.OVERLAPPED:
        return f"option {s.option}"
    if is_calibrated(point):
        return "the calibrated setting: one worker"
    if s.trains:
        trained = "an emulated device" if s.is_emulated else s.trains
        return trained + (", pinned" if s.pin_memory else "") + (f", {s.run_ahead} ahead" if s.run_ahead != 1 else "")
    if s.ranks > 1:
        return f"{s.ranks} ranks" + (", a straggler" if s.straggler > 1.0 else "")
    if s.workers >= MANY:
        return f"{s.workers} workers" + ("" if s.ordered else ", out of order")
    if s.limit == "quota":
        return "one core by quota"
    if s.cores == 1:
        return "one core"
    return "spinning trainer" if s.sync == "spin" else "loader, two cores" if s.ordered else "out of order"


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


def tried(point: RecordedPoint) -> Setting:
    """Its setting with the step time that it came to."""
    return replace(point.setting, step_s=point.step_s)


def repredict(ledger: Ledger, engine: Engine) -> Ledger:
    """The ledger with today's predictions for its recorded trials: what a changed model is judged by."""

    def again(point: RecordedPoint) -> RecordedPoint:
        costs = ledger.job_of(point).costs
        return replace(point, prediction=predict(costs, tried(point), point.length, engine))

    return replace(ledger, points=tuple(again(point) for point in ledger.points))


def at_sampled_speed(ledger: Ledger, engine: Engine) -> tuple[RecordedPoint, ...]:
    """The points predicted for the machine's speed that was sampled during each one's trials: it is no part of them."""

    def again(point: RecordedPoint) -> RecordedPoint:
        costs = ledger.job_of(point).costs
        found = [
            predict(replace(costs, slower=trial.slowdown), tried(point), point.length, engine) for trial in point.clean
        ]
        mean = {name: stats.mean([getattr(one, name) for one in found]) for name in Prediction.__dataclass_fields__}
        return replace(point, prediction=Prediction(**mean))

    return tuple(again(point) for point in ledger.scored)


def wandering(ledgers: Iterable[Ledger]) -> tuple[int, float]:
    """How many calibrations there were, and how many times their own spread the speed in their trials is off.

    Eight of ten trials lie within 1.28 standard deviations of a normal distribution of that spread; each calibration
    counts the same, however many trials it has.
    """
    found, shares = [], [(place + 0.5) / 10 for place in range(10)]
    for ledger in ledgers:
        for job in ledger.jobs:
            points = [point for point in ledger.scored if ledger.job_of(point) is job]
            off = [abs(math.log(trial.slowdown)) for point in points for trial in point.clean]
            costs = job.costs
            # Ledgers of before did not keep the spread; a sample's uncertainty is hardly more.
            own = costs.spread / costs.drift or costs.scenario.workload.preprocess.uncertainty
            if off and own:
                found.append([stats.quantile(off, share) / own for share in shares])
    pooled = [ratio for ratios in found for ratio in ratios]
    return len(found), stats.quantile(pooled, 0.8) / stats.normal_quantile(0.9) if pooled else 0.0


def by_chance(ledger: Ledger, engine: Engine) -> float:
    """Mean distance of a trial's idle from its expectation, a share, if all were as the model says: samples differ.

    No model can be nearer to single trials on average. Normal distributions: the mean distance is sqrt(2 / pi) of the
    standard deviation.
    """
    found = [
        chance(ledger.job_of(point).costs, tried(point), point.length, engine) for point in headline(ledger.scored)
    ]
    return math.sqrt(2.0 / math.pi) * stats.mean(found)


def with_own_costs(ledger: Ledger, engine: Engine) -> tuple[RecordedPoint, ...]:
    """The points predicted anew from the mean costs that each one's own workers and trainer noted: not ahead.

    What a trial does not note (a batch beyond its samples, threads of option 3) is taken at the sampled speed.

    What is still missed is the model's structure (order, buffers, sharing of cores, the hand-over); what is not, was
    that costs differed from the calibration: the machine's speed, or a contention that s(k) does not know.
    """
    return tuple(_with_own_costs(point, ledger.job_of(point).costs, engine) for point in ledger.scored)


def ledger_frame(ledger: Ledger) -> pd.DataFrame:
    """One row for each point of a validation that counts: its setting, idle measured and predicted, in percent."""
    names = ("workload", "option", "workers", "cores", "prefetch_factor", "sync", "ordered")
    rows = [
        {
            **{name: getattr(point.setting, name) for name in names},
            "step_ms": 1e3 * point.step_s,
            "measured_idle_percent": 100 * point.idle,
            "predicted_idle_percent": 100 * point.prediction.idle,
            "error_points": 100 * point.error,
            "rates_idle_percent": 100 * point.rate_idle,
            "queue_idle_percent": 100 * point.buffer_idle,
            "covered": point.covered,
        }
        for point in ledger.scored
    ]
    return pd.DataFrame(rows)


def _with_own_costs(point: RecordedPoint, costs: Costs, engine: Engine) -> RecordedPoint:
    slowdown = stats.mean([trial.slowdown for trial in point.clean])
    changes = cost_changes(point, costs)
    tables = dict(costs.tables)
    tables["workload"] = dict(tables["workload"])
    for key, name in (("preprocess", WORK), ("collate", WORK), ("consumer", RECEIVING), ("pin", PINNING)):
        if name in changes and key in tables["workload"]:
            # The rest is taken at the sampled speed, so this part is told beside it.
            factor = (1.0 + changes[name]) / slowdown
            service = read_service(tables["workload"][key], key)
            tables["workload"][key] = service.scaled(factor).to_table()
    costs = replace(costs, slower=slowdown, tables=tables)
    if costs.training is not None and LAUNCHING in changes:
        factor = (1.0 + changes[LAUNCHING]) / (1.0 if point.setting.is_emulated else slowdown)
        launch = tuple(factor * seconds for seconds in costs.training.launch)
        costs = replace(costs, training=replace(costs.training, launch=launch))
    return replace(point, prediction=predict(costs, tried(point), point.length, engine))
