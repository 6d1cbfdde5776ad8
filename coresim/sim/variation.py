"""What sets the length of a run: how much a line's times vary, and how many batches its workers deliver in one turn."""

from __future__ import annotations

import math

from coresim.model.pipeline import Pipeline
from coresim.sim.run import RunLength


def turn_of(pipeline: Pipeline) -> int:
    """Batches that the servers of a stage deliver in one turn, of the stage with the most."""
    size = {"batch": 1, "sample": pipeline.batch_size}
    return max((math.ceil(stage.servers / size[stage.grain]) for stage in pipeline.stages), default=1)


def held_by(pipeline: Pipeline) -> int:
    """Batches that a rank's line holds when it is full."""
    return pipeline.credits or sum(stage.servers + (stage.buffer or 0) for stage in pipeline.stages)


def is_random(pipeline: Pipeline) -> bool:
    """Whether any time varies from one to the next; else all runs are the same."""
    phases = (phase for _, phase, _ in pipeline.phases() if phase.service.mean > 0.0)
    return any(phase.service.cv > 0.0 or phase.shared_cv > 0.0 for phase in phases)


def variation(pipeline: Pipeline) -> float:
    """Standard deviation over mean of the time that all preparation of one batch takes."""
    mean = variance = 0.0
    inline = [(phase, 1) for phase in pipeline.trainer.inline]
    staged = [(phase, pipeline.items(stage.grain)) for stage in pipeline.stages for phase in stage.phases]
    for phase, items in (*inline, *staged):
        times, service = items * phase.repeats, phase.service
        mean, variance = mean + times * service.mean, variance + times * (service.cv * service.mean) ** 2
        variance += items * (phase.shared_cv * phase.repeats * service.mean) ** 2
    return math.sqrt(variance) / mean if mean else 0.0


def half_of(pipeline: Pipeline, length: RunLength) -> RunLength:
    """Half of the window, in whole turns where it has any."""
    window = length.steps - length.warm_up
    turn = min(window, turn_of(pipeline))
    return RunLength(length.warm_up + turn * math.ceil(window / turn / 2), length.warm_up)
