"""How good the predictions were, what a miss shows of its cause, and which numbers of workers would have been chosen.

A scan is every number of workers at one step time, all else equal: which of them is recommended, which measured best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coresim import stats
from coresim.model.crowding import receiving
from coresim.model.option import Option
from coresim.sim.noise import NOISE
from coresim.validate.grid import Setting
from coresim.validate.ledger import Ledger, RecordedJob, RecordedPoint
from coresim.validate.predict import Costs

#: Idle, as a share, by which two settings may differ and count as equally good.
SAME = 0.01
#: Share of the scans in which numbers of workers that are truly equally good would count as equal.
HELD = 0.9
#: Relative change that an input must show before it is named as a cause.
NOTABLE = 0.05
WORK, RECEIVING, PINNING = "the CPU time to prepare a batch", "receiving a batch", "pinning a batch"
LAUNCHING = "launching a step"


@dataclass(frozen=True)
class Score:
    """Errors over a set of points; shares, not percent. The throughput's are relative.

    Attributes:
        idle_mean, idle_p95, idle_max: absolute error of GPU idle.
        bias: mean of predicted less measured idle.
        throughput_median, throughput_p90: absolute relative error of throughput.
        covered: share of the trials that the stated interval holds, each point counting as one.
        noise_median, noise_p90: spread of repeats of one point, where there are repeats.
        rate_mean, buffer_mean: mean absolute error of idle by min(F, P, G) and by M/M/1/K.
    """

    points: int
    idle_mean: float
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
    """Why the prediction missed, as far as the trial shows it: its work was dearer than calibrated, or cheaper."""
    changes = _explaining(point, job.costs)
    named = [
        f"{name} {change:+.0%} against the calibration" for name, change in changes.items() if abs(change) > NOTABLE
    ]
    spread = point.spread
    if spread is not None and spread >= abs(point.error):
        named.append(f"its repeats differ by {100 * spread:.1f} points")
    return "; ".join(named) or "not explained by the costs that the trial noted: the model's structure"


def cost_changes(point: RecordedPoint, costs: Costs) -> Mapping[str, float]:
    """Relative change of the costs that the sampler, the workers and the trainer noted, against the predicted ones.

    The cost of a batch (its samples and collation) beside other busy cores is compared with the calibrated one over
    s(k), as the prediction has it. Without overlap it is all that the trainer did to prepare the batch, as in the
    calibration.
    """
    found = {}
    # The noted CPU times have no part of what sampling takes of a CPU.
    trials, scenario = point.clean, replace(costs, slower=1.0, sampled=0.0).scenario
    workload, speeds = scenario.workload, scenario.host.speed
    found["the CPU time of the sampler's work"] = stats.mean([t.slowdown for t in trials]) - 1.0
    joining, noted = workload.collate.mean, [t.sample_s * point.setting.batch_size + t.collate_s for t in trials]
    if point.setting.option == Option.NO_OVERLAP:
        joining, noted = joining * workload.in_process_collate, [t.receive_s for t in trials]
    work = point.setting.batch_size * workload.preprocess.mean + joining
    # In option 3 the calibration has the time that a thread needs for a sample, which trials do not note.
    if point.setting.option != Option.STAGED and work > 0:
        speed = speeds[min(point.setting.busy, len(speeds)) - 1]
        found[WORK] = stats.mean(noted) * speed / work - 1.0
    if point.setting.option == Option.OVERLAPPED and workload.consumer.mean > 0:
        longer = receiving(workload, point.setting.workers, point.setting.ranks)
        found[RECEIVING] = stats.mean([t.receive_s for t in trials]) / (longer * workload.consumer.mean) - 1.0
    pins = [t.pin_s for t in trials if t.pin_s is not None]
    if pins and workload.pin.mean > 0:
        found[PINNING] = stats.mean(pins) / workload.pin.mean - 1.0
    return {**found, **_launching(point, costs)}


def _launching(point: RecordedPoint, costs: Costs) -> Mapping[str, float]:
    """Relative change of the wall time of a launch against its CPU time in the calibration.

    Only of pinned batches, whose copies the trainer does not wait for, and where its workers, on average, and the
    thread that pins leave it a core of its own. What is compared is wall time, so a wait for the interpreter's lock
    counts too.
    """
    setting, noted = point.setting, [t.launch_s for t in point.clean if t.launch_s is not None]
    if not noted or costs.training is None or not setting.pin_memory:
        return {}
    busy = [(t.sample_s * setting.batch_size + t.collate_s) / t.seconds_per_step for t in point.clean]
    others = math.ceil(stats.mean(busy)) + 1
    if others >= setting.cores:
        return {}
    speeds, launch = costs.scenario.host.speed, stats.mean(costs.training.launch) / (1.0 - costs.sampled)
    expected = launch / speeds[min(others + 1, len(speeds)) - 1]
    return {LAUNCHING: stats.mean(noted) / expected - 1.0} if expected > 0 else {}


def _explaining(point: RecordedPoint, costs: Costs) -> Mapping[str, float]:
    """The changes; 0 for one that would have made the point miss in the other direction."""
    return {name: c if c * point.error < 0 else 0.0 for name, c in cost_changes(point, costs).items()}


def missing_term(ledger: Ledger) -> str:
    """What predictions most likely lack: the largest common change of a noted cost that explains misses, if any."""
    changes: dict[str, list[float]] = {}
    for point in ledger.scored:
        for name, change in _explaining(point, ledger.job_of(point).costs).items():
            changes.setdefault(name, []).append(change)
    medians = {name: stats.median(found) for name, found in changes.items()}
    name = max(medians, key=lambda known: abs(medians[known]))
    if abs(medians[name]) > NOTABLE:
        return f"{name} changed by {medians[name]:+.0%} (median) between the calibration and the trials"
    return (
        "the costs held, so it is the organisation: order, buffers, sharing of cores or something that is not modelled"
    )


@dataclass(frozen=True)
class Choice:
    """One scan of workers at one step time: what is recommended and what measured best.

    Attributes:
        lost: how much more idle the recommended workers were.
        deviation: the standard deviation of such a difference, from the repeats of the whole scan.
        degrees: degrees of freedom that it rests on.
        others: the numbers of workers that could have measured better.
    """

    setting: Setting
    recommended: int
    best: int
    lost: float
    deviation: float
    degrees: int
    others: int

    @property
    def noise(self) -> float:
        """The most that a choice which is truly as good as the others loses in `HELD` of the scans.

        The best measured is the luckiest of several, so it is a one-sided comparison with each of the others by
        Student's t, after Bonferroni (Hsu, *Multiple Comparisons*, 1996, on comparisons with the best). 0 without
        repeats.
        """
        if not self.degrees:
            return 0.0
        return self.deviation * stats.t_quantile(1.0 - (1.0 - HELD) / self.others, self.degrees)

    @property
    def agrees(self) -> bool:
        """Whether the recommended workers are the best, or as good within `SAME` or the noise."""
        return self.recommended == self.best or self.lost <= max(SAME, self.noise)


def choices(points: Iterable[RecordedPoint]) -> list[Choice]:
    """The choice of `recommend` in every scan: the fewest workers that are predicted within `NOISE` of the best."""
    return [
        choice_of(scan, {point.setting.workers: point.prediction.idle for point in scan}) for scan in scans_of(points)
    ]


def scans_of(points: Iterable[RecordedPoint]) -> list[list[RecordedPoint]]:
    """All scans of three or more worker counts, by step time."""
    scans: dict[Setting, list[RecordedPoint]] = {}
    for point in points:
        if point.setting.option == Option.OVERLAPPED and point.setting.at:
            scans.setdefault(replace(point.setting, workers=1, repeats=1), []).append(point)
    return [found for found in scans.values() if len(found) >= 3]


def choice_of(scan: Sequence[RecordedPoint], expected: Mapping[int, float], judges: slice = slice(None)) -> Choice:
    """What is chosen by expected idle (workers to share), judged by all of each setting's trials, or by some."""
    idles = {point.setting.workers: [trial.idle for trial in point.clean[judges]] for point in scan}
    measured = {workers: stats.mean(found) for workers, found in idles.items()}
    least = min(expected.values())
    chosen = min(workers for workers, idle in expected.items() if idle <= least + NOISE)
    best = min(measured, key=lambda workers: measured[workers])
    repeats = [[trial.idle for trial in point.clean] for point in scan]
    degrees = sum(len(found) - 1 for found in repeats)
    pooled = sum((len(found) - 1) * stats.variance(found) for found in repeats) / max(1, degrees)
    deviation = math.sqrt(pooled * (1.0 / len(idles[chosen]) + 1.0 / len(idles[best])))
    setting = replace(scan[0].setting, workers=1, repeats=1)
    return Choice(setting, chosen, best, measured[chosen] - measured[best], deviation, degrees, len(scan) - 1)
