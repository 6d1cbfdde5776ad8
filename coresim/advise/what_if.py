"""Compare remedies: the job after each remedy is simulated like today's, in all variants of the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coresim.advise.candidates import JobSetting
from coresim.advise.decide import Decision, decide
from coresim.advise.memory import Memory, memory_of
from coresim.advise.minimum_cores import minimum_cores
from coresim.advise.remedies import PROVENANCES, REMEDIES, Remedy
from coresim.advise.sweep import Point, Study, best_point, predict
from coresim.errors import InputError, did_you_mean
from coresim.model.option import Option
from coresim.model.scenario import Scenario

#: A gain in samples/s below this share is the simulation's own noise.
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class RemedyOutcome:
    """A job after a remedy (or today's, without one), on the cores that it has today.

    Attributes:
        remedy: what was done; None: today.
        idle_low, idle, idle_high: GPU idle, shares; over all variants and their intervals.
        throughput: samples/s over all accelerators, of the middle variant.
        workers: loader workers per accelerator, of the middle variant.
        cores: cores per accelerator that it runs on.
        minimum_cores: the fewest cores per accelerator that meet the target, least and most over the variants;
            None where no number of cores does.
        memory: what the loader takes, where that is known.
        possible: whether nothing known speaks against it: memory, or the size of the set.
    """

    remedy: Remedy | None
    idle_low: float
    idle: float
    idle_high: float
    throughput: float
    workers: int
    cores: float
    minimum_cores: tuple[int | None, int | None]
    memory: Memory | None
    price: str = ""
    possible: bool = True

    def helps(self, today: float) -> bool:
        """Whether it gives more samples/s than ``today``, by more than noise, and nothing known speaks against it."""
        return self.possible and self.throughput > today * (1.0 + LEAST_GAIN)


@dataclass(frozen=True)
class WhatIf:
    """Today and every remedy: those that give more samples/s first, and of those what rests on this job's own numbers.

    Remedies that rest on the same are in the order of their costs. GPU idle alone would rank wrongly: work that a
    remedy moves to the GPU keeps it busy, but not training. ``need_cores`` says whether the job needs more cores, or
    something that spares them. If the target is met, or if more cores do not meet it, the first line says not to buy
    any. ``option`` is the organisation that is looked at, ``chosen`` the one that is recommended; ``left_out``:
    remedies that spare decoding, where the job has none.
    """

    scenario: Scenario
    option: Option
    chosen: Option
    today: RemedyOutcome
    outcomes: tuple[RemedyOutcome, ...]
    need_cores: bool
    left_out: tuple[str, ...] = ()

    @property
    def best(self) -> RemedyOutcome | None:
        """What to do without more cores: the first that meets the idle target.

        If none does, the one with the most samples/s among those that rest on the same as the first that helps.
        """
        able = [
            found
            for found in self.outcomes
            if found.remedy and found.remedy.more != "cores" and found.helps(self.today.throughput)
        ]
        within = [found for found in able if found.idle <= self.scenario.target.gpu_idle]
        if within or not able:
            return next(iter(within), None)
        rank = min(map(_evidence, able))
        return max((found for found in able if _evidence(found) == rank), key=lambda found: found.throughput)


def what_if(
    scenario: Scenario,
    study: Study,
    names: Sequence[str] = (),
    option: Option = Option.OVERLAPPED,
    said: Decision | None = None,
    options: Sequence[Option] | None = None,
) -> WhatIf:
    """Simulate today's job and the remedies that apply to it.

    Args:
        scenario: the job; ``host.cores`` says what it runs on today, else what it needs is taken.
        names: which remedies; none: all that apply.
        said: the decision about the job, as for a recommendation; None: it is made here.
        options: which organisations it is asked about; None: all that the preset can be.

    Raises:
        InputError: a remedy that is not known, or does not apply to this job.
    """
    remedies = remedies_named(scenario, names)
    said = said or decide(scenario, study, options)
    answer = next((found.answer for found in said.options if found.option == option), None)
    # What was asked for may have had a limit of cores.
    needed = answer or minimum_cores(scenario, option, study)
    if (own := said.own_host) is None:
        cores = float(needed.cores if needed else 1)
        point = needed if scenario.loader.workers is None else None
    else:
        cores, point = own.cores, own.today or own.point
    if point is None or point.option != option:
        point = _point(scenario, option, cores, study, free=False)
    today = _outcome(None, (scenario,), (point,), (needed,), cores)
    outcomes = [_tried(remedy, scenario, option, cores, needed, study) for remedy in remedies]
    target = scenario.target.gpu_idle
    return WhatIf(
        scenario=scenario,
        option=option,
        chosen=said.point.option,
        today=today,
        outcomes=tuple(sorted(outcomes, key=lambda found: (not found.helps(today.throughput), _evidence(found)))),
        need_cores=today.idle > target and today.minimum_cores[0] is not None,
        left_out=() if names else tuple(found.name for found in REMEDIES if found.decodes and not found.fits(scenario)),
    )


def option_today(scenario: Scenario, otherwise: Option) -> Option:
    """Option 1 if the loader has no workers today; ``otherwise`` if it has some, or if that is not known."""
    return Option.NO_OVERLAP if scenario.loader.workers == 0 else otherwise


def _evidence(found: RemedyOutcome) -> int:
    return -1 if found.remedy is None else PROVENANCES.index(found.remedy.provenance)


def remedies_named(scenario: Scenario, names: Iterable[str] = ()) -> list[Remedy]:
    """The remedies of these names; none: all that can change anything in this job.

    Raises:
        InputError: one that is not known, or does not apply to this job.
    """
    able = {remedy.name: remedy for remedy in REMEDIES if remedy.fits(scenario)}
    known = [remedy.name for remedy in REMEDIES]
    for name in names:
        if name not in known:
            raise InputError(f"remedy {name!r}: not known; use {', '.join(known)}{did_you_mean(name, known)}")
        if name not in able:
            raise InputError(f"remedy {name!r}: {_why_not(name, scenario, able)}")
    return [able[name] for name in names] or list(able.values())


def _why_not(name: str, scenario: Scenario, able: Iterable[str]) -> str:
    if name == "no-gpu":
        return "accelerator.cpu_step is not known; give it, or measure with --cpu-step"
    if next(remedy for remedy in REMEDIES if remedy.name == name).decodes:
        share = scenario.workload.decode_share or 0.0
        return f"{share:.1%} of the preparation is known to decode; if more does, set workload.decode_share"
    return f"changes nothing in this job; use {', '.join(able)}"


def _tried(
    remedy: Remedy, scenario: Scenario, option: Option, cores: float, needed: Point | None, study: Study
) -> RemedyOutcome:
    changed = tuple(change(scenario) for change in remedy.transforms)
    if remedy.alone:
        found = _alone(remedy, scenario, changed[0], cores, study)
    elif remedy.more == "cores":
        cores = float(needed.cores) if needed else 4 * cores
        point = needed or best_point(scenario, option, cores, study)
        found = _outcome(remedy, (scenario,), (point,), (needed,), cores)
    else:
        # Workers are what a loader without any is given: then it overlaps.
        kind = scenario.preset.usual_option if remedy.more == "workers" and option == Option.NO_OVERLAP else option
        found = _changed(remedy, changed or (scenario,), kind, cores, study)
    fits = remedy.possible(scenario) and (found.memory is None or found.memory.fits)
    return replace(found, price=remedy.price_of(scenario), possible=fits)


def _changed(remedy: Remedy, variants: Sequence[Scenario], option: Option, cores: float, study: Study) -> RemedyOutcome:
    points = [_point(variant, option, cores, study, bool(remedy.more)) for variant in variants]
    return _outcome(remedy, variants, points, [minimum_cores(variant, option, study) for variant in variants], cores)


def _alone(remedy: Remedy, scenario: Scenario, changed: Scenario, cores: float, study: Study) -> RemedyOutcome:
    """Without the accelerator nobody idles; what counts is the throughput that the job loses against it."""
    found = _changed(remedy, (changed,), Option.NO_OVERLAP, cores, study)
    device = scenario.accelerator
    rate = scenario.workload.batch_size * device.count / device.step.mean
    # An idle share and a throughput of the same step are two words for one thing.
    own = scenario.workload.batch_size * device.count / changed.accelerator.step.mean
    low, middle, high = (
        max(0.0, 1.0 - own * (1.0 - idle) / rate) for idle in (found.idle_low, found.idle, found.idle_high)
    )
    found = replace(found, workers=0, minimum_cores=(None, None), memory=None)
    return replace(found, idle_low=low, idle=middle, idle_high=high)


def _outcome(
    remedy: Remedy | None,
    variants: Sequence[Scenario],
    points: Sequence[Point],
    needed: Sequence[Point | None],
    cores: float,
) -> RemedyOutcome:
    """The setting of each variant on ``cores``, and its setting with the fewest cores that meet the target."""
    counts = [point.cores if point else None for point in needed]
    middle = len(points) // 2
    estimates = [point.estimate for point in points]
    return RemedyOutcome(
        remedy=remedy,
        idle_low=min(found.gpu_idle_low for found in estimates),
        idle=sum(found.gpu_idle for found in estimates) / len(estimates),
        idle_high=max(found.gpu_idle_high for found in estimates),
        throughput=sum(found.throughput_samples_per_s for found in estimates) / len(estimates),
        workers=points[middle].workers,
        cores=cores,
        minimum_cores=(
            min((count for count in counts if count is not None), default=None),
            None if None in counts else max(count for count in counts if count is not None),
        ),
        memory=memory_of(
            variants[middle], points[middle].workers, points[middle].prefetch_factor, points[middle].option
        ),
    )


def _point(scenario: Scenario, option: Option, cores: float, study: Study, free: bool) -> Point:
    """The job's own number of workers where it has one and the remedy leaves it, else the best."""
    own, factor = scenario.loader.workers, scenario.loader.prefetch_factor
    if own is None or own == 0 or free or option == Option.NO_OVERLAP:
        return best_point(scenario, option, cores, study)
    setting = JobSetting(scenario, option, cores, own, factor)
    return Point.of(setting, predict(setting, study))
