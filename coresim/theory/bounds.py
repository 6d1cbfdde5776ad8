"""What no schedule can beat: throughput bounds and the fewest cores, from a `Pipeline`'s mean times alone.

Every bound holds in the long run, for any distributions with these means; start-up and epoch starts are left out: they
only cost more. With R ranks on a host, N = `Pipeline.busiest` tasks at most, C cores and speed s(k), for each rank:

* *Bottleneck law* (Denning and Buzen 1978): of a resource with capacity c each batch needs D seconds, so X <= c / D.
* *Capacity.* n runnable tasks do k s(k) CPU seconds per second, k = min(n, C): at most F, the maximum of min(N, x) s(x)
  over x <= C. Hence X <= F / (R D). With j for N the same bounds any j tasks, and so the least time of a phase.
* *Spinning.* While it launches, spins for the accelerator or copies, a spinning trainer is one of n tasks and takes
  1 / n of their cores. Spinning moves no memory, so that all cores do G CPU seconds per second at most, the largest s
  on min(N, C) of them. With m such trainers, all others get (n - m) / n G <= (1 - m / N) G. A trainer that cannot run
  ahead is such a task from its launch to the end of the step, and in a synchronous copy: h seconds per batch or more,
  so that m averages R X h or more. Hence R X (D + h G / N) <= G, with D without the launch, which is part of h. So a
  spinning trainer costs a core if cores abound, but only the share G / N of one if N tasks crowd them. A trainer that
  runs ahead need not wait at all (the loader may be just in time), so only its synchronous copies count.
* *Little's law* (1961): X <= credits / (mean time from dispatch to pick-up), which is at least the services' sum.

With a quota of C cores on a larger machine, F is also at most C times the largest s, and spinning is left out.

Balanced job bounds need a product form, which few lines have: see `coresim.theory.balanced`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from coresim.errors import InputError
from coresim.model.pipeline import Phase, Pipeline
from coresim.theory.capacity import capacity, most_at_once, sustained

_COPIER = {"sync": "wait", "stream": "accelerator", "overlap": "copy engine", "none": "none"}


@dataclass(frozen=True)
class Demand:
    """What one batch of one rank needs of a resource, s.

    ``resource`` is cores, storage, wait, accelerator, copy engine or spin: the least time in which a spinning trainer
    is in its launch or holds a core while it waits (h above).
    """

    name: str
    resource: str
    seconds: float


class Bound(NamedTuple):
    """What a resource allows one rank: its capacity over the seconds that a batch takes of it."""

    name: str
    capacity: float
    seconds: float
    formula: str

    @property
    def limit_batches_per_s(self) -> float:
        """Most batches per second."""
        return self.capacity / self.seconds

    @property
    def numbers(self) -> str:
        """The bound as a formula with its values."""
        return f"X <= {self.capacity:.4g} / {_s(self.seconds)} = {self.limit_batches_per_s:.4g} batches/s"


@dataclass(frozen=True)
class LowerBound:
    """With fewer than ``cores`` per host no schedule keeps the idle target.

    ``cores`` is infinite and ``whole`` None where no number of cores does; ``binding`` names the bound that says so.
    """

    cores: float
    whole: int | None
    binding: str
    formula: str
    numbers: str


def demands(pipeline: Pipeline) -> tuple[Demand, ...]:
    """Per-batch demands of one rank, in the order of the line; those of zero seconds are left out."""
    trainer = pipeline.trainer
    rows = [
        Demand(f"{stage.name}.{phase.name}", phase.resource, pipeline.items(stage.grain) * _work(phase))
        for stage in pipeline.stages
        for phase in stage.phases
    ]
    own = (*trainer.inline, trainer.consumer, trainer.launch)
    rows += [Demand(f"trainer.{phase.name}", phase.resource, _work(phase)) for phase in own]
    rows.append(Demand(f"trainer.{trainer.copy.name}", _COPIER[trainer.copy_mode], _copy(pipeline)))
    rows.append(Demand("trainer.spin", "spin", _held(pipeline)))
    rows.append(Demand("accelerator.step", "accelerator", _work(pipeline.step)))
    return tuple(row for row in rows if row.seconds > 0)


def bounds(pipeline: Pipeline) -> tuple[Bound, ...]:
    """All finite throughput bounds."""
    needed = demands(pipeline)
    found = (*_trainer_bounds(pipeline), *_core_bounds(pipeline, needed), *_line_bounds(pipeline, needed))
    return tuple(bound for bound in found if bound.seconds > 0)


def binding(found: tuple[Bound, ...]) -> Bound:
    """The tightest of some bounds, the first of equals.

    Raises:
        InputError: there is none.
    """
    if not found:
        raise InputError("pipeline: every time is zero; nothing bounds the throughput")
    return min(found, key=lambda bound: bound.limit_batches_per_s)


def lower_bound_cores(pipeline: Pipeline, idle_target: float) -> LowerBound:
    """The fewest cores per host below which no schedule keeps the accelerators' mean idle fraction at the target.

    An accelerator that does X steps a second is busy X g, with g the time of a step beside idle cores, so the target
    needs X >= (1 - idle) / g. The least C at which every bound allows that X is found by bisection: all bounds grow
    with C, up to N cores. At the default speed, and with no spinning, this is C = R (1 - idle) D / g.

    Raises:
        InputError: a target outside [0, 1), or a step without accelerator time.
    """
    if not 0 <= idle_target < 1:
        raise InputError(f"idle_target = {idle_target!r}: a fraction of at least 0 and below 1 is needed")
    if not _work(pipeline.step) > 0:
        raise InputError("accelerator.step: takes no time, so its idle fraction means nothing")
    low, high = 0.0, float(pipeline.busiest())
    if not _allows(replace(pipeline, cores=high), idle_target):
        return _in_words(replace(pipeline, cores=high), idle_target, math.inf)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if _allows(replace(pipeline, cores=middle), idle_target) else (middle, high)
    return _reachable(replace(pipeline, cores=high), idle_target)


def _allows(pipeline: Pipeline, idle: float) -> bool:
    # Rounding must not turn "just enough" into "too few": the bound stays a lower one.
    return binding(bounds(pipeline)).limit_batches_per_s >= (1 - idle) / _work(pipeline.step) * (1 - 1e-12)


def _in_words(pipeline: Pipeline, idle: float, cores: float) -> LowerBound:
    bound, step = binding(bounds(pipeline)), _work(pipeline.step)
    numbers = f"{bound.name}: {bound.numbers}; needed: (1 - {idle:g}) / {_s(step)} = {(1 - idle) / step:.4g} batches/s"
    whole = None if math.isinf(cores) else math.ceil(cores * (1 - 1e-9))
    return LowerBound(cores, whole, bound.name, f"{bound.formula}; needed: (1 - idle) / step", numbers)


def _reachable(pipeline: Pipeline, idle: float) -> LowerBound:
    bound, step, cores = binding(bounds(pipeline)), _work(pipeline.step), float(pipeline.cores)
    generic = _in_words(pipeline, idle, cores)
    if bound.name not in ("cores", "cores with spinning"):
        return generic
    needed = bound.capacity
    each = needed * step / (1 - idle) / pipeline.ranks
    same = math.isclose(needed, cores, rel_tol=1e-6)
    speed = "s(cores)" if bound.name == "cores" and not pipeline.has_quota else "s(1)"
    left, right = ("cores", "") if same else (f"cores x {speed}", f", so cores >= {cores:.5g}")
    ranks, r = ("ranks x ", f"{pipeline.ranks} x ") if pipeline.ranks > 1 else ("", "")
    cpu = "CPU per batch" if bound.name == "cores" else "(CPU per batch + the spinning trainer's share)"
    formula = f"{left} >= {ranks}(1 - idle) x {cpu} / step"
    numbers = f"{left} >= {r}(1 - {idle:g}) x {_s(each)} / {_s(step)} = {needed:.5g}{right}"
    return replace(generic, formula=formula, numbers=numbers)


def _trainer_bounds(pipeline: Pipeline) -> Iterator[Bound]:
    mode, copy, step = pipeline.trainer.copy_mode, _copy(pipeline), _step(pipeline)
    busy = step + copy * (mode == "stream")
    yield Bound("accelerator", 1, busy, "X <= 1 / (step + copy on its stream)")
    yield Bound("synchronous copy", 1, (copy + step) * (mode == "sync"), "X <= 1 / (copy + step)")
    yield Bound("copy engine", 1, copy * (mode == "overlap"), "X <= 1 / copy")
    device = "copy + launch" if pipeline.trainer.run_ahead else "copy + max(launch, step)"
    yield Bound("serial trainer", 1, _serial(pipeline), f"X <= 1 / (inline + consumer + {device})")


def _core_bounds(pipeline: Pipeline, needed: tuple[Demand, ...]) -> Iterator[Bound]:
    tasks, ranks, held = pipeline.busiest(), pipeline.ranks, _held(pipeline)
    most, launch = sustained(pipeline), f"trainer.{pipeline.trainer.launch.name}"
    costs = {row.name: row.seconds for row in needed if row.resource == "cores"}
    yield Bound("cores", most, ranks * sum(costs.values()), "X <= cores x s(cores) / (ranks x CPU per batch)")
    if held and pipeline.cpus is None:  # by a quota, it may be stopped instead
        in_spin = costs.get(launch, 0.0) if pipeline.trainer.run_ahead == 0 else 0.0
        most = most_at_once(pipeline)
        cost = sum(costs.values()) - in_spin + held * most / tasks
        formula = "X <= cores x s(1) / (ranks x (CPU per batch - launch + spin x cores x s(1) / tasks))"
        yield Bound("cores with spinning", most, ranks * cost, formula)


def _line_bounds(pipeline: Pipeline, needed: tuple[Demand, ...]) -> Iterator[Bound]:
    for stage in pipeline.stages:
        service = pipeline.items(stage.grain) * _service(pipeline, stage.phases)
        yield Bound(f"servers of {stage.name}", stage.servers, service, "X <= servers / service per batch")
    if pipeline.storage_streams is not None:
        reading = sum(row.seconds for row in needed if row.resource == "storage") * pipeline.ranks
        yield Bound("storage", float(pipeline.storage_streams), reading, "X <= streams / (ranks x reading)")
    if pipeline.credits is not None:
        yield Bound("credits", pipeline.credits, _residence(pipeline), "X <= credits / time from dispatch to pick-up")


def _work(phase: Phase) -> float:
    """Mean work of one item, s; that of a pool is the time between its completions."""
    return phase.service.mean * phase.repeats / (phase.pooled if phase.split == 1 else 1)


def _least(pipeline: Pipeline, phase: Phase) -> float:
    """Least mean time of one item in a phase, s: its longest task alone, and all its tasks on the cores."""
    longest = _work(phase) if phase.split == 1 else phase.service.mean * math.ceil(phase.repeats / phase.split)
    if phase.resource == "cores":
        return max(longest / capacity(pipeline, 1), _work(phase) / capacity(pipeline, phase.split))
    streams = pipeline.storage_streams if phase.resource == "storage" else None
    return longest if streams is None else longest / min(1.0, float(streams))


def _service(pipeline: Pipeline, phases: tuple[Phase, ...]) -> float:
    return sum(_least(pipeline, phase) for phase in phases)


def _residence(pipeline: Pipeline) -> float:
    """Least mean time of a sample from its batch's dispatch to its pick-up, s.

    Every sample passes every stage. Handed over in order, the whole batch also passes each sample stage in that time.
    """
    total = 0.0
    for grain, group in groupby(pipeline.stages, key=lambda stage: stage.grain):
        stages = tuple(group)
        each = [_service(pipeline, stage.phases) for stage in stages]
        batch = [pipeline.batch_size * one / stage.servers for one, stage in zip(each, stages, strict=True)]
        whole = grain == "sample" and all(stage.ordered for stage in stages)
        total += max(sum(each), *batch) if whole else sum(each)
    return total


def _serial(pipeline: Pipeline) -> float:
    """Least time of the trainer's own process per batch, s; one that cannot run ahead waits for copy and step."""
    trainer, copy, step = pipeline.trainer, _copy(pipeline), _step(pipeline)
    before, launch = _service(pipeline, (*trainer.inline, trainer.consumer)), _least(pipeline, trainer.launch)
    if trainer.copy_mode == "sync":
        before, copy = before + copy, 0.0
    return before + (launch if trainer.run_ahead else max(launch, copy + step))


def _held(pipeline: Pipeline) -> float:
    trainer = pipeline.trainer
    if trainer.spin and trainer.run_ahead == 0:
        return _copy(pipeline) + _step(pipeline)
    return _copy(pipeline) if trainer.spin and trainer.copy_mode == "sync" else 0.0


def _copy(pipeline: Pipeline) -> float:
    return 0.0 if pipeline.trainer.copy_mode == "none" else _work(pipeline.trainer.copy)


def _step(pipeline: Pipeline) -> float:
    """Least mean time of a step and its all-reduce, s."""
    return _work(pipeline.step) * float(min(pipeline.slowdown)) + (float(pipeline.allreduce) if pipeline.barrier else 0)


def _s(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"
