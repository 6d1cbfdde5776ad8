"""What one and two workers cost, inside the real pipeline: all that the predictions of a validation are fed with.

Service times taken in a bare process differ from those inside a loader's worker (collation into shared memory, first
touch of new pages, the pickling thread), so they are noted by the workers themselves while the real loader runs. A
round is six runs: one worker without a pause (what samples and batches cost), one whose batches stand ready while it
rests, and one while it works (what receiving costs the trainer), two workers without a pause (how much slower a sample
gets while two cores are busy), two at work while their batches are received, and one that shares one core with the
trainer. Rounds alternate, so that a drift touches all alike; CPU times are taken at the pace that was sampled during
the run; the middle runs of each kind count, and how far all are apart says what one more would show.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from coresim import stats
from coresim.validate import handover
from coresim.validate.costs import NOTHING, Calibration, Cost
from coresim.validate.limits import on_cpus
from coresim.validate.loaders import Layout, Timed, open_pipe
from coresim.validate.pace import Sampler
from coresim.validate.trial import Trial, run_trial
from coresim.workloads.base import Workload as Real

ROUNDS = 5
#: Wall seconds of one run of a round.
RUN_S = 0.5
LEAST_STEPS, MOST_STEPS = 3, 400
#: Step times over what one worker needs for a batch. They change from round to round, so that hand-overs are seen in
#: every state, and not always at the same place between two ticks of the scheduler's clock.
BUSY, TWO_BUSY = (1.0, 0.85, 0.7, 0.95, 0.8), (0.55, 0.4, 0.65, 0.5, 0.6)
ONE_CORE = (1.3, 0.9, 1.17, 1.05, 1.43)
MOST_VALUES = 1000
#: A sample waits for something else than a core where it does so for over this share of its time.
NOTABLE_WAIT = 0.1

#: Rounds end after so many seconds, `LEAST_ROUNDS` at the earliest: batches of seconds need not be seen so often.
MOST_S, LEAST_ROUNDS = 60.0, 2

Progress = Callable[[float], None]


class Run(NamedTuple):
    """One run of a round, and how much slower than in the middle of the calibration the machine was around it."""

    trial: Trial
    slower: float


def calibrate(
    real: Real,
    option: int,
    batch_size: int,
    sampler: Sampler,
    *,
    pin_memory: bool = False,
    rounds: int = ROUNDS,
    run_s: float = RUN_S,
    progress: Progress = lambda done: None,
) -> Calibration:
    """Run the rounds; only in a fresh process, which forks the loader's workers.

    Args:
        real: the workload, its data made.
        option: 1 (loader in the trainer), 2 (worker processes) or 3 (threads).
        batch_size: samples per batch.
        sampler: tells the pace.
        pin_memory: whether a thread copies batches to pinned memory.
        rounds: how often every run is made, unless that takes too long; two at least, for the uncertainty.
        run_s: wall seconds of each run, a few batches at the least.
        progress: told the fraction done after each run.
    """
    data = Timed(real, detail=True)
    lone = Layout(option, 0 if option == 1 else 1, batch_size, pin_memory=pin_memory)
    pair = replace(lone, workers=2)
    period = _period(_run(data, lone, 0.0, LEAST_STEPS, seed=0))
    steps = min(MOST_STEPS, max(LEAST_STEPS, round(run_s / period)))
    kinds: dict[str, tuple[Layout, Sequence[float], int]] = {"alone": (lone, (0.0,), steps)}
    if option != 1:
        kinds |= {"idle": (lone, (2.0,), max(LEAST_STEPS, steps // 2)), "busy": (lone, BUSY, steps)}
        kinds |= {"two": (pair, (0.0,), 2 * steps), "two busy": (pair, TWO_BUSY, 2 * steps)}
    if option == 2:
        kinds["one core"] = (lone, ONE_CORE, max(LEAST_STEPS, steps // 2))
    trials: dict[str, list[Trial]] = {kind: [] for kind in kinds}
    cpus = sorted(os.sched_getaffinity(0))
    began, sampled = time.perf_counter(), sampler.cpu_s
    for number in range(rounds):
        if number >= LEAST_ROUNDS and (time.perf_counter() - began) * (number + 1) / number > MOST_S:
            break
        for place, (kind, (layout, ratios, count)) in enumerate(kinds.items()):
            step_s = ratios[number % len(ratios)] * period
            with on_cpus(cpus[:1] if kind == "one core" else cpus):
                trials[kind].append(_run(data, layout, step_s, count, seed=number + 1))
            progress((number + (place + 1) / len(kinds)) / rounds)
    sampled = (sampler.cpu_s - sampled) / (time.perf_counter() - began) / len(cpus)
    paces = {kind: [sampler.seen(trial.costs) for trial in made] for kind, made in trials.items()}
    usual = stats.median([pace for found in paces.values() for pace in found])
    runs = {
        kind: [Run(trial, pace / usual) for trial, pace in zip(made, paces[kind], strict=True)]
        for kind, made in trials.items()
    }
    slower = [run.slower for found in runs.values() for run in found]
    return replace(
        _calibration(option, batch_size, pin_memory, runs, len(cpus)),
        usual_s=usual,
        drift=math.sqrt(stats.mean([(relative - 1.0) ** 2 for relative in slower])),
        sampled=sampled,
    )


def _run(data: Timed, layout: Layout, step_s: float, steps: int, seed: int) -> Trial:
    # The start of a slow pipeline is forgotten as soon as every worker has made a batch.
    warm_up = min(2 + layout.workers * layout.prefetch_factor, max(1 + layout.workers, steps // 2))
    pipe = open_pipe(data, layout, seed)
    try:
        return run_trial(pipe, step_s, warm_up, steps)
    finally:
        pipe.close()


def _period(trial: Trial) -> float:
    return max(trial.seconds_per_step, 1e-6)


def _sample_cpu(run: Run) -> float:
    return stats.mean([stats.mean(cost.cpu) for cost in run.trial.costs]) / run.slower


def _calibration(option: int, batch_size: int, pin_memory: bool, runs: dict[str, list[Run]], cpus: int) -> Calibration:
    alone, idle, busy, two, two_busy = (runs.get(kind, []) for kind in ("alone", "idle", "busy", "two", "two busy"))
    receiving = [*idle, *busy, *two_busy] or alone
    speeds = [_speed(option, one, both) for one, both in zip(alone, two, strict=False)]
    return Calibration(
        option=option,
        batch_size=batch_size,
        sample=_samples(option, alone),
        wait=_waits(option, alone, idle),
        batch=_cost([[v / r.slower for v in _beyond_samples(r.trial, option)] for r in alone]),
        receive=_received(option, receiving),
        handover=_handovers(runs, cpus) if option == 2 else {},
        pin=Cost((stats.mean([run.trial.side_cpu / run.slower for run in idle]),)) if pin_memory and idle else NOTHING,
        speed=min(1.0, stats.median(speeds)) if speeds else 1.0,
        speed_uncertainty=_uncertainty(speeds) if speeds else 0.0,
        period_s=stats.median([_period(run.trial) / run.slower for run in alone]),
        cpus=cpus,
    )


def _speed(option: int, one: Run, two: Run) -> float:
    """s(2): how fast each of two workers is beside the other.

    Processes slow one another down in CPU time. Threads also wait for the interpreter's lock, which is no CPU time, so
    theirs is what two get done beside what one does.
    """
    if option == 3:
        alone, both = (run.trial.seconds_per_step / run.slower for run in (one, two))
        return alone / (2.0 * both)
    return _sample_cpu(one) / _sample_cpu(two)


def _handovers(runs: dict[str, list[Run]], cpus: int) -> dict[str, Cost]:
    """By state, over all runs together: the state is what matters, not which run it came up in."""
    found: dict[str, list[list[float]]] = {}
    for number in range(len(runs["alone"])):
        of_round: dict[str, list[float]] = {}
        for kind, made in runs.items():
            workers, free = 2 if kind.startswith("two") else 1, 1 if kind == "one core" else cpus
            for state, waited in handover.seen(made[number].trial, workers, Layout.prefetch_factor, free).items():
                of_round.setdefault(state, []).extend(waited)
        for state, waited in of_round.items():
            found.setdefault(state, []).append(waited)
    often = {state: kept for state, kept in found.items() if sum(map(len, kept)) >= handover.LEAST_SEEN}
    return {state: _pooled(kept) for state, kept in often.items()}


def _pooled(rounds: Sequence[Sequence[float]]) -> Cost:
    """All values together, at most `MOST_VALUES` evenly chosen."""
    values = [value for found in rounds for value in found]
    return Cost(_chosen(values), _uncertainty([stats.mean(found) for found in rounds]))


def _received(option: int, ready: Sequence[Run]) -> Cost:
    """Option 1 receives nothing; in option 3 a thread of its own receives and copies."""
    if option == 1:
        return NOTHING
    if option == 3:
        return _cost([[cost.copy / run.slower for cost in run.trial.costs] for run in ready])
    return _cost([[step.cpu / run.slower for step in run.trial.steps] for run in ready])


def _samples(option: int, runs: Sequence[Run]) -> Cost:
    return _cost([[v / r.slower for c in r.trial.costs for v in (c.wall if option == 3 else c.cpu)] for r in runs])


def _waits(option: int, runs: Sequence[Run], ready: Sequence[Run]) -> Cost:
    """Per sample, where it is notable; what is less cannot be told from other programs' turns."""
    if option == 3:  # fetches at leisure: what they wait for in a hurry is the interpreter's lock
        per_run = [[cost.fetch / len(cost.wall) for cost in run.trial.costs] for run in ready]
        walls = sum(sum(cost.wall) + cost.fetch for run in ready for cost in run.trial.costs)
        waits = sum(cost.fetch for run in ready for cost in run.trial.costs)
    else:
        per_run = [
            [max(0.0, wall - cpu) for cost in run.trial.costs for wall, cpu in zip(cost.wall, cost.cpu, strict=True)]
            for run in runs
        ]
        walls, waits = sum(sum(cost.wall) for run in runs for cost in run.trial.costs), sum(map(sum, per_run))
    return _cost(per_run) if waits > NOTABLE_WAIT * walls else NOTHING


def _beyond_samples(trial: Trial, option: int) -> list[float]:
    """How long a worker without a pause is busy with a batch beyond its samples; the trainer's part is its own."""
    if option != 2:
        return [cost.collate for cost in trial.costs]
    return [max(0.0, after.began - now.began - sum(now.wall)) for now, after in pairwise(trial.costs)]


def _cost(runs: Sequence[Sequence[float]]) -> Cost:
    """The values of all runs but, of four or more, the dearest and the cheapest; `MOST_VALUES` at most."""
    middle = sorted(runs, key=stats.mean)[1:-1] if len(runs) > 3 else runs
    return Cost(
        _chosen([value for run in middle for value in run]), _uncertainty([stats.mean(found) for found in runs])
    )


def _chosen(values: Sequence[float]) -> tuple[float, ...]:
    """At most `MOST_VALUES` of them, evenly chosen, with the same mean."""
    stride = -(-len(values) // MOST_VALUES)
    chosen = sorted(values)[stride // 2 :: stride] if stride > 1 else values
    scale = stats.mean(values) / stats.mean(chosen) if stats.mean(chosen) > 0 else 1.0
    return tuple(value * scale for value in chosen)


def _uncertainty(means: Sequence[float]) -> float:
    """Relative standard uncertainty of what the next run shows: the root mean square distance from the median.

    Not that of the mean: a trial is one more run of a machine that changes its speed.
    """
    centre = stats.median(means)
    if centre <= 0 or len(means) < 2:
        return 0.0
    squares = sum((mean / centre - 1.0) ** 2 for mean in means) / (len(means) - 1)
    return min(1.0, math.sqrt(squares))
