"""Two profiles of one job: what really changed between them, what is noise, and what it does to the cores needed.

The test: Student's two-sample t on the logarithms of the means of fresh processes, equal spreads assumed because the
protocol is the same. For a quantity that was taken in one process (bandwidth, a hand-over) the spread between the
processes of the preparation stands in: repeats within a process agree far better than processes do. A change is real if
its interval, at a level at which all quantities together are wrong in 5 % of comparisons (Bonferroni), leaves out zero.
What differs between two days and not between processes (another load, another clock) is not in that spread.

A change is over a limit (real, and worse by more than it), within it, or undecided: its interval, weighted by the
quantity's share of the whole, includes a loss over the limit. A small share need not be decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from coresim import stats
from coresim.advise.difference import LEVEL, Change, deviation_of, half_width
from coresim.advise.minimum_cores import minimum_cores
from coresim.advise.sweep import Study
from coresim.errors import InputError
from coresim.model.option import Option
from coresim.model.profile import Profile
from coresim.model.rebatch import whole
from coresim.model.scenario import Scenario

TOTAL, SAMPLE_STEP = "prepare.sample", "prepare.step."
#: What a worker does for each batch beyond its samples, and what the trainer does.
WORKER, RECEIVED = ("prepare.collate", "prepare.send"), "receive.cpu"
STEP, BANDWIDTH = "accelerator.step", "bandwidth.triad."
Sample = tuple[float, ...]
ReadProfile = Callable[[Profile], Scenario]


@dataclass(frozen=True)
class Comparison:
    """All changes, and the cores per GPU needed before and with every real change; None: no core count will do."""

    changes: tuple[Change, ...]
    option: Option
    target: float
    cores_old: int | None
    cores_new: int | None
    warnings: tuple[str, ...]

    @property
    def real(self) -> tuple[Change, ...]:
        """The real changes."""
        return tuple(change for change in self.changes if change.is_real)

    def losses_over(self, limit: float) -> tuple[Change, ...]:
        """Real changes for the worse by more than ``limit``, a share of the old cost."""
        return tuple(change for change in self.changes if change.is_over(limit))

    def untold(self, limit: float) -> tuple[Change, ...]:
        """Changes for which the profiles cannot decide whether they are over ``limit``."""
        return tuple(change for change in self.changes if change.is_untold(limit))


def pooled(profiles: Sequence[Profile]) -> Profile:
    """Several profiles of one job on one kind of machine as one with the processes of all.

    Raises:
        InputError: they are of two jobs, batch sizes or kinds of machine.
    """
    first, *others = profiles = [whole(profile) for profile in profiles]
    for other in others:
        for what, one, two in (
            ("workload", first.workload, other.workload),
            ("batch_size", first.batch_size, other.batch_size),
            ("host", first.host.fingerprint, other.host.fingerprint),
        ):
            if one != two:
                raise InputError(f"{what}: {one} and {two} in profiles that are taken together; leave one out")
    common = [m for m in first.measurements if all(other.get(m.name) is not None for other in profiles)]
    joined = [replace(m, values=tuple(v for found in profiles for v in found[m.name].values)) for m in common]
    return replace(first, measurements=tuple(joined))


def compare(
    old: Profile, new: Profile, read: ReadProfile, study: Study, option: Option = Option.OVERLAPPED
) -> Comparison:
    """Compare two profiles of one job; ``read`` makes the scenario of a profile, with the user's overrides.

    Raises:
        InputError: the profiles are not of one job (another batch size, or no quantity in both).
    """
    if old.batch_size != new.batch_size:
        raise InputError(
            f"batch_size: {old.batch_size} in the old profile, {new.batch_size} in the new: measure both with one"
            " batch size (--batch-size)"
        )
    warnings = tuple(_warnings(old, new))
    old, new = whole(old), whole(new)
    changes = find_changes(old, new)
    scenario = read(old)
    before = _cores(scenario, option, study)
    priced = tuple(
        replace(change, cores=_cores(read(applied(old, new, [change])), option, study)) if change.is_real else change
        for change in changes
    )
    # The total stands for its steps: where it is real it has their changes in it, real or not.
    real = [change for change in priced if change.is_real]
    if any(change.name == TOTAL for change in real):
        real = [change for change in real if not change.name.startswith(SAMPLE_STEP)]
    after = _cores(read(applied(old, new, real)), option, study)
    return Comparison(priced, option, scenario.target.gpu_idle, before, after, warnings)


def _cores(scenario: Scenario, option: Option, study: Study) -> int | None:
    found = minimum_cores(scenario, option, study)
    return found.cores if found else None


def find_changes(old: Profile, new: Profile) -> tuple[Change, ...]:
    """Every quantity that both profiles have and that the cores needed depend on.

    Raises:
        InputError: they have none in common.
    """
    pairs = list(_pairs(old, new))
    if not pairs:
        raise InputError("the profiles have no quantity in common; measure the same job twice")
    level = 1.0 - (1.0 - LEVEL) / len(pairs)
    stand_in = _logs(old[TOTAL].process_means), _logs(new[TOTAL].process_means)
    weights = _weights(old)
    return tuple(replace(_change(*pair, stand_in, level), weight=weights.get(pair[0], 1.0)) for pair in pairs)


def _weights(profile: Profile) -> dict[str, float]:
    """A quantity over the whole that it is part of: a worker's time for a batch, or the accelerator's step.

    Others are a part of nothing.
    """
    per_batch = {
        m.name: m.mean * (profile.batch_that_ran if m.unit == "s/sample" else 1)
        for m in profile.measurements
        if m.name in (TOTAL, *WORKER) or m.name.startswith(SAMPLE_STEP)
    }
    worker = math.fsum(per_batch.get(name, 0.0) for name in (TOTAL, *WORKER))
    shares = {name: cost / worker for name, cost in per_batch.items() if cost}
    step = profile.accelerator.step_time_s or (profile[STEP].mean if profile.get(STEP) else 0.0)
    received = profile.get(RECEIVED)
    return shares | ({RECEIVED: min(1.0, received.mean / step)} if received is not None and step else {})


def _pairs(old: Profile, new: Profile) -> Iterator[tuple[str, str, Sample, Sample, bool]]:
    """Name, unit, process means of both, and whether the value was given and not measured."""
    steps = [m.name for m in old.measurements if m.name.startswith(SAMPLE_STEP)]
    # Bandwidth with the most cores that both were measured with.
    most = max(old.numbered(BANDWIDTH).keys() & new.numbered(BANDWIDTH).keys(), default=0)
    for name in (TOTAL, *steps, *WORKER, RECEIVED, f"{BANDWIDTH}{most}", STEP):
        before, after = old.get(name), new.get(name)
        if before is not None and after is not None and min(*before.process_means, *after.process_means) > 0:
            yield name, before.unit, before.process_means, after.process_means, False
    given = old.accelerator.step_time_s, new.accelerator.step_time_s
    if given[0] is not None and given[1] is not None:
        yield STEP, "s/step", (given[0],), (given[1],), True


def _change(
    name: str, unit: str, old: Sample, new: Sample, given: bool, stand_in: tuple[Sample, Sample], level: float
) -> Change:
    before, after = _logs(old), _logs(new)
    ratio, several = stats.mean(after) - stats.mean(before), min(len(old), len(new)) > 1
    spread = (before, after) if several else stand_in
    degrees = len(spread[0]) + len(spread[1]) - 2
    deviation, sizes = (0.0 if given else deviation_of(*spread)), (len(old), len(new))
    half = half_width(deviation, degrees, sizes, level)
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
        deviation=deviation,
        processes=sizes,
        level=level,
    )


def _logs(sample: Sample) -> Sample:
    return tuple(math.log(value) for value in sample if value > 0)


def applied(old: Profile, new: Profile, changes: Sequence[Change]) -> Profile:
    """The old profile with these changes only: times in proportion; for bandwidth the new profile's fitted s(k)."""
    factors = {change.name: change.new / change.old for change in changes}
    steps = {name: factor for name, factor in factors.items() if name.startswith(SAMPLE_STEP)}
    if TOTAL in factors:
        factors |= {m.name: factors[TOTAL] for m in old.measurements if m.name.startswith(SAMPLE_STEP)}
    elif steps:  # a sample takes as much more as its steps do
        more = math.fsum((factor - 1.0) * old[name].mean for name, factor in steps.items())
        factors[TOTAL] = 1.0 + more / old[TOTAL].mean
    source, given = old.accelerator, old.accelerator.step_time_s
    if given is not None:
        source = replace(source, step_time_s=given * factors.get(STEP, 1.0))
    if STEP in factors:  # what a step takes beside busy cores, or launched on an idle device, goes with it
        factors = {m.name: factors[STEP] for m in old.measurements if m.name.startswith(f"{STEP}.")} | factors
    measured = tuple(
        m if m.name.startswith(BANDWIDTH) else m.scaled(factors.get(m.name, 1.0)) for m in old.measurements
    )
    found = replace(old, accelerator=source, measurements=measured)
    if any(name.startswith(BANDWIDTH) for name in factors):
        return replace(found, speed=new.speed, speed_uncertainty=new.speed_uncertainty)
    return found


def _warnings(old: Profile, new: Profile) -> Iterator[str]:
    if old.host.fingerprint != new.host.fingerprint:
        yield f"two kinds of machine: {old.host.cpu_model} and {new.host.cpu_model}; a change may be the machine's"
    if (ran := old.batch_that_ran) != (later := new.batch_that_ran):
        yield f"the loader ran with batches of {ran} and {later}: times of a batch are scaled to {new.batch_size}"
    if old.workload != new.workload:
        yield f"two jobs by name: {old.workload!r} and {new.workload!r}"
    versions = [
        (p.provenance.python_version, p.provenance.numpy_version, p.provenance.torch_version) for p in (old, new)
    ]
    if versions[0] != versions[1]:
        yield "Python, numpy or torch differ in version: " + " and ".join("/".join(map(str, v)) for v in versions)
