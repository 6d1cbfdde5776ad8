"""A validation: for each job calibrate, predict, and only then run the real thing at the declared settings.

All that measures happens in one fresh process per job, which forks the loader's workers; this one never does.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coresim.measuring.processes import START_TIMEOUT, Child, Link, limit_threads
from coresim.measuring.protocol import busy_seconds
from coresim.sim.estimate import Engine
from coresim.sim.run import RunLength
from coresim.validate.calibrate import ROUNDS, RUN_S, Calibration, calibrate
from coresim.validate.grid import Grid, Setting
from coresim.validate.ledger import Job, Ledger, Measured, Point
from coresim.validate.loaders import Layout, Pipe, Timed, open_pipe
from coresim.validate.predict import by_buffer, by_rates, predict, step_time, trial_length
from coresim.validate.training import Training, run_training
from coresim.validate.trial import Trial, run_trial, sleep_until, spin_until
from coresim.workloads.base import Workload, WorkloadSpec

TRIAL_S = 3.0
#: Cores that other programs may use before a trial does not count.
MOST_OTHERS = 0.05
#: A trial whose workers needed so much more CPU time per batch than in the best trial of the same setting was
#: disturbed: the machine was slower, which a shared one is for seconds without any load that it could show.
MOST_SLOWER = 0.05
#: Trials of one setting at the most, beyond its repeats.
ATTEMPTS = 3
SILENCE = 180.0

Progress = Callable[[str, float], None] | None


@dataclass(frozen=True)
class Effort:
    """How long everything is measured, and where: rounds and seconds of each calibration run, seconds of each trial.

    ``device`` is where models are trained, in grids that name one.
    """

    rounds: int = ROUNDS
    run_s: float = RUN_S
    trial_s: float = TRIAL_S
    device: str = "cuda"


class Order(NamedTuple):
    """One trial that a measuring process is told to make."""

    setting: Setting
    step_s: float
    length: RunLength


def validate(
    grid: Grid,
    specs: dict[str, WorkloadSpec],
    ledger: Ledger,
    engine: Engine,
    *,
    effort: Effort = Effort(),
    seconds: float | None = None,
    save: Callable[[Ledger], None] = lambda ledger: None,
    progress: Progress = None,
) -> Ledger:
    """Make all trials of the grid that the ledger does not hold yet.

    Args:
        grid: what to run.
        specs: how to build each workload that the grid names; its data are made.
        ledger: an empty one, or what an interrupted validation had.
        engine: the simulation engine.
        effort: how long everything is measured.
        seconds: begin no trial after so many seconds; None: no limit.
        save: told the ledger after each trial, so that an interruption loses one trial at most.
        progress: told what is going on, and the fraction done.

    Raises:
        InputError: a workload cannot be built or fails.
        CoresimError: a measuring process died or hangs.
    """
    until = float("inf") if seconds is None else time.monotonic() + seconds
    done = {point.setting for point in ledger.points}
    left = [setting for setting in grid.settings if setting not in done]
    total = sum(setting.repeats for setting in left) or 1
    made = 0
    for job in dict.fromkeys(setting.job for setting in left):
        settings = [setting for setting in left if setting.job == job]
        if time.monotonic() > until:
            break
        base = ledger

        def keep(found: Job, points: Sequence[Point], base: Ledger = base) -> Ledger:
            whole = base.with_job(found, points)
            save(whole)
            return whole

        tell = partial(_tell, progress, settings[0].workload, made, total)
        ledger = _run_job(specs[settings[0].workload], settings, len(base.jobs), engine, effort, until, keep, tell)
        made += sum(setting.repeats for setting in settings)
    return ledger


def _tell(progress: Progress, name: str, before: int, total: int, what: str, trials: int) -> None:
    if progress:
        progress(f"{name}: {what}", (before + trials) / total)


def _run_job(
    spec: WorkloadSpec,
    settings: Sequence[Setting],
    number: int,
    engine: Engine,
    effort: Effort,
    until: float,
    keep: Callable[[Job, Sequence[Point]], Ledger],
    tell: Callable[[str, int], None],
) -> Ledger:
    """Calibrate, predict all of the job's settings, then let the same process make their trials, each kept at once."""
    first = settings[0]
    with Child(_serve, spec, first, effort, doing=f"validating {first.workload}") as child:
        tell("calibrating", 0)
        title, calibration = child.receive(START_TIMEOUT + SILENCE)[1]
        job = Job(first.workload, title, calibration)
        points = [_predicted(number, calibration, setting, engine, effort) for setting in settings]
        ledger = keep(job, points)
        turns = deque(_turns(settings))
        while turns and time.monotonic() < until:
            place = turns.popleft()
            tell("running the real pipeline", sum(len(point.trials) for point in points))
            points[place] = _attempt(child, points[place])
            ledger = keep(job, points)
            if place not in turns and not _settled(points[place]):
                turns.append(place)
    return ledger


def _turns(settings: Sequence[Setting]) -> list[int]:
    """Every setting as often as it is repeated, in an order that tells neither from the machine's drift."""
    turns = [place for place, setting in enumerate(settings) for _ in range(setting.repeats)]
    random.Random(1).shuffle(turns)
    return turns


def _settled(point: Point) -> bool:
    """Whether the setting has as many undisturbed trials as it wants, or as many attempts as it gets."""
    wanted = point.setting.repeats
    return len(point.clean) >= wanted or len(point.trials) >= wanted + ATTEMPTS


def _attempt(child: Child, point: Point) -> Point:
    """One more trial, and with it a new look at which of all are disturbed."""
    child.send(Order(point.setting, point.step_s, RunLength(point.warm_up + point.steps, point.warm_up)))
    measured: Measured = child.receive(SILENCE)[1]
    return judged(replace(point, trials=(*point.trials, measured)))


def judged(point: Point) -> Point:
    """The point with its disturbed trials marked; they stay in the ledger and do not count."""
    least = min(_work(point, trial) for trial in point.trials)
    return replace(
        point, trials=tuple(replace(t, dirty=disturbance(t, _work(point, t) / least - 1.0)) for t in point.trials)
    )


def _work(point: Point, trial: Measured) -> float:
    """CPU seconds of a worker per batch."""
    return trial.sample_s * point.setting.batch_size + trial.collate_s


def disturbance(measured: Measured, slower: float) -> str:
    """Why a trial does not count, or nothing; ``slower``: work per batch over that of the setting's best, less 1."""
    if measured.others_cores > MOST_OTHERS:
        return f"other programs used {measured.others_cores:.2f} cores"
    if slower > MOST_SLOWER:
        return f"the same work took {slower:.0%} more CPU time than in this setting's best trial"
    return ""


def _predicted(job: int, calibration: Calibration, setting: Setting, engine: Engine, effort: Effort) -> Point:
    length = trial_length(calibration, setting, effort.trial_s)
    return Point(
        job=job,
        setting=setting,
        step_s=step_time(calibration, setting),
        steps=length.steps - length.warm_up,
        warm_up=length.warm_up,
        prediction=predict(calibration, setting, length, engine),
        rate_idle=by_rates(calibration, setting),
        buffer_idle=by_buffer(calibration, setting),
    )


def _serve(link: Link, spec: WorkloadSpec, first: Setting, effort: Effort) -> None:
    """A measuring process's life: calibrate, then make trials as told."""
    import torch  # noqa: PLC0415 (torch is optional and heavy)

    real = spec.build()
    limit_threads()
    torch.set_num_threads(1)
    training = Training(first.model, first.precision, effort.device, first.batch_size) if first.model else None
    found = calibrate(
        real, first.option, first.batch_size, pin_memory=first.pin_memory, rounds=effort.rounds, run_s=effort.run_s
    )
    if training is not None:
        found = replace(found, training=training.cost())
    link.send("calibrated", (real.name, found))
    while True:
        link.send("measured", _trial(real, link.receive(), training))


def _trial(real: Workload, order: Order, training: Training | None) -> Measured:
    setting = order.setting
    layout = Layout(
        option=setting.option,
        workers=setting.workers,
        batch_size=setting.batch_size,
        prefetch_factor=setting.prefetch_factor,
        ordered=setting.ordered,
        pin_memory=setting.pin_memory,
    )
    with _on_cores(setting.cores):
        began, mine, all_busy = time.perf_counter(), _own_seconds(), busy_seconds()
        pipe = open_pipe(Timed(real), layout, seed=os.getpid())
        try:
            trial = _run(pipe, order, training)
        finally:
            pipe.close()
        others = (busy_seconds() - all_busy) - (_own_seconds() - mine)
        span = time.perf_counter() - began
    return Measured(
        idle=trial.idle,
        seconds_per_step=trial.seconds_per_step,
        step_starts_us=_microseconds(trial, [step.start for step in trial.steps]),
        step_ends_us=_microseconds(trial, [step.end for step in trial.steps]) if training else (),
        lateness_s=0.0 if training else trial.lateness,
        sample_s=sum(sum(cost.cpu) for cost in trial.costs) / len(trial.costs) / setting.batch_size,
        collate_s=sum(cost.collate for cost in trial.costs) / len(trial.costs),
        receive_s=sum(step.cpu for step in trial.steps) / len(trial.steps),
        others_cores=max(0.0, others / span),
    )


def _run(pipe: Pipe, order: Order, training: Training | None) -> Trial:
    warm_up, steps = order.length.warm_up, order.length.steps - order.length.warm_up
    if training is not None:
        return run_training(pipe, training, warm_up, steps)
    wait = spin_until if order.setting.sync == "spin" else sleep_until
    return run_trial(pipe, order.step_s, warm_up, steps, wait=wait)


def _microseconds(trial: Trial, moments: Sequence[float]) -> tuple[int, ...]:
    return tuple(round((moment - trial.before) * 1e6) for moment in moments)


@contextlib.contextmanager
def _on_cores(cores: int) -> Any:
    """This process, and the workers that it forks, on the first ``cores`` CPUs that it may use."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _own_seconds() -> float:
    """CPU seconds of this process and of those of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def make_data(specs: dict[str, WorkloadSpec]) -> None:
    """Let every workload write its data, each in a fresh process."""
    for name, spec in specs.items():
        Path(spec.folder).mkdir(parents=True, exist_ok=True)
        with Child(_make, spec, doing=f"making the data of {name}") as child:
            child.receive(SILENCE)


def _make(link: Link, spec: WorkloadSpec) -> None:
    spec.make()
