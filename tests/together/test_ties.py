"""Both engines of sim: the order of what happens at one instant, traced by hand; another gives another trace."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from coresim.model.handover import STATES
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.sim import fast, reference
from coresim.sim.draws import Draws
from coresim.sim.run import Run, RunLength

ENGINES = pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
PRE = Phase("pre", "wait")


def run(engine: Any, stage: Stage, pre: tuple[int, ...], step: int, steps: int, **shared: Any) -> Run:
    """A loader that holds no core before an accelerator, with the times of batches 0, 1, 2, ... in seconds."""
    handover = shared.pop("handover", False)
    phases = tuple(Phase(f"handover.{state}", "wait") for state in STATES) if handover else ()
    exact = {"speed": (Fraction(1),), "slowdown": (Fraction(1),), "cores": Fraction(3)}
    exact |= {name: Fraction(0) for name in ("allreduce", "startup", "worker_startup")}
    trainer = Trainer(handover=phases, copy_mode="none", spin=False)
    pipeline = Pipeline((stage,), trainer, Phase("step"), **exact, **shared)
    times: dict[str, tuple[int, ...]] = {"load.pre": pre, "accelerator.step": (step,)}
    times |= {f"trainer.handover.{state}": (number + 1,) for number, state in enumerate(STATES)}
    rows = {key: times.get(key, (0,)) for key, *_ in pipeline.phases()}
    service_times = {key: np.array([[Fraction(time)] for time in row], dtype=object) for key, row in rows.items()}
    return engine(pipeline, Draws(service_times), RunLength(steps, trace=True))


@ENGINES
def test_the_free_server_of_the_lowest_number_takes(engine: Any) -> None:
    # All three are free at 0 and again at 3; batches 3 and 4 are dispatched at 3 and 4, by the pick-ups of 0 and 1.
    (trace,) = run(engine, Stage("load", 3, (PRE,)), (3,), 1, 5, credits=3).traces
    assert trace.pick_up == (3, 4, 5, 6, 7)
    assert trace.server == ((0, 1, 2, 0, 1),)


@ENGINES
def test_all_that_finishes_at_an_instant_is_finished_before_anything_is_taken(engine: Any) -> None:
    # Server 1 has worked on batch 1 since 0, server 0 on batch 2 since 2; both finish at 6. Whichever event comes
    # first, server 0 takes batch 3, and server 1 batch 4.
    (trace,) = run(engine, Stage("load", 2, (PRE,)), (2, 6, 4, 1, 1), 1, 5, credits=4).traces
    assert trace.server == ((0, 1, 0, 0, 1),)


@ENGINES
def test_of_batches_that_finish_together_the_lower_number_is_handed_over_first(engine: Any) -> None:
    # Both finish at 3. The next batch is dealt to the server whose batch was picked up: 2 to server 0, then 3 to 1.
    stage = Stage("load", 2, (PRE,), dispatch="round_robin", ordered=False)
    (trace,) = run(engine, stage, (3, 3, 3, 5), 4, 4, credits=2).traces
    assert trace.pick_up == (3, 7, 11, 15)
    assert trace.server == ((0, 1, 0, 1),)


@ENGINES
def test_a_worker_takes_before_the_trainer_picks_up(engine: Any) -> None:
    # Batch 1 is dispatched at 0 and waits. At 3 its worker takes it, and then batch 0 is picked up: it "begins".
    (trace,) = run(engine, Stage("load", 1, (PRE,)), (3,), 1, 1, credits=2, handover=True).traces
    assert trace.start[0] - trace.pick_up[0] == 1 + STATES.index("begin_free")


@ENGINES
def test_the_lowest_rank_picks_up_first_and_its_worker_takes_before_the_next_rank_does(engine: Any) -> None:
    # At 3 both ranks' batches are made and both workers rest. Rank 0's pick-up dispatches its next batch, which its
    # worker takes: when rank 1 picks up, four want the three cores.
    found = run(engine, Stage("load", 1, (Phase("pre"),)), (3,), 1, 1, credits=1, ranks=2, handover=True)
    waits = [trace.start[0] - trace.pick_up[0] for trace in found.traces]
    assert waits == [1 + STATES.index("send_free"), 1 + STATES.index("send_shared")]
