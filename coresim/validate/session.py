"""A validation: for each job calibrate, predict, and only then run the real thing at the declared settings.

All that measures happens in one fresh process per job, which forks the loader's workers; this one never does.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
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

TRIAL_S = 4.0
#: Cores that other programs may use, and the drift of the probe during a trial, before it does not count.
MOST_OTHERS, MOST_DRIFT = 0.05, 0.15
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
        title, calibration, probe = child.receive(START_TIMEOUT + SILENCE)[1]
        job = Job(first.workload, title, calibration, probe)
        points = [_predicted(number, calibration, setting, engine, effort) for setting in settings]
        ledger = keep(job, points)
        for turn, place in enumerate(_turns(settings)):
            if time.monotonic() > until:
                break
            tell("running the real pipeline", turn)
            point = points[place]
            points[place] = replace(point, trials=(*point.trials, *_attempt(child, point)))
            ledger = keep(job, points)
    return ledger


def _turns(settings: Sequence[Setting]) -> list[int]:
    """Every setting as often as it is repeated, in an order that tells neither from the machine's drift."""
    turns = [place for place, setting in enumerate(settings) for _ in range(setting.repeats)]
    random.Random(1).shuffle(turns)
    return turns


def _attempt(child: Child, point: Point) -> list[Measured]:
    """A trial; a disturbed one is repeated, and kept in the ledger as dirty."""
    found: list[Measured] = []
    while len(found) < ATTEMPTS and not (found and not found[-1].dirty):
        child.send(Order(point.setting, point.step_s, RunLength(point.warm_up + point.steps, point.warm_up)))
        measured: Measured = child.receive(SILENCE)[1]
        found.append(replace(measured, dirty=disturbance(measured)))
    return found


def disturbance(measured: Measured) -> str:
    """Why a trial does not count, or nothing."""
    if measured.others_cores > MOST_OTHERS:
        return f"other programs used {measured.others_cores:.2f} cores"
    drift = measured.probe_after_s / measured.probe_before_s - 1.0
    if abs(drift) > MOST_DRIFT:
        return f"the machine's speed changed by {drift:+.0%} meanwhile"
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
    probe = probe_speed()
    training = Training(first.model, first.precision, effort.device, first.batch_size) if first.model else None
    found = calibrate(
        real, first.option, first.batch_size, pin_memory=first.pin_memory, rounds=effort.rounds, run_s=effort.run_s
    )
    if training is not None:
        found = replace(found, training=training.cost())
    link.send("calibrated", (real.name, found, probe))
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
    before = probe_speed()
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
        receive_s=sum(step.cpu for step in trial.steps) / len(trial.steps),
        others_cores=max(0.0, others / span),
        probe_before_s=before,
        probe_after_s=probe_speed(),
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


def probe_speed() -> float:
    """Seconds that a fixed piece of work takes now, the least of seven: what tells a slower machine from a slow job."""
    return min(_probe() for _ in range(7))


def _probe() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(30_000):
        total += number * number
    return time.perf_counter() - began


def make_data(specs: dict[str, WorkloadSpec]) -> None:
    """Let every workload write its data, each in a fresh process."""
    for name, spec in specs.items():
        Path(spec.folder).mkdir(parents=True, exist_ok=True)
        with Child(_make, spec, doing=f"making the data of {name}") as child:
            child.receive(SILENCE)


def _make(link: Link, spec: WorkloadSpec) -> None:
    spec.make()
