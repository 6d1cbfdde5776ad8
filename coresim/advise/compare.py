"""Two profiles of one job: what really changed between them, what is noise, and what it does to the cores needed.

The test: Student's two-sample t on the logarithms of the means of fresh processes, equal spreads assumed because the
protocol is the same. For a quantity that was taken in one process (bandwidth, a hand-over) the spread between the
processes of the preparation stands in: repeats within a process agree far better than processes do. A change is real if
its interval, at a level at which all quantities together are wrong in 5 % of comparisons (Bonferroni), leaves out zero.
What differs between two days and not between processes (another load, another clock) is not in that spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from coresim import stats
from coresim.advise.need import cores_needed
from coresim.advise.sweep import Study
from coresim.errors import InputError
from coresim.model.measurement import Measurement
from coresim.model.profile import Profile
from coresim.model.scenario import Scenario

LEVEL = 0.95
TOTAL, SAMPLE_STEP = "prepare.sample", "prepare.step."
STEP, BANDWIDTH = "accelerator.step", "bandwidth.triad."
Sample = tuple[float, ...]
ReadProfile = Callable[[Profile], Scenario]


@dataclass(frozen=True)
class Change:
    """One quantity in both profiles.

    Attributes:
        name: a measurement's name, or ``preparation`` for all steps of preparing a sample together.
        unit: of ``old`` and ``new``.
        old, new: means (geometric, over ``repeats``).
        low, high: interval of the relative change; ``high`` is infinite where no spread is known.
        repeats: what the test rests on.
        more_is_worse: whether growth is a loss (a time) or a gain (a bandwidth).
        cores: cores per GPU if this alone had changed; None where that was not asked, or no core count will do.
    """

    name: str
    unit: str
    old: float
    new: float
    low: float
    high: float
    repeats: str
    more_is_worse: bool = True
    cores: int | None = None

    @property
    def relative(self) -> float:
        """(new - old) / old."""
        return self.new / self.old - 1.0

    @property
    def is_real(self) -> bool:
        """Whether the interval leaves out no change."""
        return not self.low <= 0.0 <= self.high

    @property
    def loss(self) -> float:
        """The relative change for the worse, in cost: 0.25 for a time x 1.25 or a bandwidth / 1.25; below 0: a gain."""
        return self.relative if self.more_is_worse else self.old / self.new - 1.0


@dataclass(frozen=True)
class Comparison:
    """All changes, and the cores per GPU needed before and with every real change; None: no core count will do."""

    changes: tuple[Change, ...]
    option: int
    target: float
    cores_old: int | None
    cores_new: int | None
    cautions: tuple[str, ...]

    @property
    def real(self) -> tuple[Change, ...]:
        """The real changes."""
        return tuple(change for change in self.changes if change.is_real)

    def losses_over(self, limit: float) -> tuple[Change, ...]:
        """Real changes for the worse by more than ``limit``, a share of the old cost."""
        return tuple(change for change in self.real if change.loss > limit)


def compare(old: Profile, new: Profile, read: ReadProfile, study: Study, option: int = 2) -> Comparison:
    """Compare two profiles of one job.

    Args:
        old, new: the profiles.
        read: makes the scenario of a profile, with the user's overrides.
        study: engine and plan for the cores needed.
        option: organisation of the pipeline, 1 to 3.

    Raises:
        InputError: the profiles are not of one job (another batch size, or no quantity in both).
    """
    if old.batch_size != new.batch_size:
        raise InputError(
            f"batch_size: {old.batch_size} in the old profile, {new.batch_size} in the new: measure both with one"
            " batch size (--batch-size)"
        )
    changes = find_changes(old, new)
    scenario = read(old)
    before = _cores(scenario, option, study)
    priced = tuple(
        replace(change, cores=_cores(read(applied(old, new, [change])), option, study)) if change.is_real else change
        for change in changes
    )
    # The total stands for its steps: where it is real it has their changes in it, real or not.
    after = _cores(read(applied(old, new, _independent(priced))), option, study)
    return Comparison(priced, option, scenario.target.gpu_idle, before, after, tuple(_cautions(old, new)))


def _cores(scenario: Scenario, option: int, study: Study) -> int | None:
    found = cores_needed(scenario, option, study)
    return found.cores if found else None


def _independent(changes: Sequence[Change]) -> list[Change]:
    real = [change for change in changes if change.is_real]
    if all(change.name != TOTAL for change in real):
        return real
    return [change for change in real if not change.name.startswith(SAMPLE_STEP)]


def find_changes(old: Profile, new: Profile) -> tuple[Change, ...]:
    """Every quantity that both profiles have and that the cores needed depend on.

    Raises:
        InputError: they have none in common.
    """
    pairs = list(_pairs(old, new))
    if not pairs:
        raise InputError("the profiles have no quantity in common; measure the same job twice")
    level = 1.0 - (1.0 - LEVEL) / len(pairs)
    stand_in = _logs(_total(old)), _logs(_total(new))
    return tuple(_change(*pair, stand_in, level) for pair in pairs)


def _pairs(old: Profile, new: Profile) -> Iterator[tuple[str, str, Sample, Sample, bool]]:
    """Name, unit, process means of both, and whether the value was given and not measured."""
    steps = [m.name for m in old.measurements if m.name.startswith(SAMPLE_STEP)]
    for name in (TOTAL, *steps, "prepare.collate", "prepare.send", "receive.cpu", _largest(old, new), STEP):
        before, after = old.get(name), new.get(name)
        if before is not None and after is not None and min(*before.process_means, *after.process_means) > 0:
            yield name, before.unit, before.process_means, after.process_means, False
    given = old.accelerator.step_time_s, new.accelerator.step_time_s
    if given[0] is not None and given[1] is not None:
        yield STEP, "s/step", (given[0],), (given[1],), True


def _total(profile: Profile) -> Sample:
    return profile[TOTAL].process_means


def _largest(old: Profile, new: Profile) -> str:
    """Bandwidth with the most cores that both were measured with."""
    names = {m.name for m in old.measurements} & {m.name for m in new.measurements}
    cores = [int(name.removeprefix(BANDWIDTH)) for name in names if name.startswith(BANDWIDTH)]
    return f"{BANDWIDTH}{max(cores, default=0)}"


def _change(
    name: str, unit: str, old: Sample, new: Sample, given: bool, stand_in: tuple[Sample, Sample], level: float
) -> Change:
    before, after = _logs(old), _logs(new)
    ratio, several = stats.mean(after) - stats.mean(before), min(len(old), len(new)) > 1
    spread = (before, after) if several else stand_in
    half = 0.0 if given else _half_width(*spread, (len(old), len(new)), level)
    processes = f"{len(old)} and {len(new)} processes"
    return Change(
        name,
        unit,
        math.exp(stats.mean(before)),
        math.exp(stats.mean(after)),
        math.exp(ratio - half) - 1.0,
        math.exp(ratio + half) - 1.0,
        "given" if given else processes if several else f"{processes}, spread of the preparation",
        more_is_worse=not name.startswith(BANDWIDTH),
    )


def _logs(sample: Sample) -> Sample:
    return tuple(math.log(value) for value in sample if value > 0)


def _half_width(old: Sample, new: Sample, sizes: tuple[int, int], level: float) -> float:
    """Half-width of a difference of means of so many processes, by the pooled spread of ``old`` and ``new``."""
    degrees = len(old) + len(new) - 2
    if min(len(old), len(new)) < 1 or degrees < 1:
        return math.inf
    pooled = ((len(old) - 1) * stats.variance(old) + (len(new) - 1) * stats.variance(new)) / degrees
    return stats.t_quantile(0.5 + level / 2, degrees) * math.sqrt(pooled * sum(1 / size for size in sizes))


def applied(old: Profile, new: Profile, changes: Sequence[Change]) -> Profile:
    """The old profile with these changes only: times in proportion; for bandwidth the new profile's fitted s(k)."""
    factors = {change.name: change.new / change.old for change in changes}
    if TOTAL in factors:
        factors |= {m.name: factors[TOTAL] for m in old.measurements if m.name.startswith(SAMPLE_STEP)}
    source, given = old.accelerator, old.accelerator.step_time_s
    if given is not None:
        source = replace(source, step_time_s=given * factors.get(STEP, 1.0))
    measured = tuple(
        m if m.name.startswith(BANDWIDTH) else _scaled(m, factors.get(m.name, 1.0)) for m in old.measurements
    )
    found = replace(old, accelerator=source, measurements=measured)
    if any(name.startswith(BANDWIDTH) for name in factors):
        return replace(found, speed=new.speed, speed_uncertainty=new.speed_uncertainty)
    return found


def _scaled(measurement: Measurement, factor: float) -> Measurement:
    if factor == 1.0:
        return measurement
    return replace(measurement, values=tuple(tuple(v * factor for v in part) for part in measurement.values))


def _cautions(old: Profile, new: Profile) -> Iterator[str]:
    if old.host.fingerprint != new.host.fingerprint:
        yield f"two kinds of machine: {old.host.cpu_model} and {new.host.cpu_model}; a change may be the machine's"
    if old.workload != new.workload:
        yield f"two jobs by name: {old.workload!r} and {new.workload!r}"
    versions = [
        (p.provenance.python_version, p.provenance.numpy_version, p.provenance.torch_version) for p in (old, new)
    ]
    if versions[0] != versions[1]:
        yield "Python, numpy or torch differ in version: " + " and ".join("/".join(map(str, v)) for v in versions)
