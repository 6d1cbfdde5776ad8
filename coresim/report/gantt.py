"""The first batches of a run as rows of bars: the content of a timeline, for every renderer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from coresim.model.build import SimulatedSetting, build
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Scenario
from coresim.report.words import plural
from coresim.sim.draws import draw
from coresim.sim.estimate import LEAST_ROWS, Engine
from coresim.sim.run import RunLength, Trace
from coresim.sim.variation import held_by
from coresim.units import format_duration

#: What a bar stands for, and what a legend calls it.
STEP, BUSY, BLOCKED = "step", "busy", "blocked"
STATES = {STEP: "accelerator's step", BUSY: "batch in preparation", BLOCKED: "finished, waits for its turn"}
#: The axis of a timeline.
TIME_LABEL = "time since the first batch was begun (s)"
#: Servers of a stage that a timeline shows; the others do the same.
SERVERS_SHOWN = 6


class Bar(NamedTuple):
    """A stretch of time, s, in one of `STATES`; ``name``: what it belongs to, if that is shown."""

    start: float
    end: float
    state: str
    name: str


class TimelineRow(NamedTuple):
    """One server, from the top: its bars, and the times at which something is picked up."""

    label: str
    bars: tuple[Bar, ...] = ()
    ticks: tuple[float, ...] = ()


def traced(
    scenario: Scenario, setting: SimulatedSetting, engine: Engine, steps: int, seed: int
) -> tuple[Pipeline, Trace]:
    """Simulate a setting and keep the times of its first ``steps`` batches, from when its workers have started.

    The start of workers takes as long as many batches and would fill the picture.
    """
    line = replace(_line(scenario, setting), startup=0.0, worker_startup=0.0)
    # A trace tells of the batches of its own steps: run on, so that those in preparation at the end are among them.
    return line, engine(line, draw(line, LEAST_ROWS, seed), RunLength(steps + 2 * held_by(line), trace=True)).traces[0]


def _line(scenario: Scenario, setting: SimulatedSetting) -> Pipeline:
    return build(scenario, setting.option, setting.cores, max(1, setting.workers), setting.prefetch_factor)


def title_of(setting: SimulatedSetting, scenario: Scenario) -> str:
    """The title of a panel, with the time of the workers' start, which the panel leaves out."""
    whole = _line(scenario, setting)
    started = whole.startup + whole.worker_startup
    after = f", after a start of {format_duration(started)}" if started else ""
    cores = plural(setting.cores / scenario.accelerator.count, "core")
    own = "your stages" if scenario.stages else setting.option.label
    workers = f", {plural(setting.workers, 'worker')}" if whole.stages and not scenario.stages else ""
    return f"Option {setting.option}: {own} ({cores}{workers}){after}"


def rows_of(line: Pipeline, trace: Trace, end: float) -> Iterator[TimelineRow]:
    """The accelerator, the trainer and the servers of each stage, until ``end``."""
    steps = zip(trace.start, trace.end, trace.batch, strict=True)
    yield TimelineRow("accelerator", _bars(steps, STEP, end))
    ticks = tuple(float(time) for time in trace.pick_up)
    if line.trainer.inline:
        # Without overlap the trainer prepares a batch from the end of one step on: `coresim.model.pipeline`.
        work = zip((0.0, *trace.end[:-1]), trace.pick_up, trace.batch, strict=True)
        yield TimelineRow("trainer prepares", _bars(work, BUSY, end), ticks)
    else:
        yield TimelineRow("trainer picks up", (), ticks)
    for index, stage in enumerate(line.stages):
        for server in range(min(stage.servers, SERVERS_SHOWN)):
            items = [item for item, by in enumerate(trace.server[index]) if by == server]
            yield TimelineRow(f"{stage.name} {server}", _server(index, items, trace, end))
        if stage.servers > SERVERS_SHOWN:
            yield TimelineRow(f"({stage.servers - SERVERS_SHOWN} more)")


def _server(stage: int, items: Sequence[int], trace: Trace, end: float) -> tuple[Bar, ...]:
    taken, done, out = (times[stage] for times in (trace.taken, trace.done, trace.out))
    begun = [item for item in items if taken[item] is not None]
    finished = [item for item in begun if done[item] is not None]
    work = ((taken[item], end if done[item] is None else done[item], item) for item in begun)
    wait = ((done[item], end if out[item] is None else out[item], "") for item in finished)
    return (*_bars(work, BUSY, end), *_bars(wait, BLOCKED, end))


def _bars(spans: Iterable[tuple[Any, Any, Any]], state: str, end: float) -> tuple[Bar, ...]:
    """One bar for each span that takes time."""
    return tuple(
        Bar(float(start), float(stop), state, f"{name}") for start, stop, name in spans if start < end and stop > start
    )
