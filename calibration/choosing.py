"""Cores that are recommended beside those that measured best, and what simple rules for workers would choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coresim import stats
from coresim.validate.grid import Setting
from coresim.validate.ledger import RecordedPoint
from coresim.validate.score import SAME, Choice, choice_of, scans_of

#: Cores, and the share of the measured optimum, by which a recommendation may be off and count as right.
NEAR, NEAR_SHARE = 1, 0.1
#: The numbers of workers that folklore recommends.
ALWAYS = (1, 2, 3, 4)


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
            measured = {point.setting.workers: point.idle for point in scan}
            if workers in measured:
                chosen = choice_of(scan, {workers: 0.0}, measured)
                found.setdefault(rule, []).append(replace(chosen, rule=rule))
    return found
