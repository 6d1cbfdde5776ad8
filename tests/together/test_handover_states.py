"""Model and both engines of sim: waiting for a hand-over by its state, traced by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from coresim.errors import InputError
from coresim.model.build import build
from coresim.model.handover import (
    NO_HANDOVER,
    STATES,
    Handover,
)
from coresim.model.option import Option
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.model.scenario import read_scenario
from coresim.model.service import Service
from coresim.sim import fast, reference
from coresim.sim.draws import Draws, draw
from coresim.sim.run import RunLength

# Two workers need 10 s for a batch and share two cores; a step takes 7 s.
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
    # 6 s. At 23 s, after the step, the second batch's maker has made its next and rests, the other one works:
    # "rest_shared", 5 s.
    assert run.traces[0].pick_up[:2] == (10, 23)
    assert run.traces[0].start[:2] == (16, 28)
    assert run.ranks[0].trainer["handover"] == run.ranks[0].accelerator["handover"]
    assert run.ranks[0].trainer["handover"] == sum(
        start - pick for pick, start in zip(run.traces[0].pick_up, run.traces[0].start, strict=True)
    )


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_one_worker_with_one_batch_out_only_sends_or_rests(engine: Any):
    run = engine(*job(cores=2, workers=1, credits=1), RunLength(3, trace=True))
    # Batch 0 is made at 10 s, when the trainer has waited: "send_free", 4 s. Batch 1, dealt at 10 s, is there at 20 s
    # and picked up after the step, at 21 s: "rest_free", 1 s. Batch 2 is dealt then and made at 31 s, after the step.
    assert run.traces[0].pick_up == (10, 21, 31)
    assert [s - p for p, s in zip(run.traces[0].pick_up, run.traces[0].start, strict=True)] == [4, 1, 4]


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_behind_a_thread_that_pins_it_counts_whether_the_trainer_has_waited(engine: Any):
    pipeline, draws = job(cores=8, workers=2)
    pipeline = replace(pipeline, stages=(*pipeline.stages, Stage("pin", 1, (Phase("pin"),))))
    pins = {"pin.pin": np.array([[Fraction(1)], [Fraction(1)], [Fraction(9)]], dtype=object)}
    run = engine(pipeline, Draws({**draws.service_times, **pins}), RunLength(3, trace=True))
    # Batch 0 is pinned at 11 s, when the trainer has long waited: "begin_free", 2 s. Batch 1 is pinned at 12 s and the
    # trainer asks for it at 20 s, after the step: "rest_free", 1 s, although its maker is at work. Batch 2 is made at
    # 20 s and pinned at 29 s, while the trainer waits from 28 s on; its maker rests, and all 2 s are waited.
    assert run.traces[0].pick_up == (11, 20, 29)
    assert run.traces[0].start == (13, 21, 31)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_one_core_is_crowded(engine: Any):
    run = engine(*job(cores=1, workers=1, credits=2), RunLength(2, trace=True))
    # It is made at 10 s, and its maker begins the second at once: two want the one core.
    assert run.traces[0].start[0] - run.traces[0].pick_up[0] == 1 + STATES.index("begin_crowded")


def early(times: tuple[int, ...], steps: int, **shared: Any) -> tuple[Pipeline, Draws]:
    """Two workers that take so many seconds for each batch, eight cores, receiving in 1 s, a step of 7 s."""
    loader = Stage("loader", 2, (Phase("preprocess"),), dispatch="round_robin", **shared)
    trainer = Trainer(handover=HANDOVER, consumer=Phase("consumer", service=Service(1)), copy_mode="none", spin=False)
    pipeline = Pipeline((loader,), trainer, Phase("step"), cores=Fraction(8), credits=4)
    rows: dict[str, tuple[int, ...]] = {key: (0,) for key, _, _ in pipeline.phases()}
    rows |= {"loader.preprocess": times, "trainer.consumer": (1,), "accelerator.step": (7,)}
    rows |= {f"trainer.handover.{state}": (number + 1,) for number, state in enumerate(STATES)}
    made = {key: np.array([[Fraction(time)] for time in row], dtype=object) for key, row in rows.items()}
    return pipeline, Draws(made)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_a_trainer_that_waits_receives_a_batch_before_its_turn(engine: Any):
    run = engine(*early((20, 5, 30, 4, 200, 200), 4), RunLength(4, trace=True))
    # Worker 1 has batch 1 at 5 s and begins batch 3: received from 5 to 8 s ("begin_free", 2 s, and 1 s of its own).
    # Batch 3 is there at 9 s, and its maker rests: received from 9 to 11 s. Batch 0 comes at 20 s, batch 2 at 50 s; the
    # worker of each begins another one. When the turns of batches 1 and 3 come, nothing is left to receive.
    assert run.traces[0].pick_up == (20, 30, 50, 60)
    assert run.traces[0].start == (23, 30, 53, 60)
    trainer = run.ranks[0].trainer
    assert (trainer["starved"], trainer["handover"], trainer["consumer"], trainer["device"]) == (33, 4, 2, 28)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_the_batch_before_is_freed_when_the_turn_of_one_that_was_received_early_has_come(engine: Any):
    pipeline, draws = early((20, 5, 30, 4, 200, 200), 4)
    trainer = replace(pipeline.trainer, release=Fraction(1, 4))
    run = engine(replace(pipeline, trainer=trainer), draws, RunLength(4, trace=True))
    # Batch 1 is received from 5 to 7.75 s, and batch 3 from 9 to 10.75 s: a quarter of the second is left. At their
    # turns, at 30 and 60.25 s, it is done. Batches 0 and 2 are received at their turns, all of it then.
    assert run.traces[0].pick_up == (20, 30, 50, 60)
    assert run.traces[0].start == (23, 30.25, 53, 60.25)
    trainer = run.ranks[0].trainer
    assert (trainer["starved"], trainer["handover"], trainer["consumer"]) == (32.75, 4, 2.5)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_the_batch_whose_turn_it_is_waits_while_another_one_is_received(engine: Any):
    run = engine(*early((6, 5, 30, 90), 2), RunLength(1, trace=True))
    # Batch 1 is received from 5 to 8 s; batch 0 is there at 6 s.
    assert run.traces[0].pick_up == (8,)
    assert run.ranks[0].starved_by["loader.handover"] == 2


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_where_batches_are_taken_as_they_come_none_is_received_early(engine: Any):
    run = engine(*early((20, 5, 30, 4, 200, 200), 3, ordered=False), RunLength(2, trace=True))
    assert run.traces[0].batch == (1, 3) and run.traces[0].pick_up == (5, 15)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_a_worker_that_reads_wants_no_core(engine: Any):
    loader = Stage("loader", 2, (Phase("fetch", "wait"), Phase("preprocess")), dispatch="round_robin")
    pipeline, _ = job(cores=2)
    pipeline = replace(pipeline, stages=(loader,))
    rows: dict[str, tuple[int, ...]] = {key: (0,) for key, _, _ in pipeline.phases()}
    rows |= {"loader.fetch": (1, 50), "loader.preprocess": (9, 1), "accelerator.step": (7,)}
    rows |= {f"trainer.handover.{state}": (number + 1,) for number, state in enumerate(STATES)}
    made = {key: np.array([[Fraction(time)] for time in row], dtype=object) for key, row in rows.items()}
    run = engine(pipeline, Draws(made), RunLength(1, trace=True))
    # At 10 s worker 0 begins batch 2 and worker 1 reads: with the trainer and the maker, two want the two cores.
    assert run.traces[0].start[0] - run.traces[0].pick_up[0] == 1 + STATES.index("begin_free")


def with_waits(made: tuple[Pipeline, Draws], **waits: float) -> tuple[Pipeline, Draws]:
    """The same, with these waits in those states."""
    pipeline, draws = made
    changed = {f"trainer.handover.{state}": np.array([[Fraction(wait)]], dtype=object) for state, wait in waits.items()}
    return pipeline, Draws({**draws.service_times, **changed})


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_a_hand_over_goes_on_when_its_maker_has_finished_the_batch_that_it_was_at(engine: Any):
    made = with_waits(job(cores=8, workers=1, credits=2), begin_free=30, work_free=9)
    run = engine(*made, RunLength(3, trace=True))
    # At 10 s the worker begins batch 1, which it has at 20 s: over at 21 s ("rest_free", 1 s) and not at 40 s. At 28 s,
    # after the step, it is at work on batch 2, which it has at 30 s: over at 31 s and not at 37 s; then again.
    assert run.traces[0].pick_up == (10, 28, 38)
    assert run.traces[0].start == (21, 31, 41)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_a_hand_over_that_is_over_sooner_does_not_wait_for_its_maker(engine: Any):
    made = with_waits(job(cores=8, workers=1, credits=2), begin_free=30, work_free=2.5)
    run = engine(*made, RunLength(2, trace=True))
    assert run.traces[0].start == (21, 30.5)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_receiving_early_goes_on_when_the_maker_has_finished_too(engine: Any):
    run = engine(*with_waits(early((20, 5, 30, 4, 200, 200), 4), begin_free=30), RunLength(1, trace=True))
    # Batch 1 is there at 5 s and its maker has batch 3 at 9 s: received until 11 s, and batch 3 until 13 s. Batch 0 is
    # picked up at 20 s, and its maker begins batch 2, of 30 s: 30 s and 1 s of the trainer's own.
    assert run.traces[0].pick_up == (20,) and run.traces[0].start == (51,)
    assert run.ranks[0].starved_by["loader.handover"] == 0


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_its_maker_then_rests_among_as_many_who_want_a_core(engine: Any):
    made = with_waits(job(cores=2), begin_shared=30, rest_free=5, rest_shared=3, rest_crowded=1)
    run = engine(*made, RunLength(1, trace=True))
    # At 10 s both workers begin another batch, and have it at 20 s: three wanted the two cores at the pick-up.
    assert run.traces[0].start == (23,)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_a_batch_is_finished_when_all_its_phases_are(engine: Any):
    pipeline, draws = with_waits(job(cores=8, workers=1, credits=2), begin_free=30)
    loader = replace(pipeline.stages[0], phases=(Phase("preprocess"), Phase("collate", "wait")))
    times = {**draws.service_times, "loader.collate": np.array([[Fraction(2)]], dtype=object)}
    run = engine(replace(pipeline, stages=(loader,)), Draws(times), RunLength(1, trace=True))
    assert run.traces[0].pick_up == (12,) and run.traces[0].start == (25,)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_the_workers_of_another_rank_hasten_no_hand_over(engine: Any):
    pipeline, draws = with_waits(job(cores=8, workers=1, credits=2), begin_free=30)
    # Rank 0 reads the times of a batch from row 0 on, rank 1 from row 3 on: its worker has its second batch at 14 s.
    rows = np.array([[Fraction(time)] for time in (10, 10, 10, 12, 2, 10)], dtype=object)
    run = engine(
        replace(pipeline, ranks=2), Draws({**draws.service_times, "loader.preprocess": rows}), RunLength(1, trace=True)
    )
    assert [trace.pick_up for trace in run.traces] == [(10,), (12,)]
    assert [trace.start for trace in run.traces] == [(21,), (15,)]


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
@pytest.mark.parametrize(
    ("cores", "settling", "end"),
    [
        # At 10 s both workers begin another batch: three want two cores. The launch waits 3 s (2 - 3/2) and then takes
        # two thirds of a core: 1.5 s and 6 s. Without turns it takes 6 s, and the step of 7 s is longer.
        (2, 3, 17.5), (2, 0, 17),
        # A launch that is over before the scheduler has evened out takes twice as long as alone.
        (2, 100, 18),
        # Three cores are enough, and on one core an equal share is less than half: a third, until the launch is over.
        (3, 3, 17), (1, 3, 32),
    ],
)  # fmt: skip
def test_a_launch_waits_for_turns_where_more_want_a_core(engine: Any, cores: int, settling: int, end: float):
    pipeline, draws = job(cores)
    trainer = replace(pipeline.trainer, handover=(), settling=Fraction(settling))
    times = {**draws.service_times, "trainer.launch": np.array([[Fraction(4)]], dtype=object)}
    run = engine(replace(pipeline, trainer=trainer), Draws(times), RunLength(1, trace=True))
    assert run.traces[0].start == run.traces[0].pick_up and run.ranks[0].end == end
    assert (
        run.ranks[0].trainer["launch"]
        == sum(run.ranks[0].trainer.values()) - run.ranks[0].trainer["starved"] - (run.ranks[0].trainer["device"])
    )


def test_settling_needs_batches_and_is_a_time():
    samples = Stage("loader", 1, (Phase("preprocess"),), grain="sample", buffer=1)
    with pytest.raises(InputError, match="settling is for stages that make batches"):
        Pipeline((samples,), Trainer(settling=1), Phase("step"))
    with pytest.raises(InputError, match="settling must be finite"):
        Pipeline((replace(samples, grain="batch"),), Trainer(settling=-1), Phase("step"))


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
def test_a_trainer_of_stages_waits_for_the_lock(engine: Any):
    """A batch takes 5 ms, and 1 ms to copy: the first step begins at 8 ms, and each later one 3 ms after the last."""
    tables = {
        "workload": {
            "batch_size": 1, "preprocess": "5 ms", "copy": "1 ms",
            "handover": {"thread_rest": "3 ms", "thread_begin": "2 ms"},
        },
        "accelerator": {"step": "10 ms", "sync": "block", "run_ahead": 0},
    }  # fmt: skip

    def starts(tables: dict[str, Any]) -> list[float]:
        line = build(read_scenario(tables), Option.STAGED, 4.0, 1)
        [trace] = engine(line, draw(line, 3, 1), RunLength(3, trace=True)).traces
        return [1e3 * start for start in trace.start]

    assert starts(tables) == pytest.approx([8, 21, 34])
    tables["workload"]["handover"] = {}
    assert starts(tables) == pytest.approx([6, 16, 26])
    # Of one that is not known the other tells.
    tables["workload"]["handover"] = {"thread_begin": "2 ms"}
    assert starts(tables) == pytest.approx([8, 20, 32])
    assert Handover(thread_rest=Service(0.0)).of_threads() == () == NO_HANDOVER.of_threads()


def test_a_hand_over_needs_batches_and_all_states():
    loader = Stage("loader", 1, (Phase("preprocess"),), buffer=1)
    with pytest.raises(InputError, match="a phase for each of"):
        Trainer(handover=HANDOVER[:3])
    samples = Stage("loader", 1, (Phase("preprocess"),), grain="sample", buffer=1)
    with pytest.raises(InputError, match="stages that make batches"):
        Pipeline((samples,), Trainer(handover=HANDOVER), Phase("step"))
    assert Pipeline((loader,), Trainer(handover=HANDOVER), Phase("step")).trainer.handover == HANDOVER
