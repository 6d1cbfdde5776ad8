"""Waiting for a hand-over by its state, traced by hand: two workers that need 10 s, two cores, a step of 7 s."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from coresim.errors import InputError
from coresim.model.handover import STATES, Handover, nearest, state_of
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.model.service import Service
from coresim.sim import fast, reference
from coresim.sim.draws import Draws
from coresim.sim.run import RunLength

HANDOVER = tuple(Phase(f"handover.{state}", "wait") for state in STATES)


def job(cores: int, workers: int = 2, credits: int = 4) -> tuple[Pipeline, Draws]:
    """State number n makes the trainer wait for n + 1 s."""
    loader = Stage("loader", workers, (Phase("preprocess"),), dispatch="round_robin")
    trainer = Trainer(handover=HANDOVER, copy_mode="none", spin=False)
    pipeline = Pipeline((loader,), trainer, Phase("step"), cores=Fraction(cores), credits=credits)
    times: dict[str, Any] = {key: 0 for key, _, _ in pipeline.phases()}
    times |= {"loader.preprocess": 10, "accelerator.step": 7}
    times |= {f"trainer.handover.{state}": number + 1 for number, state in enumerate(STATES)}
    return pipeline, Draws({key: np.array([[Fraction(time)]], dtype=object) for key, time in times.items()})


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_two_workers_on_two_cores(engine: Any):
    run = engine(*job(cores=2), RunLength(3, trace=True))
    # At 10 s both batches are made and both workers begin another one: three tasks want two cores, so "begin_shared",
    # 5 s. At 22 s, after the step, the second batch's maker has made its next and rests, the other one works:
    # "rest_shared", 4 s.
    assert run.traces[0].pick_up[:2] == (10, 22)
    assert run.traces[0].start[:2] == (15, 26)
    assert run.ranks[0].trainer["handover"] == run.ranks[0].accelerator["handover"]
    assert run.ranks[0].trainer["handover"] == sum(
        start - pick for pick, start in zip(run.traces[0].pick_up, run.traces[0].start, strict=True)
    )


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_one_worker_with_one_batch_out_rests(engine: Any):
    run = engine(*job(cores=2, workers=1, credits=1), RunLength(3, trace=True))
    assert [s - p for p, s in zip(run.traces[0].pick_up, run.traces[0].start, strict=True)] == [1, 1, 1]  # rest_free


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_one_core_is_crowded(engine: Any):
    run = engine(*job(cores=1, workers=1, credits=2), RunLength(2, trace=True))
    # It is made at 10 s, and its maker begins the second at once: two want the one core.
    assert run.traces[0].start[0] - run.traces[0].pick_up[0] == 1 + STATES.index("begin_crowded")


def test_a_state_is_what_the_maker_does_and_how_many_want_a_core():
    assert STATES[state_of("rest", 0, 2)] == "rest_free"
    assert STATES[state_of("work", 1, 2)] == "work_shared"
    assert STATES[state_of("begin", 2, 2)] == "begin_crowded"
    assert STATES[state_of("rest", 0, 1)] == "rest_crowded"
    assert STATES[state_of("rest", 0, Fraction(3, 2))] == "rest_shared"
    assert STATES[state_of("rest", 0, 2, ranks=2)] == "rest_shared"


def test_a_state_that_is_not_known_is_as_the_one_most_like_it():
    assert nearest({"rest_free": 1, "work_crowded": 2}, "work_shared") == 2
    assert nearest({"rest_free": 1, "rest_crowded": 2}, "work_free") == 1
    given = Handover(rest_free=Service(0.001), work_shared=Service(0.002))
    assert [service.mean for service in given.services()][:6] == [0.001] * 3 + [0.002] * 3
    assert Handover().services() == () and Handover(rest_free=Service(0.0)).services() == ()


def test_a_hand_over_needs_batches_and_all_states():
    loader = Stage("loader", 1, (Phase("preprocess"),), buffer=1)
    with pytest.raises(InputError, match="a phase for each of"):
        Trainer(handover=HANDOVER[:3])
    samples = Stage("loader", 1, (Phase("preprocess"),), grain="sample", buffer=1)
    with pytest.raises(InputError, match="stages that make batches"):
        Pipeline((samples,), Trainer(handover=HANDOVER), Phase("step"))
    assert Pipeline((loader,), Trainer(handover=HANDOVER), Phase("step")).trainer.handover == HANDOVER
