"""Random small jobs that between them use every feature of the semantics, for the tests of both engines."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from coresim.model.handover import STATES
from coresim.model.pipeline import COPY_MODES, RESOURCES, Phase, Pipeline, Stage, Trainer
from coresim.model.service import Service
from coresim.sim.draws import Draws
from coresim.sim.run import RunLength

Job = tuple[Pipeline, Draws, RunLength]


def jobs(exact: bool = True) -> st.SearchStrategy[Job]:
    """`random_job` by seed."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_job(random.Random(seed), exact))


def random_job(rng: random.Random, exact: bool) -> Job:
    """A small job.

    Args:
        rng: where the choices come from.
        exact: Fractions with many ties and zeros; else floats that practically never tie.
    """
    number = _Numbers(rng, exact)
    batch_size = rng.choice((1, 2, 2, 3))
    credits = rng.choice((None, 1, 2, 2, 3, 4, 6))
    stages = rng.choice((_no_stages, _loader, _line, _line, _line))(rng, credits)
    hosts = rng.choice((1, 1, 1, 2))
    pipeline = Pipeline(
        stages,
        _trainer(rng, number, stages),
        Phase("step"),
        batch_size=batch_size,
        credits=_loader_credits(stages, credits),
        ranks=rng.choice((1, 1, 2, 3)),
        hosts=hosts,
        barrier=hosts > 1 or rng.random() < 0.4,
        epoch_batches=rng.choice((None, None, 1, 2, 3, 5)),
        persistent=rng.random() < 0.5,
        **_shared(rng, number),
    )
    return pipeline, _draws(rng, number, pipeline), _length(rng)


class _Numbers:
    """Times, rates and core counts of the one kind or the other."""

    def __init__(self, rng: random.Random, exact: bool) -> None:
        self.rng, self.exact = rng, exact
        parts = tuple(Fraction(n, d) for n in range(5) for d in (1, 2, 3))
        self.choices = rng.choice(((0, 1), (0, 0, 1, 2), (1, 2, 3), (0, 1, 2, 3, 4), parts))

    def kind(self, value: Any) -> Any:
        """The number as a Fraction or float."""
        return Fraction(value) if self.exact else float(value)

    def time(self) -> Any:
        """A duration."""
        return Fraction(self.rng.choice(self.choices)) if self.exact else self.rng.expovariate(1) + 0.01

    def maybe(self) -> Any:
        """A duration that is often zero, in both kinds."""
        return self.kind(0) if self.rng.random() < 0.5 else self.time()

    def table(self, *values: Any) -> tuple[Any, ...]:
        """The first few of the values."""
        return tuple(self.kind(value) for value in values[: self.rng.randint(1, len(values))])


def _shared(rng: random.Random, number: _Numbers) -> dict[str, Any]:
    streams = rng.choice((None, 1, 2, Fraction(3, 2)))
    cores = rng.choice((1, 1, 2, 3, 4, Fraction(1, 2), Fraction(3, 2), Fraction(5, 2)))
    quota = {
        "cpus": number.kind(cores + rng.choice((Fraction(1, 2), 1, 2, 5))),
        "quota_period": number.kind(rng.choice((Fraction(1, 10), Fraction(1, 3), 1, 2, 7))),
    }
    return {
        "cores": number.kind(cores),
        **(quota if rng.random() < 0.25 else {}),
        "speed": number.table(rng.choice((1, 1, 2)), Fraction(3, 4), Fraction(2, 3), Fraction(1, 2)),
        "slowdown": number.table(1, Fraction(5, 4), Fraction(3, 2), 2),
        "storage_streams": None if streams is None else number.kind(streams),
        "allreduce": number.maybe(),
        "startup": number.maybe(),
        "worker_startup": number.maybe(),
        "siblings": number.kind(rng.choice((0, 0, Fraction(1, 4), Fraction(1, 3)))),
        "sharing_loss": number.kind(rng.choice((0, 0, Fraction(1, 10), Fraction(1, 3)))),
    }


def _no_stages(rng: random.Random, credits: int | None) -> tuple[Stage, ...]:
    return ()


def _loader(rng: random.Random, credits: int | None) -> tuple[Stage, ...]:
    """A data loader: workers with batches of their own."""
    buffer, ordered = rng.choice((None, None, 1, 2)), rng.random() < 0.6
    return (Stage("loader", rng.randint(1, 5), _phases(rng, "batch"), "batch", buffer, ordered, "round_robin"),)


def _loader_credits(stages: tuple[Stage, ...], credits: int | None) -> int | None:
    needed = any(stage.dispatch == "round_robin" or stage.buffer is None for stage in stages)
    return 3 if needed and credits is None else credits


def _line(rng: random.Random, credits: int | None) -> tuple[Stage, ...]:
    """Up to three stages of any grain; sometimes the first is a loader's."""
    stages = list(_loader(rng, credits)) if rng.random() < 0.2 else []
    for index in range(len(stages), rng.randint(len(stages) + 1, 3)):
        dealt = bool(stages) and stages[0].dispatch == "round_robin" and not stages[0].ordered
        grain = "batch" if dealt else rng.choice(("batch", "sample"))
        ordered, buffer = rng.random() < 0.5, rng.choice((None, 1, 1, 2, 3))
        if ordered and _out_of_order(stages, grain):
            buffer = None  # bounded, it would fill up with later items and stop for good
        stages.append(Stage(f"s{index}", rng.randint(1, 3), _phases(rng, grain), grain, buffer, ordered))
    return tuple(stages)


def _out_of_order(stages: list[Stage], grain: str) -> bool:
    """Whether items can enter the next stage in another order than that of their numbers."""
    return bool(stages) and not stages[-1].ordered and (stages[-1].grain, grain) != ("sample", "batch")


def _phases(rng: random.Random, grain: str) -> tuple[Phase, ...]:
    splits = (1,) if grain == "sample" else (1, 1, 2, 3)
    names = ("fetch", "decode", "collate")[: rng.randint(1, 3)]
    return tuple(Phase(name, rng.choice((*RESOURCES, "cores")), split=rng.choice(splits)) for name in names)


def _trainer(rng: random.Random, number: _Numbers, stages: tuple[Stage, ...]) -> Trainer:
    batches = bool(stages) and all(stage.grain == "batch" for stage in stages)
    hands_over = batches and rng.random() < 0.5
    return Trainer(
        () if stages else _phases(rng, "batch"),
        tuple(Phase(f"handover.{state}", "wait") for state in STATES) if hands_over else (),
        # Whether it takes any time decides whether batches are received early.
        Phase("consumer", service=Service(rng.choice((0, 1)))),
        copy_mode=rng.choice(COPY_MODES),
        spin=rng.random() < 0.5,
        run_ahead=rng.choice((0, 0, 1, 2)),
        settling=rng.choice((0, 1, 2)) if batches else 0,
        lead=number.kind(rng.choice((0, 0, Fraction(1, 3), Fraction(1, 2), 1))),
        release=number.kind(rng.choice((0, Fraction(1, 3), Fraction(1, 2), 1))),
    )


def _draws(rng: random.Random, number: _Numbers, pipeline: Pipeline) -> Draws:
    found = {key: _times_of(rng, number, phase.split) for key, phase, _ in pipeline.phases()}
    # Without any time of its own a rank that waits for no other one would train for ever at one moment.
    if not found["accelerator.step"].any():
        found["accelerator.step"] = found["accelerator.step"] + number.kind(1)
    return Draws(found)


def _times_of(rng: random.Random, number: _Numbers, tasks: int) -> np.ndarray[Any, Any]:
    """Rows for some items; they start again when they are used up."""
    draw = (lambda: number.kind(0)) if rng.random() < 0.2 else number.time
    rows = [[draw() for _ in range(tasks)] for _ in range(rng.randint(1, 12))]
    return np.array(rows, dtype=object if number.exact else float)


def _length(rng: random.Random) -> RunLength:
    steps = rng.randint(1, 12)
    warm_up = rng.choice((0, rng.randrange(steps)))
    return RunLength(steps, warm_up, trace=True)
