"""When a job is a plain overlapped line, and its run by the recurrence of `coresim.sim.recurrence`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from coresim.model.pipeline import Pipeline
from coresim.sim import recurrence as R
from coresim.sim.draws import LONGEST_TAPE, Draws
from coresim.sim.recurrence import Counts, Times
from coresim.sim.run import RankAccount, Run, RunLength, Station


def applies(pipeline: Pipeline, draws: Draws, length: RunLength) -> bool:
    """Whether the recurrence is the whole truth about this run."""
    return (
        not length.trace
        and _is_plain_line(pipeline)
        and _is_plain_trainer(pipeline)
        and _is_undisturbed(pipeline)
        and all(values.dtype != object for values in draws.tapes.values())
        and _rows(draws, _batches(pipeline, length)) <= max(LONGEST_TAPE, *map(len, draws.tapes.values()))
    )


def _is_plain_line(pipeline: Pipeline) -> bool:
    """One ordered round-robin stage that hands over at once, one rank, one endless epoch, no start-up."""
    alone = pipeline.ranks == pipeline.hosts == 1 and not pipeline.barrier
    at_once = pipeline.epoch_batches is None and pipeline.startup == pipeline.worker_startup == 0
    if len(pipeline.stages) != 1 or pipeline.credits is None or not (alone and at_once):
        return False
    (stage,) = pipeline.stages
    dealt = (stage.grain, stage.dispatch, stage.ordered, stage.buffer) == ("batch", "round_robin", True, None)
    return dealt and all(phase.split == 1 for phase in (*stage.phases, pipeline.step))


def _is_plain_trainer(pipeline: Pipeline) -> bool:
    """No inline work, no copy that overlaps, and none that would take a core besides the one that spins."""
    trainer = pipeline.trainer
    return trainer.copy_mode in ("sync", "none") and not trainer.inline


def _is_undisturbed(pipeline: Pipeline) -> bool:
    """Nobody slows anybody down; the largest number is asked first, as it fails first."""
    tasks = range(pipeline.busiest(), 0, -1)
    rates = (pipeline.core_rate, pipeline.storage_rate, pipeline.accelerator_rate)
    return (
        pipeline.cores >= tasks[0]
        and pipeline.accelerator_rate(0) == 1
        and all(r(k) == 1 for k in tasks for r in rates)
    )


def _batches(pipeline: Pipeline, length: RunLength) -> int:
    """The most batches that the recurrence looks at."""
    return length.steps + pipeline.trainer.run_ahead + (pipeline.credits or 0)


def _rows(draws: Draws, batches: int) -> int:
    """Rows after which all tapes begin again together, or as many as are needed."""
    return min(math.lcm(*map(len, draws.tapes.values())), batches)


def simulate(pipeline: Pipeline, draws: Draws, length: RunLength) -> Run:
    """Run the recurrence, which must apply. ``events`` counts the services of the first ``steps`` batches."""
    n, t = _lay_out(pipeline, draws, length)
    R.run(n, t)
    return _result(pipeline, length, n, t)


def _lay_out(pipeline: Pipeline, draws: Draws, length: RunLength) -> tuple[Counts, Times]:
    (stage,), trainer, credits = pipeline.stages, pipeline.trainer, pipeline.credits or 0
    sync, rows = trainer.copy_mode == "sync", _rows(draws, _batches(pipeline, length))
    tapes = [_tape(draws, key, rows) for key, _, _ in pipeline.phases()]
    if not sync:
        tapes[-3] = np.zeros(rows)
    phases, blocks, ahead = len(stage.phases), length.blocks, trainer.run_ahead + 1
    account = R.QUEUE + 1 + phases
    n = np.zeros(R.COUNTS, np.int64)
    scalars = [stage.servers, credits, ahead, phases, int(sync), rows, length.steps, length.warm_up, blocks]
    places = np.cumsum([R.ACCOUNT + account, account, stage.servers, credits, ahead, blocks, blocks, phases])
    n[: R.TAPES + 1] = [*scalars, *places.tolist()]
    weights = [float(phase.resource == "cores") for phase in stage.phases]
    t = np.concatenate([np.zeros(n[R.WEIGHTS]), weights, *tapes])
    t[R.PICKED] = -1.0
    return n, t


def _tape(draws: Draws, key: str, rows: int) -> Times:
    """A tape of the common number of rows."""
    values = np.asarray(draws.tapes[key], np.float64).ravel()
    return values[:rows] if len(values) >= rows else np.resize(values, rows)


def _result(pipeline: Pipeline, length: RunLength, n: Counts, t: Times) -> Run:
    (stage,), trainer, end = pipeline.stages, pipeline.trainer, float(t[R.END])
    size = R.QUEUE + 1 + len(stage.phases)
    before, within = t[R.ACCOUNT : R.ACCOUNT + size].tolist(), t[n[R.WINDOW] :][:size].tolist()
    total = [a + b for a, b in zip(before, within, strict=True)]
    spinning = trainer.spin * (total[R.T_DEVICE] + total[R.T_COPY])
    on_cores = total[R.ON_CORES] + total[R.T_CONSUMER] + total[R.T_LAUNCH] + spinning
    services = len(stage.phases) + 3 + (trainer.copy_mode == "sync")
    return Run((_account(pipeline, n, t, within),), end, (on_cores / (end or 1.0),), length.steps * services)


def _account(pipeline: Pipeline, n: Counts, t: Times, times: list[float]) -> RankAccount:
    (stage,) = pipeline.stages
    segments = [f"{stage.name}.{name}" for name in ("queue", *(phase.name for phase in stage.phases), "handover")]
    starved_by = _named(segments, [*times[R.QUEUE :], 0.0])  # an idle accelerator's trainer picks up at once
    ends, busy = (t[n[place] :][: n[R.BLOCKS]].tolist() for place in (R.BLOCK_END, R.BLOCK_BUSY))
    device = ("busy", "launch", "barrier", "copy", "startup", "starved", "consumer")
    trainer = ("starved", "device", "copy", "startup", "consumer", "launch")
    return RankAccount(
        begin=float(t[R.BEGIN]),
        end=float(t[R.END]),
        accelerator=_named(
            device, [times[R.BUSY], times[R.LAUNCH], 0.0, times[R.COPY], 0.0, sum(times[R.QUEUE :]), times[R.CONSUMER]]
        ),
        starved_by=starved_by,
        trainer=_named(trainer, [*times[R.T_STARVED : R.T_COPY + 1], 0.0, *times[R.T_CONSUMER : R.T_LAUNCH + 1]]),
        # Undisturbed, a service takes the time that it needs, and nothing is ever blocked.
        stations=(Station(stage.servers, times[R.SERVICE], times[R.SERVICE], 0.0, int(n[R.ITEMS])),),
        outstanding=times[R.OUTSTANDING],
        block_ends=tuple(ends),
        block_busy=tuple(now - before for before, now in zip([0.0, *busy], busy, strict=False)),
    )


def _named(names: Iterable[str], times: list[float]) -> Mapping[str, float]:
    """Sum by name: two phases may have the same one."""
    sums: dict[str, float] = {}
    for name, time in zip(names, times, strict=True):
        sums[name] = sums.get(name, 0.0) + time
    return sums
