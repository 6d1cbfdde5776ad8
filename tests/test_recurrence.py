"""The recurrence of the plain line: the event kernel's numbers, wherever it applies and nowhere else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated import Job
from test_engines import SENSITIVE, differences

from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.sim import fast, plain, reference
from coresim.sim.draws import LONGEST_TAPE, Draws
from coresim.sim.run import RunLength

ROOT = Path(__file__).resolve().parents[1]
CASES = int(os.environ.get("CORESIM_CASES", "600"))
RESOURCES = ("cores", "storage", "wait")


def plain_job(rng: random.Random, ties: bool) -> Job:
    """A random plain line; ``ties``: times in quarters, which floats add exactly, with many ties and zeros."""
    workers = rng.choice((1, 2, 3, 5, 8))
    names = rng.choice((("p",), ("fetch", "decode", "collate"), ("p", "q", "p")))
    stage = Stage("load", workers, tuple(Phase(name, rng.choice(RESOURCES)) for name in names), dispatch="round_robin")
    trainer = Trainer(
        copy=Phase("copy", "wait"),
        copy_mode=rng.choice(("sync", "none")),
        spin=rng.random() < 0.5,
        run_ahead=rng.randint(0, 3),
    )
    pipeline = Pipeline(
        (stage,),
        trainer,
        Phase("step"),
        cores=rng.choice((workers + 1.0, 64.0)),
        credits=rng.randint(1, 2 * workers + 3),
    )
    rows, scale = rng.choice((1, 7, 12, 40)), {"load": workers * rng.choice((0.3, 1.0, 3.0))}
    draws = Draws({key: _tape(rng, ties, rows, scale.get(key.split(".")[0], 1.0)) for key, _, _ in pipeline.phases()})
    steps = rng.choice((1, 2, 3, 5, 12, 60, 200))
    warm_up = rng.choice((0, rng.randrange(steps), min(2, steps - 1)))
    return pipeline, draws, RunLength(steps, warm_up, rng.randint(1, min(4, steps - warm_up)))


def _tape(rng: random.Random, ties: bool, rows: int, scale: float) -> Any:
    if rng.random() < 0.25:
        return np.full((1, 1), 0.0 if rng.random() < 0.6 else 0.25)
    rows = rng.choice((rows, rows, rows, 5))
    if ties:
        return np.array([[rng.choice((0, 0, 1, 2, 4)) / 4] for _ in range(rows)])
    return np.array([[rng.expovariate(1 / scale)] for _ in range(rows)])


def apart(job: Job) -> list[tuple[str, Any, Any]]:
    """What differs between the recurrence and the kernel, by more than 1e-12 of the run."""
    one, other = fast.simulate_events(*job), plain.simulate(*job)
    return differences(replace(one, events=0), replace(other, events=0))


@pytest.mark.parametrize("chunk", range(4))
def test_it_gives_the_numbers_of_the_event_kernel(chunk: int) -> None:
    for seed in range(chunk, CASES, 4):
        job = plain_job(random.Random(seed), ties=True)
        assert plain.applies(*job)
        assert not apart(job), f"seed {seed}"


def test_it_gives_the_numbers_of_the_event_kernel_to_rounding() -> None:
    tied = []
    for seed in range(CASES):
        job = plain_job(random.Random(seed), ties=False)
        assert plain.applies(*job)
        names = [where for where, *_ in apart(job)]
        # A service that ends exactly with the window counts as after it; rounding can break the tie.
        assert names in ([], ["run.ranks[0].stations[0].items"]), f"seed {seed}"
        tied += names
    assert len(tied) <= SENSITIVE * CASES


def test_it_gives_the_numbers_of_the_reference() -> None:
    for seed in range(40):
        job = plain_job(random.Random(seed), ties=False)
        one, other = reference.simulate(*job), plain.simulate(*job)
        assert not differences(replace(one, events=0), replace(other, events=0)), f"seed {seed}"


STAGE = Stage("load", 3, (Phase("fetch", "storage"), Phase("pre")), dispatch="round_robin")
LINE = Pipeline((STAGE,), Trainer(), Phase("step"), cores=4.0, credits=6)


def job_of(pipeline: Pipeline, steps: int = 20, rows: int = 9, **length: Any) -> Job:
    rng = np.random.default_rng(1)
    draws = Draws({key: rng.exponential(1.0, (rows, phase.split)) for key, phase, _ in pipeline.phases()})
    return pipeline, draws, RunLength(steps, **length)


def line_with(stage: dict[str, Any] | None = None, trainer: dict[str, Any] | None = None, **rest: Any) -> Pipeline:
    stages = (replace(STAGE, **(stage or {})),)
    return replace(LINE, stages=stages, trainer=replace(LINE.trainer, **(trainer or {})), **rest)


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        (LINE, True),
        (line_with(trainer={"copy_mode": "none"}), True),
        (line_with(speed=(1.0, 1.0), slowdown=(1.0, 1.0, 1.0)), True),
        (line_with(storage_streams=4.0, cores=4.0, batch_size=32, persistent=False), True),
        (line_with(cores=4), True),
        (line_with({"dispatch": "shared"}), False),
        (line_with({"ordered": False}), False),
        (line_with({"buffer": 6}), False),
        (line_with({"grain": "sample", "dispatch": "shared"}, batch_size=2), False),
        (line_with({"phases": (Phase("pre", split=2),)}), False),
        (replace(LINE, stages=(STAGE, Stage("more", 1, (Phase("p"),)))), False),
        (replace(LINE, stages=(), trainer=Trainer((Phase("pre"),))), False),
        (line_with(step=Phase("step", split=2)), False),
        (line_with(trainer={"copy_mode": "stream"}), False),
        (line_with(trainer={"copy_mode": "overlap"}), False),
        (line_with(ranks=2, cores=8.0), False),
        (line_with(barrier=True), False),
        (line_with(ranks=1, hosts=2, barrier=True), False),
        (line_with(epoch_batches=7), False),
        (line_with(startup=0.5), False),
        (line_with(worker_startup=0.5), False),
        (line_with(cores=3.9), False),
        (line_with(speed=(1.0, 1.0, 1.0, 0.99)), False),
        (line_with(speed=(0.5,)), False),
        (line_with(slowdown=(1.0, 1.0, 1.0, 1.0, 1.01)), False),
        (line_with(slowdown=(1.5, 1.0)), False),
        (line_with(storage_streams=3.9), False),
    ],
)
def test_it_is_chosen_exactly_where_it_applies(
    pipeline: Pipeline, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = job_of(pipeline)
    assert plain.applies(*case) is expected
    asked = []
    monkeypatch.setattr(plain, "simulate", lambda *job: asked.append(job))
    if expected:
        fast.simulate(*case)
    elif pipeline.step.split == 1:
        assert fast.simulate(*case).makespan > 0
    assert asked == ([case] if expected else [])


def test_a_trace_and_exact_numbers_are_the_kernel_s() -> None:
    pipeline, draws, length = job_of(LINE)
    assert not plain.applies(pipeline, draws, replace(length, trace=True))
    exact = {key: tape.astype(object) for key, tape in draws.tapes.items()}
    assert not plain.applies(pipeline, Draws(exact), length)
    assert not plain.applies(pipeline, Draws({**draws.tapes, "load.pre": exact["load.pre"]}), length)
    assert len(fast.simulate(pipeline, draws, replace(length, trace=True)).traces) == 1


def test_tapes_of_many_lengths_are_the_kernel_s_only_if_their_common_length_is_large() -> None:
    pipeline, draws, _ = job_of(LINE)
    rows = {
        key: np.resize(tape, (size, 1)) for size, (key, tape) in zip(range(11, 30), draws.tapes.items(), strict=False)
    }
    assert plain.applies(pipeline, Draws(rows), RunLength(1000))
    assert not apart((pipeline, Draws(rows), RunLength(1000)))
    assert not plain.applies(pipeline, Draws(rows), RunLength(LONGEST_TAPE))
    assert plain.applies(pipeline, draws, RunLength(10 * LONGEST_TAPE))
    long = {key: np.resize(tape, (LONGEST_TAPE + 1, 1)) for key, tape in draws.tapes.items()}
    assert plain.applies(pipeline, Draws(long), RunLength(10 * LONGEST_TAPE))


@pytest.mark.parametrize("warm_up", [0, 3])
@pytest.mark.parametrize("credits", [1, 2, 40])
@pytest.mark.parametrize("run_ahead", range(4))
@pytest.mark.parametrize("copy_mode", ["sync", "none"])
def test_short_runs_whose_edges_overlap(copy_mode: str, run_ahead: int, credits: int, warm_up: int) -> None:
    pipeline = line_with(trainer={"copy_mode": copy_mode, "run_ahead": run_ahead}, credits=credits)
    for steps in (4, 5, 9):
        assert not apart(job_of(pipeline, steps=steps, warm_up=warm_up))


def test_no_time_at_all() -> None:
    pipeline, draws, _ = job_of(LINE)
    zero = Draws({key: np.zeros_like(tape) for key, tape in draws.tapes.items()})
    for length in (RunLength(1), RunLength(30, 4, 3)):
        assert not apart((pipeline, zero, length))
        assert plain.simulate(pipeline, zero, length).makespan == 0


def test_accounts_sum_to_the_window() -> None:
    account = plain.simulate(*job_of(LINE, steps=3000, warm_up=100, blocks=7)).ranks[0]
    window = pytest.approx(account.end - account.begin, rel=1e-12)
    assert sum(account.accelerator.values()) == window
    assert sum(account.trainer.values()) == window
    assert sum(account.starved_by.values()) == pytest.approx(account.accelerator["starved"], rel=1e-12)
    assert sum(account.block_busy) == pytest.approx(account.accelerator["busy"], rel=1e-12)
    assert account.block_ends[-1] == account.end


def test_many_credits_cost_no_more_than_what_is_taken() -> None:
    """The batches that are only taken after the end are not looked at one by one."""
    case = job_of(line_with(credits=1_000_000), steps=50)
    assert not apart((replace(case[0], credits=1_000), *case[1:]))
    assert plain.simulate(*case).ranks == plain.simulate(replace(case[0], credits=1_000), *case[1:]).ranks


def test_events_are_the_services_of_the_steps_made() -> None:
    for mode, services in (("sync", 2 + 4), ("none", 2 + 3)):
        assert plain.simulate(*job_of(line_with(trainer={"copy_mode": mode}), steps=70)).events == 70 * services


_PLAIN = """
import sys, random
sys.modules["numba"] = None
from test_recurrence import plain_job
from coresim.sim import plain, recurrence
assert recurrence.run.at_hand()
sys.modules["llvmlite"] = None
for seed in range(30):
    print(plain.simulate(*plain_job(random.Random(seed), seed % 2 == 0)))
"""


def test_it_gives_the_same_numbers_without_numba() -> None:
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1", "PATH": ""}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", _PLAIN]
    without = subprocess.run(command, capture_output=True, text=True, env=path, timeout=200, check=False)
    assert without.returncode == 0, without.stderr
    runs = [plain.simulate(*plain_job(random.Random(seed), seed % 2 == 0)) for seed in range(30)]
    assert without.stdout.splitlines() == [str(run) for run in runs]
