"""What an engine is asked for and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from coresim.model.pipeline import Number, Pipeline


@dataclass(frozen=True)
class RunLength:
    """How long to run.

    The run ends when every rank has finished step ``steps - 1``. Dispatch does not stop for it: the run is a
    window of a longer job. A rank's *window* begins when its step ``warm_up - 1`` finishes (time 0 if
    ``warm_up`` is 0) and ends when its step ``steps - 1`` finishes; accounts cover the window.

    Attributes:
        steps: steps per rank, at least 1.
        warm_up: steps discarded at the start, less than ``steps``.
        trace: whether to keep the time of every event (memory grows with the steps).
    """

    steps: int
    warm_up: int = 0
    trace: bool = False


@dataclass(frozen=True)
class StageAccount:
    """Account of one stage of one rank over the window; server-seconds.

    ``busy``: servers with an item in service, from take to the end of its last phase. ``work``: the part of ``busy``
    that an unshared core or storage would have needed; ``busy - work`` was spent waiting for a core (or slowed).
    ``blocked``: servers holding a finished item. Idle servers are starved.
    """

    servers: int
    busy: Number
    work: Number
    blocked: Number

    def fractions(self, duration: Number) -> dict[str, Number]:
        """Shares of the servers' time: utilisation, waiting_for_core, blocked, starved; they sum to 1."""
        total = self.servers * duration
        starved = 1 - (self.busy + self.blocked) / total
        waiting = (self.busy - self.work) / total
        blocked = self.blocked / total
        return {"utilisation": self.work / total, "waiting_for_core": waiting, "blocked": blocked, "starved": starved}


@dataclass(frozen=True)
class RankAccount:
    """All the time of one rank's accelerator and trainer in its window, seconds.

    Attributes:
        begin: start of the window.
        end: end of the window.
        accelerator: time by state, summing to ``end - begin``: ``busy`` (a step's work under way, for as long as it
            takes beside idle cores), ``slowed`` (what it takes longer beside busy ones), ``launch`` (work
            done but the launch not ended, or its lead under way), ``barrier`` (waiting for other ranks, or all-reduce),
            ``copy`` (a copy on the accelerator's own stream; or no step under way and the trainer in a synchronous copy
            or its wait for one, or the step waits for the copy engine), ``startup``, ``starved`` (no step under way,
            the trainer waits for a batch), and the name of the trainer's phase (``consumer`` or an inline phase)
            that the accelerator idles for.
        starved_by: the ``starved`` time by what the awaited batch was doing then: ``STAGE.queue`` (finished by the
            stage before, if any, and not yet taken by a server of this one), ``STAGE.PHASE``, and, behind the last
            stage, ``STAGE.handover`` (finished, not yet picked up). Of a batch gathered from samples, the last one
            counts.
        trainer: the trainer's time by state: its phases' names, ``starved`` (waits for a batch), ``device`` (waits for
            the accelerator to finish a step), ``copy`` (a synchronous copy), ``startup``.
        stations: one per stage.
    """

    begin: Number
    end: Number
    accelerator: Mapping[str, Number]
    starved_by: Mapping[str, Number]
    trainer: Mapping[str, Number]
    stations: tuple[StageAccount, ...]


@lru_cache(maxsize=64)
def account_names(pipeline: Pipeline) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Keys of a `RankAccount`: ``accelerator`` but for ``slowed``, ``starved_by``, ``trainer``; one may come twice."""
    trainer, stages = pipeline.trainer, pipeline.stages
    handover = ["handover"] if trainer.handover else []
    own = [*(phase.name for phase in trainer.inline), *handover, trainer.consumer.name]
    segments = [f"{stage.name}.{part}" for stage in stages for part in ("queue", *(one.name for one in stage.phases))]
    return (
        ("busy", "launch", "barrier", "copy", "startup", "starved", *own),
        (*segments, *(f"{stage.name}.handover" for stage in stages[-1:])),
        ("starved", "device", "copy", "startup", *own, trainer.launch.name),
    )


@dataclass(frozen=True)
class Trace:
    """Times of every event of one rank, s.

    ``pick_up[i]``, ``start[i]``, ``end[i]``: pick-up of step i's batch (for inline work: end of it), start of the
    accelerator's work, finish of the step. ``batch[i]``: number of the batch used in step i. ``taken[j][n]``,
    ``done[j][n]`` and ``out[j][n]``: item n of stage j was taken by a server, finished service, was handed over; None
    if not before the run's end. Items are those of the first ``steps`` batches. ``server[j][n]``: which server.
    """

    pick_up: tuple[Number, ...]
    start: tuple[Number, ...]
    end: tuple[Number, ...]
    batch: tuple[int, ...]
    taken: tuple[tuple[Number | None, ...], ...]
    done: tuple[tuple[Number | None, ...], ...]
    out: tuple[tuple[Number | None, ...], ...]
    server: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True)
class Run:
    """Result of one run: accounts per rank, host-wide core use, and the trace if asked for.

    ``busy_cores`` is, per host, the mean number of busy cores from time 0 to the end of the run. ``makespan`` is
    the end of the run. ``events`` counts the completions processed (cost, free of any clock).
    """

    ranks: tuple[RankAccount, ...]
    makespan: Number
    busy_cores: tuple[Number, ...]
    events: int
    traces: tuple[Trace, ...] = ()
