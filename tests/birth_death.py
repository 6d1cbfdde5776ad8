"""The closed cyclic exponential line, solved exactly: workers that share cores, credits, and one accelerator.

The line: every batch is prepared by one of W workers in an exponential time of mean S CPU seconds; a step takes an
exponential time of mean g. The trainer picks up a ready batch, waits for the step's end without a core, and has no
work of its own. From the semantics of `coresim.model.pipeline`:

* A pick-up dispatches the next batch at once, so ``credits`` = N batches are always dispatched and not picked up.
* The accelerator idles only while no batch is ready. Let x be 0 then, and 1 + (ready batches) while a step runs:
  x = 0 and x = 1 leave N batches unprepared, x leaves u(x) = min(N, N + 1 - x), and x = N + 1 leaves none.
* With ``shared`` dispatch n = min(W, u) workers are at work, together at k s(k), k = min(n, K), CPU seconds per second.
  So x rises at the rate n core_rate(n) / S: a finished batch stands ready or, at x = 0, is picked up at once.
* A step ends at the rate 1 / g. With x > 1 the next batch is picked up at the same instant; x falls by one.

Rates depend on x alone and move it by one: a birth-death chain, whose stationary probabilities obey
p(x + 1) / p(x) = birth(x) / death(x + 1) (Kleinrock, *Queueing Systems*, vol. 1, 1975, section 3.1).

Exact for one unordered, ``shared`` batch stage without a buffer, a blocking trainer and exponential times (`example`).
Close, and how it errs: in-order hand-over makes finished batches wait, so the accelerator idles more; round-robin
assignment leaves workers idle beside queued batches, likewise; batches that are sums of many samples vary less, so it
idles less; trainer work that is not overlapped adds its own idle time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from coresim.model.pipeline import Number, Phase, Pipeline, Stage, Trainer
from coresim.model.service import Service
from coresim.sim.run import Run

_ONE = (Fraction(1),)
#: More than the credits of any line that is solved here.
BEYOND = 50


@dataclass(frozen=True)
class ClosedLine:
    """Long-run behaviour of the line.

    Attributes:
        utilisation: busy fraction of the accelerator.
        throughput: batches/s.
        outstanding: mean batches between their take by a worker and their pick-up.
        probabilities: of x = 0, 1, ..., N + 1.
    """

    utilisation: Number
    throughput: Number
    outstanding: Number
    probabilities: tuple[Number, ...]


def mean_outstanding(run: Run) -> Number:
    """The same of a run of `example` with its trace: what is out, integrated, is the sum of stays (Little's law)."""
    (rank,), (trace,) = run.ranks, run.traces
    # A trace lacks the batches beyond its steps, so the last steps do not show all that is out.
    begin, end = rank.begin, trace.end[-BEYOND]
    taken = sorted(time for time in trace.taken[0] if time is not None)
    inside = (min(until, end) - max(since, begin) for since, until in zip(taken, trace.pick_up, strict=False))
    return sum(max(0, stay) for stay in inside) / (end - begin)


def stationary(births: Sequence[Number], deaths: Sequence[Number]) -> tuple[Number, ...]:
    """Stationary probabilities of states 0..n from the rates 0->1, 1->2, ... and 1->0, 2->1, ...

    Exact on Fractions. Weights are taken relative to the likeliest state, so that long buffers cannot overflow.
    """
    ratios = [birth / death for birth, death in zip(births, deaths, strict=True)]
    heights = list(accumulate((math.log(ratio) for ratio in ratios), initial=0.0))
    top = heights.index(max(heights))
    below = list(accumulate((1 / ratio for ratio in reversed(ratios[:top])), operator.mul, initial=Fraction(1)))
    weights = below[:0:-1] + list(accumulate(ratios[top:], operator.mul, initial=Fraction(1)))
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def closed_line(
    workers: int, cores: Number, credits: int, prepare: Number, step: Number, speed: tuple[Number, ...] = _ONE
) -> ClosedLine:
    """Solve the line.

    Args:
        workers: W.
        cores: K.
        credits: N, batches dispatched and not yet picked up.
        prepare: S, CPU seconds per batch on an unshared core.
        step: g, seconds.
        speed: s(1), s(2), ...

    Give Fractions for ``cores``, ``prepare``, ``step`` and ``speed`` to get Fractions.
    """
    model = example(workers, cores, credits, prepare, step, speed)
    left = [min(credits, credits + 1 - x) for x in range(credits + 2)]
    working = [min(workers, unprepared) for unprepared in left]
    births = [n * model.core_rate(n) / prepare for n in working[:-1]]
    probabilities = stationary(births, [1 / step] * (credits + 1))
    utilisation = 1 - probabilities[0]
    taken = (p * (n + credits - u) for p, n, u in zip(probabilities, working, left, strict=True))
    return ClosedLine(utilisation, utilisation / step, sum(taken), probabilities)


def example(
    workers: int, cores: Number, credits: int, prepare: Number, step: Number, speed: tuple[Number, ...] = _ONE
) -> Pipeline:
    """The pipeline for which `closed_line` is exact, with the same arguments."""
    work = Phase("work", service=Service(prepare, 1.0, "exponential"))
    stage = Stage("prepare", workers, (work,), ordered=False)
    device = Phase("step", service=Service(step, 1.0, "exponential"))
    trainer = Trainer(copy_mode="none", spin=False)
    return Pipeline((stage,), trainer, device, cores=cores, credits=credits, speed=speed)
