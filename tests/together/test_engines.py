"""Both engines of sim share no code and agree: exactly on Fractions and integers, to rounding on floats."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from generated import Job, random_job

from coresim.errors import CoresimError, InputError
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.sim import fast, reference
from coresim.sim.draws import Draws
from coresim.sim.run import Run, RunLength, Trace

F = Fraction
#: ``CORESIM_CASES=20000`` runs more cases; CI runs 600.
CASES = int(os.environ.get("CORESIM_CASES", "40"))
CHUNKS = 12
ROUNDING = 1e-12
#: Of float cases, how many may differ by more: those that tie exactly, or that magnify rounding step by step.
SENSITIVE = 0.02


def both(job: Job) -> tuple[Run, Run]:
    """The job by the reference and by the kernel, without what the two are free to do in their own way."""
    return comparable(reference.simulate(*job)), comparable(fast.simulate(*job))


def comparable(run: Run) -> Run:
    """The run with what happens at or after its end forgotten, and without the engine's own count of events."""
    return replace(run, events=0, traces=tuple(_before(trace, run.makespan) for trace in run.traces))


def _before(trace: Trace, end: Any) -> Trace:
    def early(rows: Any) -> Any:
        return tuple(tuple(None if time is None or time >= end else time for time in row) for row in rows)

    taken = early(trace.taken)
    pairs = (zip(times, numbers, strict=True) for times, numbers in zip(taken, trace.server, strict=True))
    server = tuple(tuple(None if time is None else number for time, number in row) for row in pairs)
    return replace(trace, taken=taken, done=early(trace.done), out=early(trace.out), server=server)


def numbers(thing: Any, where: str = "run") -> Iterator[tuple[str, Any]]:
    """Every number of a run with its name."""
    if is_dataclass(thing):
        thing = {field.name: getattr(thing, field.name) for field in fields(thing)}
    if hasattr(thing, "items"):
        for name in sorted(thing):
            yield from numbers(thing[name], f"{where}.{name}")
    elif isinstance(thing, tuple):
        for index, item in enumerate(thing):
            yield from numbers(item, f"{where}[{index}]")
    else:
        yield where, thing


def differences(one: Run, other: Run) -> list[tuple[str, Any, Any]]:
    """What differs by more than rounding, on the scale of the run."""
    scale = max(one.makespan, 1.0)
    pairs = zip(numbers(one), numbers(other), strict=True)
    return [(where, a, b) for (where, a), (also, b) in pairs if where != also or not _close(a, b, scale)]


def _close(a: Any, b: Any, scale: float) -> bool:
    return a == b or (None not in (a, b) and abs(a - b) <= ROUNDING * max(scale, abs(a)))


def exactly(job: Job) -> Job:
    """The same job in Fractions of the very floats."""
    pipeline, draws, length = job
    names = (
        *("cores", "cpus", "quota_period", "storage_streams", "allreduce", "startup", "worker_startup"),
        *("siblings", "sharing_loss"),
    )
    changes: dict[str, Any] = {name: getattr(pipeline, name) for name in names}
    changes = {name: None if value is None else F(value) for name, value in changes.items()}
    tables = {name: tuple(map(F, getattr(pipeline, name))) for name in ("speed", "slowdown")}
    service_times = {
        key: np.vectorize(F, otypes=[object])(drawn_times) for key, drawn_times in draws.service_times.items()
    }
    shares = {name: F(getattr(pipeline.trainer, name)) for name in ("lead", "release", "settling")}
    trainer = replace(pipeline.trainer, **shares)
    return replace(pipeline, **changes, **tables, trainer=trainer), Draws(service_times), length


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_exact_runs_are_equal(chunk: int) -> None:
    for seed in range(chunk, CASES, CHUNKS):
        one, other = both(random_job(random.Random(seed), exact=True))
        assert one == other, f"seed {seed}"


@pytest.mark.parametrize("chunk", range(2))
def test_float_runs_are_equal_to_rounding(chunk: int) -> None:
    seeds = range(1_000_000 + chunk, 1_000_000 + CASES // 2, 2)
    sensitive = []
    for seed in seeds:
        job = random_job(random.Random(seed), exact=False)
        if differences(*both(job)):
            sensitive.append(seed)
            one, other = both(exactly(job))
            assert one == other, f"seed {seed}, in Fractions of the floats"
    assert len(sensitive) <= max(1, SENSITIVE * len(seeds)), sensitive


def test_the_comparison_sees_a_small_difference() -> None:
    one, other = both(random_job(random.Random(3), exact=False))
    assert differences(one, other) == []
    moved = replace(other.ranks[0], begin=other.ranks[0].begin + 1e-9 * other.makespan)
    assert [where for where, *_ in differences(one, replace(other, ranks=(moved, *other.ranks[1:])))]
    assert one != replace(one, makespan=one.makespan * (1 + 2**-50))


# Edges by name

LOADER = Stage("load", 2, (Phase("fetch", "wait"), Phase("pre")), dispatch="round_robin")


Times = dict[str, tuple[Any, ...]]


def job(stages: tuple[Stage, ...], trainer: Trainer, times: Times, steps: int, **shared: Any) -> Job:
    """An exact job; phases that are not named take no time."""
    exact: dict[str, Any] = {"cores": F(4), "speed": (F(1),), "slowdown": (F(1),), "allreduce": F(0)}
    exact |= {"startup": F(0), "worker_startup": F(0)} | shared
    pipeline = Pipeline(stages, trainer, Phase("step"), **exact)
    service_times = {
        key: np.array([[time] * phase.split for time in times.get(key, (0,))], dtype=object)
        for key, phase, _ in pipeline.phases()
    }
    return pipeline, Draws(service_times), RunLength(steps, trace=True)


def agreed(case: Job) -> Run:
    """The run, which is the same by both engines."""
    one, other = both(case)
    assert one == other
    return other


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("stages", [1, 2])
def test_a_single_item(stages: int, ordered: bool) -> None:
    line = (replace(LOADER, servers=1, ordered=ordered), Stage("s", 1, (Phase("p"),), buffer=1, ordered=ordered))
    times = {"load.pre": (3,), "s.p": (2,), "accelerator.step": (5,)}
    result = agreed(job(line[:stages], Trainer(), times, 1, credits=1, epoch_batches=1))
    assert result.makespan == 3 + 2 * (stages - 1) + 5


@pytest.mark.parametrize("ordered", [True, False])
def test_more_workers_than_batches(ordered: bool) -> None:
    line = (replace(LOADER, servers=9, ordered=ordered),)
    times = {"load.pre": (3, 1), "accelerator.step": (1,)}
    result = agreed(job(line, Trainer(), times, 4, credits=18, epoch_batches=2))
    assert {server for trace in result.traces for row in trace.server for server in row} == {0, 1}


@pytest.mark.parametrize("cores", [F(1, 3), F(1), F(5, 2)])
def test_fewer_cores_than_workers(cores: Fraction) -> None:
    line = (replace(LOADER, servers=6),)
    times = {"load.pre": (3, 1, 2), "accelerator.step": (F(1, 4),)}
    case = job(line, Trainer(spin=False), times, 9, credits=6, cores=cores)
    assert 0.9 * cores <= agreed(case).busy_cores[0] <= cores


def test_a_quota_stops_all_until_its_next_period() -> None:
    """Half a core by a quota of 1 s: 1 s of work takes until 1.5 s (0.5 s, a stop, 0.5 s), then 3.5 and 5.5."""
    trainer = Trainer((Phase("pre"),), spin=False)
    case = job((), trainer, {"trainer.pre": (1,)}, 3, cores=F(1, 2), cpus=F(2), quota_period=F(1))
    result = agreed(case)
    assert result.traces[0].end == (F(3, 2), F(7, 2), F(11, 2))
    assert result.busy_cores == (F(6, 11),)


def test_a_quota_lets_tasks_run_beside_each_other_as_long_as_it_lasts() -> None:
    """A worker and a trainer that launches, 1 s each: one core takes 2 s a batch, a quota of one on two cores 1 s."""
    line = (replace(LOADER, servers=1, dispatch="shared", buffer=1),)
    times = {"load.pre": (1,), "trainer.launch": (1,)}
    shared = job(line, Trainer(), times, 6, cores=F(1))
    quota = job(line, Trainer(), times, 6, cores=F(1), cpus=F(2), quota_period=F(100))
    # The first batch is made alone, and the worker makes two more than the trainer has launched.
    assert agreed(shared).makespan > 11 and agreed(quota).makespan == 7


def test_a_quota_of_as_many_cores_as_there_are_is_none() -> None:
    line = (replace(LOADER, servers=6),)
    times = {"load.pre": (3, 1, 2), "accelerator.step": (F(1, 4),)}
    alone = job(line, Trainer(), times, 9, credits=6, cores=F(2))
    assert agreed(job(line, Trainer(), times, 9, credits=6, cores=F(2), cpus=F(2))) == agreed(alone)


@pytest.mark.parametrize("stages", [(), (LOADER,), (replace(LOADER, grain="sample", dispatch="shared", buffer=1),)])
def test_all_times_zero(stages: tuple[Stage, ...]) -> None:
    trainer = Trainer() if stages else Trainer((Phase("pre"),))
    assert agreed(job(stages, trainer, {}, 5, credits=2, batch_size=2, epoch_batches=2)).makespan == 0


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("ranks", [1, 3])
def test_ties_everywhere(ordered: bool, ranks: int) -> None:
    line = (
        Stage("a", 3, (Phase("p", "wait"),), buffer=1, ordered=ordered),
        Stage("b", 2, (Phase("p", "wait"),), grain="sample", buffer=2, ordered=ordered),
        Stage("c", 2, (Phase("p", "wait"),), buffer=1, ordered=ordered),
    )
    times = dict.fromkeys(("a.p", "b.p", "c.p", "accelerator.step", "trainer.copy"), (1,))
    result = agreed(job(line, Trainer(), times, 7, batch_size=2, ranks=ranks, barrier=True))
    # A sample stage of 2 servers passes 2 samples a second, so a batch; the trainer's copy and step take 2 s.
    assert result.makespan == 3 + 7 * 2
    assert {account.end for account in result.ranks} == {result.makespan}


def test_integers_stay_exact() -> None:
    times = {"load.pre": (7, 1, 5), "accelerator.step": (3, 1)}
    result = agreed(job((LOADER,), Trainer(), times, 40, credits=4, cores=1, speed=(1,), slowdown=(1,)))
    assert result.makespan.denominator >= 1 and not isinstance(result.makespan, float)


@pytest.mark.parametrize("cpus", [None, F(8)])  # with a quota, whose periods go on
def test_both_engines_say_that_a_line_stops(cpus: Fraction | None) -> None:
    line = (Stage("a", 2, (Phase("p"),), ordered=False), Stage("b", 1, (Phase("p"),), buffer=1, ordered=False))
    case = job(line, Trainer(), {"a.p": (5, 1), "accelerator.step": (1,)}, 2, credits=2, cpus=cpus)
    # A pipeline refuses this; the engines must still not hang or answer.
    object.__setattr__(line[1], "ordered", True)
    with pytest.raises(InputError, match="stops"):
        reference.simulate(*case)
    with pytest.raises(CoresimError, match="stuck"):
        fast.simulate(*case)
