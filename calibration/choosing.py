"""Cores and workers that are recommended beside those that measured best, what sweeps and simple rules would choose,
and what an answer costs beside a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coresim import stats
from coresim.validate.grid import Setting
from coresim.validate.ledger import Ledger, RecordedPoint
from coresim.validate.score import SAME, Choice, choice_of, scans_of

#: Cores, and the share of the measured optimum, by which a recommendation may be off and count as right.
NEAR, NEAR_SHARE = 1, 0.1
#: The numbers of workers that folklore recommends.
ALWAYS = (1, 2, 3, 4)
#: How often the sweeps that people run read the whole data set for each number of workers: what most copies do of a
#: script that many public repositories have, such as ``nodule_segmentation_v1/test.py`` in github.com/vinibfr/lung_seg.
EPOCHS = 2
#: What an answer should cost at most, as a share of the sweep that it stands in for.
CHEAP = 0.1


@dataclass(frozen=True)
class CoreChoice:
    """One job at several core counts: the fewest cores predicted, and measured, as good as any tried.

    Attributes:
        setting: what the points have in common; its cores and workers say nothing.
        tried: the core counts.
        recommended: fewest cores predicted within `SAME` of the least idle.
        optimum: fewest cores measured within `SAME`, or the noise, of the least idle.
    """

    setting: Setting
    tried: tuple[int, ...]
    recommended: int
    optimum: int

    @property
    def agrees(self) -> bool:
        """Whether the recommendation is within `NEAR` cores, or `NEAR_SHARE`, of the optimum."""
        return abs(self.recommended - self.optimum) <= max(NEAR, NEAR_SHARE * self.optimum)

    @property
    def too_few(self) -> bool:
        """Whether it is that much below: the GPU would wait."""
        return not self.agrees and self.recommended < self.optimum


def core_choices(points: Iterable[RecordedPoint]) -> list[CoreChoice]:
    """Of every job in training that was tried with several core counts, all else but its workers equal.

    Each core count is as good as the best of its worker counts. An emulated accelerator's step time follows the cores
    and workers (`ratio`), so that its points cannot be compared.

    Args:
        points: those with a clean trial.
    """
    jobs: dict[Setting, list[RecordedPoint]] = {}
    for point in points:
        if point.setting.model:
            jobs.setdefault(replace(point.setting, cores=1, workers=1, repeats=1), []).append(point)
    return [_choice(job, found) for job, found in jobs.items() if len({p.setting.cores for p in found}) > 1]


def _choice(job: Setting, points: Sequence[RecordedPoint]) -> CoreChoice:
    spreads = [point.spread for point in points if point.spread is not None]
    noise = stats.mean(spreads) if spreads else 0.0
    predicted, measured = _best((p, p.prediction.idle) for p in points), _best((p, p.idle) for p in points)
    return CoreChoice(job, tuple(sorted(measured)), _fewest(predicted, SAME), _fewest(measured, max(SAME, noise)))


def _best(idles: Iterable[tuple[RecordedPoint, float]]) -> dict[int, float]:
    """By cores, the least idle of any number of workers."""
    best: dict[int, float] = {}
    for point, idle in idles:
        best[point.setting.cores] = min(idle, best.get(point.setting.cores, idle))
    return best


def _fewest(idles: Mapping[int, float], same: float) -> int:
    least = min(idles.values())
    return min(cores for cores, idle in idles.items() if idle <= least + same)


def choices_of_rules(points: Iterable[RecordedPoint], cores: int) -> dict[str, list[Choice]]:
    """What a child would choose in each scan, held against what measured best: by rule, one choice a scan.

    Args:
        points: any.
        cores: of the machine.

    Always so many workers, or as many as there are cores; a scan that did not try that number is left out.
    """
    scans = scans_of(points)
    rules = {f"always {count}": count for count in ALWAYS} | {f"workers = cores ({cores})": cores}
    found: dict[str, list[Choice]] = {}
    for rule, workers in rules.items():
        for scan in scans:
            if any(point.setting.workers == workers for point in scan):
                chosen = choice_of(scan, {workers: 0.0})
                found.setdefault(rule, []).append(chosen)
    return found


def choices_of_sweeps(points: Iterable[RecordedPoint]) -> list[Choice]:
    """What a sweep would choose: by the same rule from one pass of a scan's trials, judged by its other pass.

    It is what a recommendation can reach at best where the machine makes two passes differ.
    """
    found = []
    for scan in scans_of(points):
        if min(len(point.clean) for point in scan) < 2:
            continue
        for first, other in ((0, 1), (1, 0)):
            expected = {point.setting.workers: point.clean[first].idle for point in scan}
            found.append(choice_of(scan, expected, slice(other, other + 1)))
    return found


def within_deviation(choice: Choice) -> bool:
    """Whether the choice is the best, or loses no more than `SAME` or one standard deviation.

    Where repeats differ by a point or more, numbers of workers that are in truth equally good fail it in a quarter of
    the scans: the best measured is the luckiest of several.
    """
    return choice.recommended == choice.best or choice.lost <= max(SAME, choice.deviation)


@dataclass(frozen=True)
class Spent:
    """What answers cost beside the sweeps that they stand in for.

    Attributes:
        answer_s: wall seconds of one calibration with its predictions: the mean for each job that has scans, summed
            over the jobs.
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
    # A job that is calibrated anew after some trials has several calibrations, each of which is an answer.
    groups: dict[tuple[object, ...], list[list[RecordedPoint]]] = {}
    for scan in scans:
        groups.setdefault(scan[0].setting.job, []).append(scan)
    seconds = {job: [ledger.jobs[n].seconds for n in {scan[0].job for scan in found}] for job, found in groups.items()}
    if not groups or not all(map(all, seconds.values())):
        return None
    answers = {job: stats.mean(each) for job, each in seconds.items()}
    sweep_s = sum((p.warm_up + p.steps) * trial.seconds_per_step for found in scans for p in found for trial in p.clean)
    samples = {
        groups[job][0][0].setting.workload: answer / CHEAP / EPOCHS / _pass_s(groups[job])
        for job, answer in answers.items()
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


def cost_text(cost: Spent) -> str:
    """What answers cost beside the scans' own trials, and beside the sweep that people run."""
    # To two significant digits.
    sizes = ", ".join(f"{workload} {int(float(f'{samples:.1e}')):,}" for workload, samples in cost.samples.items())
    return (
        f"the answers took {cost.answer_s:.0f} s, the trials of their scans {cost.sweep_s:.0f} s. Reading the whole"
        f" data set {EPOCHS} times with each number of workers, as published sweeps do, takes {1 / CHEAP:.0f} times as"
        f" long as the answer from so many samples on: {sizes}."
    )
