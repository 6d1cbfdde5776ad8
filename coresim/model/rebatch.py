"""A profile's scenario for another batch size than the one it was measured with.

* *Step.* In proportion to the batch, with a standard uncertainty of 5 % for each doubling or halving, as
  `coresim.machines.catalogue` scales its records: a small batch leaves a GPU less busy. The same on the CPU.
* *Collating, pinning, copying and freeing* a batch touch every byte or page once: in proportion.
* A profile's loader may have run with smaller batches than its step and copies: each is scaled from its own size.
* *Sending, receiving and waiting for the hand-over* have a part that every batch has and one that grows with it. If
  much smaller batches were measured too, a straight line through both sizes gives both parts. If not, coresim takes the
  geometric middle between no growth and growth in proportion; both ends are two standard uncertainties away.
* What a step costs to launch, a worker to start, and how long a trainer waits for the lock of its interpreter (assumed)
  do not depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from coresim.model.handover import THREADS
from coresim.model.measurement import Measurement
from coresim.model.overrides import given
from coresim.model.service import Service

if TYPE_CHECKING:
    from coresim.model.profile import Profile
    from coresim.model.scenario import Scenario

KEY = "workload.batch_size"
#: Relative standard uncertainty of a step's time for each doubling or halving of its batch.
PER_DOUBLING = 0.05
#: Scenario keys of CPU times per batch, and what is measured for them: those in proportion to it, and those partly so.
MOVED = {"collate": "prepare.collate", "pin": "prepare.pin", "pages": "receive.pages"}
PARTLY = {"send": "prepare.send", "consumer": "receive.cpu", "pin_wait": "receive.pin"}
#: Waits for the interpreter's lock.
LOCKED = tuple(f"receive.{state}" for state in THREADS)
#: The measurement of what freeing a batch takes, a part of receiving the next.
RELEASED = "receive.release"
#: Ends the name of a measurement with small batches, before their samples.
SIZE_MARK = "@"


def asked_batch(own: int, settings: Sequence[str]) -> int | None:
    """Another batch size than ``own`` that settings ask for; None: they ask for none (or for no whole number)."""
    value = given(settings, KEY)
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if whole and value != own else None


def step_spread(own: int, batch: int) -> float:
    """Relative standard uncertainty of a step time that is scaled in proportion from another batch size."""
    return PER_DOUBLING * abs(math.log2(batch / own))


def release_of(profile: Profile) -> float | None:
    """The share of receiving a batch that frees the one before; None: not measured."""
    freed, received = profile.get(RELEASED), profile.get(PARTLY["consumer"])
    return None if freed is None or received is None or not received.mean else min(1.0, freed.mean / received.mean)


class Small(NamedTuple):
    """What a much smaller batch took, s, and its samples."""

    samples: int
    seconds: float


def small_batches(profile: Profile) -> dict[str, Small]:
    """The measurements with much smaller batches, by the name of the measurement with batches of full size."""
    parts = [(one.name.split(SIZE_MARK), one.mean) for one in profile.measurements if SIZE_MARK in one.name]
    return {name: Small(int(samples), seconds) for (name, samples), seconds in parts}


def whole(profile: Profile) -> Profile:
    """The profile with the times of its loader scaled to its own batch, and without those of small batches."""
    small, own, ran = small_batches(profile), profile.batch_size, profile.batch_that_ran
    growth = _Growth(ran, own, small, release_of(profile))

    def factor(one: Measurement) -> float:
        if one.name in (*MOVED.values(), RELEASED, "inline.collate"):
            return own / ran
        partly = one.name == PARTLY["send"] or one.name.startswith("receive.")
        return growth.of(one.name, one.mean)[0] if partly and one.name not in LOCKED else 1.0

    kept = [one for one in profile.measurements if SIZE_MARK not in one.name]
    return replace(profile, measured_batch=None, measurements=tuple(one.scaled(factor(one)) for one in kept))


def rebatched(scenario: Scenario, profile: Profile, batch: int) -> Scenario:
    """The profile's scenario with all times of a batch scaled to one of ``batch`` samples.

    The loader's times are of batches of `Profile.batch_that_ran` samples; the step, copies and bytes are of its own.
    """
    own, ran, small, release = profile.batch_size, profile.batch_that_ran, small_batches(profile), release_of(profile)
    ratio, moved, spread = batch / own, batch / ran, step_spread(own, batch)
    work, device = scenario.workload, scenario.accelerator
    growth = _Growth(ran, batch, small, release)

    def partly(time: Service, name: str) -> Service:
        return time.scaled(*growth.of(name, time.mean))

    received = growth.of(PARTLY["consumer"], work.consumer.mean)[0]
    handover = {
        state: time if state in THREADS else partly(time, f"receive.{state}")
        for state, time in vars(work.handover).items()
        if isinstance(time, Service)
    }
    times: dict[str, Any] = {key: getattr(work, key).scaled(moved) for key in MOVED}
    times |= {key: partly(getattr(work, key), name) for key, name in PARTLY.items()}
    work = replace(
        work,
        batch_size=batch,
        batch_bytes=work.batch_bytes and work.batch_bytes * ratio,
        copy=work.copy.scaled(ratio),
        release=work.release if release is None else work.release * moved / received,
        handover=replace(work.handover, **handover),
        **times,
    )
    device = replace(
        device,
        step=device.step.scaled(ratio, spread),
        cpu_step=device.cpu_step and device.cpu_step.scaled(ratio, spread),
        lead=device.lead if batch == own else 0.0,  # known of the step that was measured alone
    )
    return replace(scenario, workload=work, accelerator=device)


class _Growth(NamedTuple):
    """How times grow from a batch of ``ran`` samples to one of ``batch``; ``release``: that share, if it is known."""

    ran: int
    batch: int
    small: Mapping[str, Small]
    release: float | None

    def of(self, name: str, seconds: float) -> tuple[float, float]:
        """How many times as long the other batch takes as the measured ``seconds``, and how uncertain that is."""
        name = PARTLY["consumer"] if name.startswith(PARTLY["consumer"]) else name
        least = self.small.get(name)
        if name != PARTLY["consumer"] or self.release is None or not seconds:
            return _grown(seconds, self.ran, self.batch, least)
        freed, freed_least = self.release * seconds, self.small.get(RELEASED)
        if least is not None and freed_least is not None:
            least = Small(least.samples, max(0.0, least.seconds - freed_least.seconds))
        factor, spread = _grown(seconds - freed, self.ran, self.batch, least)
        left, moved = factor * (seconds - freed), freed * self.batch / self.ran
        return (left + moved) / seconds, spread * left / (left + moved)


def _grown(seconds: float, ran: int, batch: int, small: Small | None) -> tuple[float, float]:
    """How many times the ``seconds`` with ``ran`` samples it takes with ``batch``, and how uncertain that is.

    The line is between not growing at all and growing in proportion.
    """
    ratio = batch / ran
    if small is None or small.samples >= ran or not seconds:
        return math.sqrt(ratio), abs(math.log(ratio)) / 4
    rate = (seconds - small.seconds) / (ran - small.samples)
    grows = min(1.0, max(0.0, rate * ran / seconds))
    return 1.0 + grows * (ratio - 1.0), step_spread(ran, batch)
