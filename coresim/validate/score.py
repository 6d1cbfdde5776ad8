"""How good the predictions were, what a miss shows of its cause, and which numbers of workers would have been chosen.

A scan is every number of workers at one step time, all else equal: which of them is recommended, which measured best,
and what an answer costs beside a sweep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coresim import stats
from coresim.model.handover import receiving
from coresim.model.option import Option
from coresim.validate.grid import Setting
from coresim.validate.ledger import Ledger, RecordedJob, RecordedPoint
from coresim.validate.predict import Costs

#: Idle, as a share, by which two settings may differ and count as equally good.
SAME = 0.01
#: How often the sweeps that people run read the whole data set for each number of workers: what most copies do of a
#: script that many public repositories have, such as ``nodule_segmentation_v1/test.py`` in github.com/vinibfr/lung_seg.
EPOCHS = 2
#: What an answer should cost at most, as a share of the sweep that it stands in for.
CHEAP = 0.1
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
        longer = receiving(point.setting.workers, workload.consumer_growth, workload.consumer_by_workers)
        found[RECEIVING] = stats.mean([t.receive_s for t in trials]) / (longer * workload.consumer.mean) - 1.0
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


@dataclass(frozen=True)
class Choice:
    """One scan of workers at one step time: what is recommended and what measured best.

    ``lost``: how much more idle the recommended workers were; ``noise``: about the standard deviation of such a
    difference, from the spread of the scan's repeats. ``rule``: what chose, such as "recommended".
    """

    setting: Setting
    recommended: int
    best: int
    lost: float
    noise: float
    rule: str = "recommended"

    @property
    def agrees(self) -> bool:
        """Whether the recommended workers are the best, or as good within `SAME` or the noise."""
        return self.recommended == self.best or self.lost <= max(SAME, self.noise)


def choices(points: Iterable[RecordedPoint]) -> list[Choice]:
    """Of every scan of three or more worker counts: fewest workers predicted within `SAME` of the best."""
    found = []
    for scan in scans_of(points):
        predicted = {point.setting.workers: point.prediction.idle for point in scan}
        found.append(choice_of(scan, predicted, {point.setting.workers: point.idle for point in scan}))
    return found


def choices_of_sweeps(points: Iterable[RecordedPoint]) -> list[Choice]:
    """What a sweep would choose: by the same rule from one pass of a scan's trials, judged by its other pass.

    It is what a recommendation can reach at best where the machine makes two passes differ.
    """
    found = []
    for scan in scans_of(points):
        if min(len(point.clean) for point in scan) < 2:
            continue
        first, second = ({p.setting.workers: p.clean[number].idle for p in scan} for number in (0, 1))
        found += [choice_of(scan, first, second, trials=1), choice_of(scan, second, first, trials=1)]
    return found


def scans_of(points: Iterable[RecordedPoint]) -> list[list[RecordedPoint]]:
    """All scans of three or more worker counts, by step time."""
    scans: dict[Setting, list[RecordedPoint]] = {}
    for point in points:
        if point.setting.option == Option.OVERLAPPED and point.setting.at:
            scans.setdefault(replace(point.setting, workers=1, repeats=1), []).append(point)
    return [found for found in scans.values() if len(found) >= 3]


def choice_of(
    scan: Sequence[RecordedPoint], expected: Mapping[int, float], measured: Mapping[int, float], trials: int = 2
) -> Choice:
    """By idle, workers to share, as expected and as measured in so many trials."""
    least = min(expected.values())
    chosen = min(workers for workers, idle in expected.items() if idle <= least + SAME)
    best = min(measured, key=lambda workers: measured[workers])
    spreads = [point.spread for point in scan if point.spread is not None]
    # Two trials of one setting differ by about as much as the means of two trials each of two settings.
    noise = stats.mean(spreads) * math.sqrt(2.0 / trials) if spreads else 0.0
    setting = replace(scan[0].setting, workers=1, repeats=1)
    return Choice(setting, chosen, best, measured[chosen] - measured[best], noise)


@dataclass(frozen=True)
class Spent:
    """What answers cost beside the sweeps that they stand in for.

    Attributes:
        answer_s: wall seconds of the calibrations and predictions of all jobs that have scans.
        sweep_s: wall seconds of the scans' own trials.
        samples: by workload, the samples of the data set from which on an answer costs `CHEAP` of the sweep that
            people run: the loader alone, `EPOCHS` passes over the data for each number of workers, as fast as these
            workers were in the scans.
    """

    answer_s: float
    sweep_s: float
    samples: Mapping[str, float]


def spent(ledger: Ledger) -> Spent | None:
    """What the ledger's answers cost; None without a scan, or where the ledger does not say it."""
    scans = scans_of(ledger.scored)
    jobs = {found[0].job for found in scans}
    answers = {number: ledger.jobs[number].seconds for number in jobs}
    if not answers or not all(answers.values()):
        return None
    sweep_s = sum((p.warm_up + p.steps) * trial.seconds_per_step for found in scans for p in found for trial in p.clean)
    samples = {
        ledger.jobs[number].workload: seconds / CHEAP / EPOCHS / _pass_s([s for s in scans if s[0].job == number])
        for number, seconds in answers.items()
    }
    return Spent(sum(answers.values()), sweep_s, samples)


def _pass_s(scans: Sequence[Sequence[RecordedPoint]]) -> float:
    """Wall seconds per sample of one pass with each number of workers, summed: each as in its fastest scan."""
    fastest: dict[int, float] = {}
    for point in (point for found in scans for point in found):
        seconds = point.seconds_per_step / point.setting.batch_size
        workers = point.setting.workers
        fastest[workers] = min(fastest.get(workers, seconds), seconds)
    return sum(fastest.values())
