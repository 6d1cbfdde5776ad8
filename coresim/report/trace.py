"""A simulated timeline as a Chrome/Perfetto trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coresim.files import write_json
from coresim.model.pipeline import Pipeline
from coresim.sim.draws import draw
from coresim.sim.estimate import Engine, Plan
from coresim.sim.run import RunLength, Trace

STEPS = 100


def write_trace(path: str, pipeline: Pipeline, plan: Plan, engine: Engine) -> None:
    """Write the first steps of the plan's first replication in the Trace Event Format (times in microseconds)."""
    steps = min(plan.steps, STEPS)
    run = engine(pipeline, draw(pipeline, plan.steps, plan.seed), RunLength(steps, trace=True))
    events = [event for rank, trace in enumerate(run.traces) for event in _events(pipeline, rank, trace)]
    write_json(path, {"traceEvents": events, "displayTimeUnit": "ms"})


def _events(pipeline: Pipeline, rank: int, trace: Trace) -> Iterator[dict[str, Any]]:
    """One process per rank: a thread for the accelerator and one for each server of each stage."""
    yield {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}}
    yield from _name(rank, 0, "accelerator")
    for step, (start, end) in enumerate(zip(trace.start, trace.end, strict=True)):
        yield _span(rank, 0, f"step {step} (batch {trace.batch[step]})", start, end)
    thread = 1
    for index, stage in enumerate(pipeline.stages):
        for server in range(stage.servers):
            yield from _name(rank, thread + server, f"{stage.name} {server}")
        for item, (taken, done, out) in enumerate(
            zip(trace.taken[index], trace.done[index], trace.out[index], strict=True)
        ):
            by = trace.server[index][item]
            if taken is None or done is None or by is None:
                continue
            yield _span(rank, thread + by, f"{stage.grain} {item}", taken, done)
            if out is not None and out > done:
                yield _span(rank, thread + by, f"blocked with {item}", done, out)
        thread += stage.servers


def _name(rank: int, thread: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": name}}


def _span(rank: int, thread: int, name: str, start: Any, end: Any) -> dict[str, Any]:
    begin, length = 1e6 * float(start), 1e6 * float(end - start)
    return {"ph": "X", "name": name, "pid": rank, "tid": thread, "ts": begin, "dur": length}
